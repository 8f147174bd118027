/**
 * What the coordinator of an attempt does in every mode: it watches the servers, lets workers take part (attendance.ts), has the evaluation
 * split measured and the weights collected, keeps checkpoints and comes to a stop (stops.ts), and ends the attempt. How work is
 * given out and counted is the mode's, in the class that extends this one.
 *
 * The machine takes its clock as an argument; `tick` must be called every 100 ms or so.
 */
import { ProtocolError, type FailureCause, type Message, type MessageOf } from '@paceline/protocol';
import type { Connection, FrameNumbers } from '../connection.js';
import type { AttemptLedger, AttemptTable } from './attempt-table.js';
import { Attendance, type Owed } from './attendance.js';
import type { CoordinatorOptions, Outcome } from './attempt-options.js';
import { Evaluation } from './evaluation.js';
import { misfitOf, UNMEASURED, type Measures } from './measures.js';
import { Validations } from './validations.js';
import { Membership, givenWork, type CoordinatedMember as Member } from './membership.js';
import { ServerLiveness } from './server-liveness.js';
import { StallDetector, TELL_AGAIN, some } from './stall.js';
import { Stops, type StopReason } from './stops.js';

/** A round that takes longer is explained, though somebody is at work on it. */
const EXPLAINED_AFTER_MS = 15_000;
/** For the servers to find a coordinator that has taken over; Redis or the api may be away for half of that. */
const SUCCESSOR_WAITS_MS = 60_000;
const AFTER_TRAINING: readonly string[] = ['EVALUATING', 'COLLECTING', 'STOPPING', 'OVER'];

/** What the event of a failure tells besides its message. */
type Failure = Record<string, unknown> & { readonly cause?: FailureCause };

export type AttemptOptions = Omit<CoordinatorOptions, 'nonFinite'>;

export abstract class AttemptCoordinator<Options extends AttemptOptions> {
  protected readonly members: Membership;
  protected readonly servers: ServerLiveness;
  protected readonly attendance: Attendance;
  protected readonly stops: Stops;
  protected readonly stall: StallDetector;
  protected evaluation: Evaluation | undefined;
  readonly validations: Validations;
  /** The present round is not committed before the best checkpoint is written: the run would end, or better ones come faster than they are written. */
  protected awaitsBest = false;
  /** The result, while the final checkpoint is still being written. */
  private result: Record<string, unknown> | undefined;
  private lastMovedMs = 0;
  /** Replicas that a shard lacks, by server: what it answered when it was asked again. */
  protected readonly missing = new Map<number, readonly number[]>();
  view = 1;
  /**
   * In which its server came to lead shard 0. Terms of other shards are not taken: a coordinator that was replaced, and has not heard it, would
   * hear of higher ones than its successor's, and be believed.
   */
  readonly term: number;

  constructor(protected readonly options: Options) {
    this.term = options.succession?.term ?? 1;
    const { servers, serverDeadlineMs: silentMs = 10_000, serversDeadlineMs = 30_000, takeoverDeadlineMs: takeoverMs = 300_000 } = options;
    this.members = new Membership(options.replicas, options.now);
    const position = { numbers: () => this.numbers(), round: () => this.round, isOver: () => this.isOver() };
    this.attendance = new Attendance(this.members, options, options.now, {
      ...position,
      take: (row) => this.table.take(row),
      event: (type, message, data) => this.event(type, message, data),
      lastWorkMs: () => this.lastWorkMs(),
      owes: (member) => this.owes(member),
      owed: (member) => (this.isTraining() ? this.owed(member) : undefined),
      isStillOwed: (owed) => this.isStillOwed(owed),
      mayGoNow: (member) => this.mayGoNow(member),
      comesAgain: (id) => this.comesAgain(id),
      wentAway: (member) => this.coverFor(member),
      cameBack: () => {
        this.stall.excused();
        if (this.isTraining()) this.cover();
        this.evaluation?.offer(this.members.live(), this.sendBlocks);
      },
      removed: (member) => this.coverFor(member),
      serversSpeak: () => this.servers.allSpeak,
      poisoned: (replica, message) => this.over('lost', 'failed', message, { cause: 'POISON_ROUND', replica }),
    });
    // Who was just promoted has heard from the arbiter; but the coordinator before may have told the others of the end.
    const completeMs = options.succession ? Math.min(takeoverMs, SUCCESSOR_WAITS_MS) : serversDeadlineMs;
    this.servers = new ServerLiveness(servers, { silentMs, completeMs, takeoverMs }, options.now, options.succession?.terms);
    this.stall = new StallDetector(options.now, options.stall);
    this.validations = new Validations(options.validation, options.schedule.totalRounds, options);
    this.stops = new Stops(options, (type, message, data) => this.event(type, message, data));
  }

  abstract readonly table: AttemptTable;
  abstract readonly ledger: AttemptLedger;
  /** Rounds that are done. */
  abstract get round(): number;
  /** Members have changed, or servers are complete: gives out what has no live holder, in a new view where there is one. */
  protected abstract cover(): void;
  /** The member has something to compute, so that its progress must move. */
  protected abstract owesWork(member: Member): boolean;
  protected abstract owed(member: Member): Owed | undefined;
  protected abstract isStillOwed(owed: Owed): boolean;
  /** When work was last given out to all: no progress is expected before. */
  protected abstract lastWorkMs(): number;
  protected abstract contributed(member: Member, message: MessageOf<'contribution'>): void;
  /** Over another connection, for the same seat or another. */
  protected abstract comesAgain(id: string): void;
  /** A message that only one mode has. @throws ProtocolError BAD_MESSAGE */
  protected abstract serverSaid(index: number, message: Message): void;
  /** A message that only one mode has. @throws ProtocolError BAD_MESSAGE */
  protected abstract memberSaid(member: Member, message: Message): void;
  /** The present work stands still: what was told to members and servers is told again, in a new view. */
  protected abstract askAgain(): void;
  /** What the present round lacks, in words. */
  protected abstract lacks(): string;
  /** Members whose part of it is missing. */
  protected abstract undelivered(): Member[];
  /** A shard that is waited for has a standby. */
  protected abstract mayAwaitArbiter(): boolean;
  /** A stop was asked for: leads to the next checkpoint, which takes it. */
  protected abstract comeToStop(): void;
  /** All rounds are done: moves to EVALUATING, or to COLLECTING where nothing is measured, and calls `startEvaluation`. */
  protected abstract finishTraining(): void;

  numbers(): FrameNumbers {
    return { attempt: this.options.attempt, term: this.term, view: this.view, round: this.round };
  }

  get phase(): 'waiting' | 'training' | 'pausing' | 'evaluating' | 'finished' {
    if (this.table.state === 'OVER') return 'finished';
    if (this.table.state === 'STOPPING' || this.stops.isAsked) return 'pausing';
    if (!this.isTraining()) return 'evaluating';
    return this.waitingFor() === null ? 'training' : 'waiting';
  }

  /** What keeps the run from going on, in words, or null. */
  waitingFor(): string | null {
    if (this.table.state === 'OVER') return null;
    const servers = this.waitingForServers();
    if (servers !== null) return servers;
    if (this.members.live().length === 0 && this.table.state !== 'COLLECTING') return 'a worker to take a step task';
    if (this.table.state === 'STOPPING') return 'its last checkpoint to be written';
    if (this.awaitsBest && this.isTraining()) return 'its best checkpoint to be written';
    if (this.table.state === 'COLLECTING') return this.result ? 'its final checkpoint to be written' : 'its weights to be collected';
    return null;
  }

  /** Like `waitingFor`, in at most 300 characters, and also what a round lacks that has not moved for long, though everything that it needs is there. */
  explain(): string | null {
    const waitingFor = this.waitingFor();
    if (waitingFor !== null || !this.canStall()) return waitingFor;
    const isLong = this.options.now() - this.lastMovedMs > EXPLAINED_AFTER_MS;
    return isLong || this.stall.isStalled ? this.lacking().slice(0, 300) : null;
  }

  protected waitingForServers(): string | null {
    const { missing } = this.servers;
    return missing.length > 0 ? `parameter server ${missing.join(', ')} to connect to the coordinator` : null;
  }

  seats(): { seat: number; n: number; workerId: string; replicas: number[] }[] {
    return this.members.all().map((member) => {
      const { seat, n, id: workerId } = member;
      return { seat, n, workerId, replicas: this.replicasOf(member) };
    });
  }

  // ---- servers ----

  /** Before it takes the place of another: HELLO of a server. @throws ProtocolError STALE_TERM when its standby leads */
  readonly serverComes = (index: number, term: number): void => this.servers.comes(index, term);

  serverJoined(index: number, connection: Connection): void {
    this.table.take('serverJoins');
    this.servers.add(index, connection);
    connection.sendMessage(this.viewMessage(), this.numbers());
    this.begin();
  }

  serverLost(index: number, why: string): void {
    if (this.table.state === 'OVER' || !this.servers.remove(index) || this.isCovered(index, why)) return;
    const message = `parameter server ${index} was lost in round ${this.round}: ${why}`;
    this.over('serverLost', 'failed', message, { cause: 'SERVER_LOST', server: index });
  }

  /** Whether somebody takes the place of a server that is lost. */
  protected isCovered(_index: number, _why: string): boolean {
    return false;
  }

  serverMessage(index: number, message: Message): void {
    if (this.table.state === 'OVER' || !this.servers.heard(index) || message.type === 'heartbeat') return;
    switch (message.type) {
      case 'member-link':
        return this.attendance.link(index, message);
      case 'part-written':
        return this.onPartWritten(index, message);
      case 'part-failed':
        return this.checkpointFailed(message.generation, `parameter server ${index}: ${message.code}: ${message.message}`);
      case 'stopping':
        return this.stop('shutdown', `parameter server ${index}: ${message.reason}`);
      default:
        return this.serverSaid(index, message);
    }
  }

  // ---- members ----

  /** Admits a worker, or takes back one that was away. @throws ProtocolError RUN_OVER, SEAT_TAKEN, FINGERPRINT_MISMATCH */
  memberJoined(hello: MessageOf<'hello'>, connection: Connection, _known?: Pick<FrameNumbers, 'round' | 'view'>): void {
    if (this.table.state === 'OVER') throw new ProtocolError('RUN_OVER');
    this.attendance.join(hello, connection);
    this.stall.excused();
    if (this.isTraining()) {
      if (this.servers.isComplete) this.cover();
      this.begin();
    }
    // The newcomer learns the present view even when nothing was given to it.
    connection.sendMessage(this.viewMessage(), this.numbers());
    // What was sent over an earlier connection, or came back over it, may be lost with it.
    this.evaluation?.withdraw(hello.id, this.members.live(), this.sendBlocks);
  }

  memberClosed(id: string, connection: Connection, why: string): void {
    if (!this.isOver()) this.attendance.closed(id, connection, why);
  }

  memberMessage(id: string, message: Message): void {
    const member = this.members.get(id);
    if (!member || this.table.state === 'OVER') return;
    member.lastHeardMs = this.options.now();
    switch (message.type) {
      case 'heartbeat':
        return this.attendance.heartbeat(member, message);
      case 'contribution':
        return this.contributed(member, message);
      case 'evaluated':
        return this.onEvaluated(member, message);
      case 'leave':
        return this.attendance.leave(member, message.reason);
      case 'failed':
        return this.attendance.lose(member, `${message.code}: ${message.message}`, 'NOT_A_MEMBER');
      default:
        return this.memberSaid(member, message);
    }
  }

  /** Deadlines. Call it every 100 ms or so. */
  tick(): void {
    if (this.table.state === 'OVER') return;
    const silent = this.servers.silent();
    if (silent) return this.serverLost(silent.index, `nothing heard for ${silent.silentMs} ms`);
    if (this.servers.isLate) {
      const why = `waited too long for ${this.waitingFor()}`;
      return this.over('fail', 'failed', why, { cause: 'SERVER_LOST', servers: this.servers.missing });
    }
    const late = this.stops.lateCheckpoint();
    if (late) this.checkpointFailed(late.generation, late.why);
    if (!this.isOver() && this.stops.isPastDeadline && this.table.allows('stopped')) this.endStopped();
    if (this.isOver()) return;
    this.attendance.tick();
    if (!this.isOver()) this.watchStall();
  }

  /** Tells the servers that the coordinator lives; call it every second. */
  heartbeat(): void {
    this.servers.send({ type: 'heartbeat', progress: this.round }, this.numbers());
  }

  // ---- outcomes ----

  weightsCollected(data: Record<string, unknown>): void {
    if (this.table.state === 'OVER') return;
    if (this.stops.isFinalUnderWay) {
      this.result = data; // the final checkpoint is still being written: its end, whatever it is, comes back here
      return;
    }
    this.event('run.finished', this.validations.stop ?? `finished after ${this.round} rounds`, data);
    this.over('collected', 'finished', 'the run is finished');
  }

  cancel(): void {
    if (this.table.state === 'OVER') return;
    this.event('run.cancelled', `cancelled in round ${this.round}`, { round: this.round });
    this.over('cancel', 'cancelled', 'the run was cancelled');
  }

  fail(message: string, cause: FailureCause = 'INTERNAL'): void {
    if (this.table.state === 'OVER') return;
    this.over('fail', 'failed', message, { cause });
  }

  // ---- checkpoints and stops ----

  /** The manifest of a checkpoint is stored. False when nobody waits for it any more: then nobody is told of it. */
  checkpointPublished(
    generation: number,
    record: { readonly bytes: number; readonly sha256: string; readonly loss: number | null },
  ): boolean {
    if (this.isOver() || !this.stops.published(generation, record)) return false;
    this.afterCheckpoint();
    return true;
  }

  /** The checkpoint before it stays the newest, and training goes on. */
  checkpointFailed(generation: number, why: string): void {
    if (!this.isOver() && this.stops.failed(generation, why)) this.afterCheckpoint();
  }

  /** Finishes the round, takes a checkpoint and ends the attempt as paused. After the last round there is nothing to pause. */
  pause(): void {
    this.stop('pause', 'a pause was asked for');
  }

  /** The same before this process, or the one of another server, ends: the attempt fails with the cause STOPPED. */
  shutdown(why: string): void {
    this.stop('shutdown', why);
  }

  /** Most members that may compute; surplus ones are let go at the next commit. */
  setWorkerTarget(workers: number): void {
    this.attendance.setTarget(workers);
  }

  // ---- work that stands still ----

  /** Something new has come that brings the present work on. */
  protected moved(): void {
    this.lastMovedMs = this.options.now();
    this.stall.moved();
  }

  private canStall(): boolean {
    return this.ledger.hasBegun && (this.isTraining() || this.table.state === 'EVALUATING');
  }

  private watchStall(): void {
    const isAtWork = (member: Member): boolean => !member.rests && this.owes(member);
    if (!this.canStall() || this.waitingFor() !== null || !this.servers.allSpeak || this.members.live().some(isAtWork))
      return this.stall.excused();
    // A shard with a standby may wait for the arbiter, and says nothing of it here.
    const step = this.stall.due(this.mayAwaitArbiter() ? (this.options.takeoverDeadlineMs ?? 300_000) : 0);
    if (step === 'ask') this.ask();
    if (step === 'drop') {
      this.table.take('undelivered');
      for (const member of this.owing()) this.attendance.lose(member, `it rests, and lacks ${this.lacking()}`, 'SILENT_PEER');
    }
    const why = `round ${this.round} stands still: it waits for ${this.lacking()}`;
    if (step === 'end') this.over('stalled', 'failed', why, { cause: 'STALLED' });
  }

  private ask(): void {
    this.table.take('askedAgain');
    const message = `round ${this.round} stands still, though everybody is there: it waits for ${this.lacking()}; all are asked again`;
    this.event('round.stalled', message, { round: this.round });
    this.missing.clear();
    if (this.isTraining() && !this.evaluation) this.askAgain();
    this.servers.send(TELL_AGAIN, this.numbers());
    this.members.send(TELL_AGAIN, this.numbers());
    for (const member of this.owing()) this.evaluation?.withdraw(member.id, this.members.live(), this.sendBlocks);
  }

  private owing(): Member[] {
    return this.evaluation || !this.isTraining() ? this.members.live().filter(({ id }) => this.evaluation?.owes(id)) : this.undelivered();
  }

  private lacking(): string {
    if (this.isTraining() && !this.evaluation) return this.lacks();
    return `measures of the evaluation split from worker ${some(this.owing().map(({ id }) => id))}`;
  }

  // ---- for the modes ----

  protected isOver(): boolean {
    return this.table.state === 'OVER';
  }

  protected isTraining(): boolean {
    return !AFTER_TRAINING.includes(this.table.state);
  }

  protected viewMessage(): Message {
    return { type: 'view', view: this.view, term: this.term, round: this.round, members: this.members.list() };
  }

  protected replicasOf(member: Member): number[] {
    return member.replicas;
  }

  /** A leaving member that owes nothing may go at once. */
  protected mayGoNow(member: Member): boolean {
    if (this.isTraining()) return !this.owesWork(member) || this.waitingFor() !== null;
    return this.table.state !== 'EVALUATING' || !this.evaluation?.owes(member.id);
  }

  /** All rounds are done (and the state has moved to EVALUATING, or to COLLECTING where nothing is measured). */
  protected startEvaluation(): void {
    const end = this.validations.endOf(this.round);
    if (end) return this.options.collectWeights(end.values ?? UNMEASURED, end.generation === this.round ? undefined : end.generation);
    if (this.options.evalExamples === 0) return this.options.collectWeights(UNMEASURED);
    this.evaluation = new Evaluation(this.round, { from: 0, to: this.options.evalExamples }, this.options.measured);
    const what = `all ${this.round} rounds are committed; measuring ${this.options.evalExamples} evaluation examples`;
    this.event('evaluation.started', what, { round: this.round });
    this.evaluation.offer(this.members.live(), this.sendBlocks);
  }

  /** The state after the last round: nothing is left to measure where nothing can be, or a validation has. */
  protected get afterTraining(): 'EVALUATING' | 'COLLECTING' {
    return this.options.evalExamples === 0 || this.validations.endOf(this.round) ? 'COLLECTING' : 'EVALUATING';
  }

  /** Measures of a block have come. @param values when they were the last */
  protected validated(_values: Measures | undefined): void {
    throw new Error('only mode sync validates');
  }

  protected over(
    row: 'collected' | 'cancel' | 'serverLost' | 'fail' | 'lost' | 'stopped' | 'stalled',
    outcome: Outcome,
    message: string,
    failure: Failure = {},
  ): void {
    this.table.take(row, 'OVER');
    this.conclude(outcome, message, failure);
  }

  /** The state is OVER: says so to everybody, as soon as it is certain that no standby goes on in its place. */
  protected conclude(outcome: Outcome, message: string, failure: Failure = {}): void {
    if (outcome === 'failed') this.event('run.failed', message, { round: this.round, newest: this.stops.newest, ...failure });
    const end: Message = { type: 'end', outcome, message: message.slice(0, 2000) };
    const say = (): void => {
      this.members.send(end, this.numbers());
      this.servers.send(end, this.numbers());
      this.options.onOver(outcome, message);
    };
    if (this.options.whenFinal) this.options.whenFinal(say);
    else say();
  }

  protected event(type: string, message: string, data: Record<string, unknown>): void {
    this.options.journal.append({ kind: 'event', type, message: message.slice(0, 2000), data });
  }

  // ---- inside ----

  private owes(member: Member): boolean {
    if (this.evaluation?.owes(member.id)) return true;
    return this.isTraining() && this.owesWork(member); // at rest its progress moves too
  }

  /** First start: everything is there, so work is handed out. */
  protected begin(): void {
    if (this.ledger.hasBegun || this.waitingFor() !== null) return;
    this.ledger.begin();
    this.moved();
    this.cover();
    const { servers, replicas, schedule } = this.options;
    const workers = this.members.live().length;
    if (!this.options.succession) {
      if (this.round > 0) this.event('run.restored', `goes on from the checkpoint of round ${this.round}`, { round: this.round });
      const facts = { workers, servers, replicas, totalRounds: schedule.totalRounds, fingerprint: this.attendance.fingerprint ?? '' };
      this.event('training.started', `training started; workers: ${workers}, servers: ${servers}, replicas: ${replicas}`, facts);
    }
    // Restored from a checkpoint of its last round, or of the one that a validation has ended it with: only the end is left.
    if (this.round >= schedule.totalRounds || this.validations.stop !== undefined) this.finishTraining();
  }

  private stop(reason: StopReason, why: string): void {
    if (!this.isTraining() || !this.stops.ask(reason, why)) return;
    this.table.take('stop');
    if (this.isAtCheckpoint() || !this.options.checkpoints) this.endStopped();
    else this.comeToStop();
  }

  /** Nothing is committed since the newest checkpoint, and nobody is about to commit anything. Who has taken the place of another, and has not begun, does not know. */
  private isAtCheckpoint(): boolean {
    if (this.round !== this.stops.newest) return false;
    return this.ledger.hasBegun ? this.waitingFor() !== null : !this.options.succession;
  }

  /** The attempt ends on its newest checkpoint. */
  protected endStopped(): void {
    const { reason, message, redone } = this.stops.ending(this.round);
    if (reason === 'pause') {
      this.event('run.paused', message, { round: this.stops.newest, redone });
      this.over('stopped', 'paused', message);
    } else this.over('stopped', 'failed', message, { cause: 'STOPPED', redone });
  }

  protected afterCheckpoint(): void {
    this.table.take('checkpointSettled');
    if (this.table.state === 'STOPPING') this.endStopped();
    else if (this.result) this.weightsCollected(this.result);
  }

  private onPartWritten(index: number, { generation, file }: MessageOf<'part-written'>): void {
    this.table.take('partWritten');
    const checkpoint = this.stops.written(index, generation, file);
    if (checkpoint) this.options.publishCheckpoint?.(checkpoint);
  }

  /** Hands blocks of the evaluation to a member. */
  protected readonly sendBlocks = (id: string, message: Message): void => {
    const member = this.members.get(id)!;
    givenWork(member, this.options.now());
    member.connection.sendMessage(message, this.numbers());
  };

  /** Somebody is not there any more: what it had goes to the others. */
  private coverFor(member: Member): void {
    if (this.isTraining()) this.cover();
    this.evaluation?.withdraw(member.id, this.members.live(), this.sendBlocks);
  }

  private onEvaluated(from: Member, message: MessageOf<'evaluated'>): void {
    if (!this.evaluation || this.evaluation.generation !== message.generation) return;
    const what = `the evaluation examples ${message.from} to ${message.to}`;
    const misfit = misfitOf(message, this.options.measured, message.to - message.from, what);
    if (misfit !== undefined) return this.attendance.lose(from, misfit, 'NOT_A_MEMBER');
    this.moved();
    const result = this.evaluation.done(message);
    if (this.isTraining()) return this.validated(result);
    this.table.take('evaluated', result && 'COLLECTING');
    for (const member of this.members.all())
      if (member.leaving !== undefined && !this.evaluation.owes(member.id)) this.attendance.letGo(member);
    if (!result) return;
    this.evaluation = undefined;
    this.options.collectWeights(result);
  }
}
