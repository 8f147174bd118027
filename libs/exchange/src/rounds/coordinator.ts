/**
 * The coordinator of a run's attempt (ROUNDS §1, §4, §7): it owns membership, replica assignment, commits and the ledger.
 *
 *   reduce → commit → publish. Members send their contribution (examples, metric sums) here and their gradients to the
 *   shards. When every shard says REDUCED(k) and every replica's contribution is in, round k is committed: COMMIT goes to
 *   the shards, then to the members, with a new view when membership has changed.
 *
 * A member whose socket closes is covered at once: its replicas of the present round go to the others (computing them twice is
 * harmless, the step is pure), and its seat is kept for `awayMs`, in case it comes back. After the last round the live
 * members measure the evaluation split, the weights are collected, and the run is over.
 *
 * A checkpoint is cut by a COMMIT (cuts.ts). A pause, or a server that has to end, waits for the present round, cuts with its
 * commit, and ends the attempt when the checkpoint is published.
 *
 * The machine takes its clock as an argument; `tick` must be called every 100 ms or so.
 */
import { ProtocolError, type Members, type Message, type MessageOf } from '@paceline/protocol';
import type { Connection, FrameNumbers } from '../connection.js';
import {
  COORDINATOR_ROWS,
  type Cause,
  type CoordinatorOptions,
  type CoordinatorState,
  type EvaluationResult,
  type Outcome,
} from './coordinator-table.js';
import { Agreement } from './agreement.js';
import { Attendance, type Owed } from './attendance.js';
import { Evaluation } from './evaluation.js';
import { Membership, type CoordinatedMember as Member } from './membership.js';
import { RoundLedger, type Contribution, type LedgerState } from './round-ledger.js';
import { ServerWatch } from './server-watch.js';
import { StateTable } from './state-table.js';
import { Stops, type StopReason } from './stops.js';

export class Coordinator {
  readonly table = new StateTable<CoordinatorState, typeof COORDINATOR_ROWS>('coordinator', COORDINATOR_ROWS, 'GATHERING');
  private readonly members: Membership;
  private readonly servers: ServerWatch;
  private readonly ledger: RoundLedger;
  private readonly contributions = new Map<number, Contribution>();
  private readonly reduced = new Set<number>();
  private readonly attendance: Attendance;
  private evaluation: Evaluation | undefined;
  private readonly stops: Stops;
  private readonly agreement: Agreement | undefined;
  /** The result, while the final checkpoint is still being written. */
  private result: Record<string, unknown> | undefined;
  round: number;
  view = 1;
  term = 1;

  constructor(private readonly options: CoordinatorOptions) {
    const { servers, serverDeadlineMs = 10_000, serversDeadlineMs = 30_000, schedule, journal } = options;
    this.members = new Membership(options.replicas, options.now);
    this.attendance = new Attendance(this.members, options, options.now, {
      take: (row) => this.table.take(row),
      event: (type, message, data) => this.event(type, message, data),
      numbers: () => this.numbers(),
      round: () => this.round,
      isOver: () => this.isOver(),
      lastWorkMs: () => this.ledger.lastCommitMs,
      owes: (member) => this.owes(member),
      owed: (member) => this.owed(member),
      isStillOwed: ({ round }) => round === this.round,
      mayGoNow: (member) => this.mayGoNow(member),
      wentAway: (member) => this.coverFor(member),
      cameBack: () => {
        this.coverNow();
        this.evaluation?.offer(this.members.live(), this.sendBlocks);
      },
      removed: (member) => this.coverFor(member),
      poisoned: (replica, message) => this.over('lost', 'failed', message, { cause: 'POISON_ROUND', replica }),
    });
    this.servers = new ServerWatch(servers, { silentMs: serverDeadlineMs, completeMs: serversDeadlineMs }, options.now);
    this.ledger = new RoundLedger(schedule, journal, options.now, options.firstLedger);
    this.round = options.firstRound ?? 0;
    if (options.twoPhase) this.agreement = new Agreement(servers, options.replicas, options.twoPhase);
    this.stops = new Stops(options, (type, message, data) => this.event(type, message, data));
  }

  get trainedExamples(): number {
    return this.ledger.trainedExamples;
  }

  /** What a checkpoint of the present generation keeps of the ledger. */
  ledgerState(): LedgerState {
    return this.ledger.state();
  }

  /** Over the rounds of this attempt. */
  get examplesPerSecond(): number {
    return this.ledger.trainingMs > 0 ? (this.ledger.attemptExamples / this.ledger.trainingMs) * 1000 : 0;
  }

  get trainingMs(): number {
    return this.ledger.trainingMs;
  }

  numbers(): FrameNumbers {
    return { attempt: this.options.attempt, term: this.term, view: this.view, round: this.round };
  }

  get phase(): 'waiting' | 'training' | 'pausing' | 'evaluating' | 'finished' {
    if (this.table.state === 'OVER') return 'finished';
    if (this.table.state === 'STOPPING' || this.stops.isAsked) return 'pausing';
    if (this.table.state !== 'GATHERING') return 'evaluating';
    return this.waitingFor() === null ? 'training' : 'waiting';
  }

  /** What keeps the run from going on, in words, or null. */
  waitingFor(): string | null {
    if (this.table.state === 'OVER') return null;
    if (!this.servers.isComplete) return `parameter server ${this.servers.missing.join(', ')} to connect to the coordinator`;
    if (this.members.live().length === 0) return 'a worker to take a step task';
    return null;
  }

  seats(): { seat: number; n: number; workerId: string; replicas: number[] }[] {
    return this.members.all().map(({ seat, n, id, replicas }) => ({ seat, n, workerId: id, replicas }));
  }

  // ---- servers ----

  serverJoined(index: number, connection: Connection): void {
    this.table.take('serverJoins');
    this.servers.add(index, connection);
    connection.sendMessage(this.viewMessage(), this.numbers());
    this.begin();
  }

  serverLost(index: number, why: string): void {
    if (this.table.state === 'OVER' || !this.servers.remove(index)) return;
    this.over('serverLost', 'failed', `parameter server ${index} was lost in round ${this.round}: ${why}`, {
      cause: 'SERVER_LOST',
      server: index,
    });
  }

  serverMessage(index: number, message: Message): void {
    if (this.table.state === 'OVER' || !this.servers.heard(index) || message.type === 'heartbeat') return;
    switch (message.type) {
      case 'reduced':
        return this.onReduced(index, message.round);
      case 'member-link':
        return this.attendance.link(index, message);
      case 'cut-written':
        return this.onCutWritten(index, message);
      case 'cut-failed':
        return this.cutFailed(message.generation, `parameter server ${index}: ${message.code}: ${message.message}`);
      case 'non-finite':
        return this.onNonFinite(index, message.round);
      case 'replica-complete':
      case 'scalars':
        return this.onAgreement(index, message);
      case 'stopping':
        return this.stop('shutdown', `parameter server ${index}: ${message.reason}`);
      default:
        throw new ProtocolError('BAD_MESSAGE', `a server does not send ${message.type} to the coordinator`);
    }
  }

  // ---- members ----

  /** Admits a worker, or takes back one that was away. @throws ProtocolError RUN_OVER, SEAT_TAKEN, FINGERPRINT_MISMATCH */
  memberJoined(hello: MessageOf<'hello'>, connection: Connection): void {
    if (this.table.state === 'OVER') throw new ProtocolError('RUN_OVER');
    this.attendance.join(hello, connection);
    if (this.table.state === 'GATHERING') {
      if (this.servers.isComplete) this.coverNow();
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
        this.attendance.heartbeat(member, message.progress);
        return;
      case 'contribution':
        return this.onContribution(member, message);
      case 'evaluated':
        return this.onEvaluated(message);
      case 'leave':
        return this.attendance.leave(member, message.reason);
      case 'failed':
        return this.attendance.lose(member, `${message.code}: ${message.message}`, 'NOT_A_MEMBER');
      default:
        throw new ProtocolError('BAD_MESSAGE', `a worker does not send ${message.type} to the coordinator`);
    }
  }

  /** Something else than a message has come: a gradient on its way can hold up heartbeats for longer than their deadline. */
  memberHeard(id: string, connection: Connection): void {
    const member = this.members.get(id);
    if (member?.connection === connection) member.lastHeardMs = this.options.now();
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
    const late = this.stops.lateCut();
    if (late) this.cutFailed(late.generation, late.why);
    if (!this.isOver() && this.stops.isPastDeadline && this.table.allows('stopped')) this.endStopped();
    if (this.isOver()) return;
    this.attendance.tick();
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
    this.event('run.finished', `finished after ${this.round} rounds`, data);
    this.over('collected', 'finished', 'the run is finished');
  }

  // ---- checkpoints and stops ----

  /** The manifest of a cut is stored. */
  cutPublished(generation: number, record: { readonly bytes: number; readonly sha256: string; readonly loss: number | null }): void {
    if (!this.isOver() && this.stops.published(generation, record)) this.afterCut();
  }

  /** The checkpoint before it stays the newest, and training goes on. */
  cutFailed(generation: number, why: string): void {
    if (!this.isOver() && this.stops.failed(generation, why)) this.afterCut();
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

  cancel(): void {
    if (this.table.state === 'OVER') return;
    this.event('run.cancelled', `cancelled in round ${this.round}`, { round: this.round });
    this.over('cancel', 'cancelled', 'the run was cancelled');
  }

  fail(message: string, cause: Cause = 'INTERNAL'): void {
    if (this.table.state === 'OVER') return;
    this.over('fail', 'failed', message, { cause });
  }

  // ---- inside ----

  private isOver(): boolean {
    return this.table.state === 'OVER';
  }

  private owes(member: Member): boolean {
    if (this.table.state === 'EVALUATING') return this.evaluation?.owes(member.id) ?? false;
    return this.table.state === 'GATHERING' && member.replicas.length > 0; // at rest its progress moves too
  }

  /** First start: everything is there, so hand out the replicas. */
  private begin(): void {
    if (this.ledger.hasBegun || this.waitingFor() !== null) return;
    this.ledger.begin();
    this.coverNow();
    const { servers, replicas, schedule } = this.options;
    const workers = this.members.live().length;
    this.event('training.started', `training started with ${workers} worker(s), ${servers} server(s), ${replicas} replicas`, {
      ...{ workers, servers, replicas, totalRounds: schedule.totalRounds, fingerprint: this.attendance.fingerprint ?? '' },
    });
    // Restored from a checkpoint of its last round: only the measuring is left.
    if (this.round >= this.options.schedule.totalRounds) this.startEvaluation();
  }

  private stop(reason: StopReason, why: string): void {
    if (this.table.state !== 'GATHERING' || !this.stops.ask(reason, why)) return;
    this.table.take('stop');
    if (this.isAtCheckpoint() || !this.options.cuts) this.endStopped();
  }

  /** Nothing is committed since the newest checkpoint, and nobody is about to commit anything. */
  private isAtCheckpoint(): boolean {
    return this.round === this.stops.newest && (!this.ledger.hasBegun || this.waitingFor() !== null);
  }

  /** The attempt ends on its newest checkpoint. */
  private endStopped(): void {
    const { reason, message, redone } = this.stops.ending(this.round);
    if (reason === 'pause') {
      this.event('run.paused', message, { round: this.stops.newest, redone });
      this.over('stopped', 'paused', message);
    } else this.over('stopped', 'failed', message, { cause: 'STOPPED', redone });
  }

  private afterCut(): void {
    this.table.take('cutSettled');
    if (this.table.state === 'STOPPING') this.endStopped();
    else if (this.result) this.weightsCollected(this.result);
  }

  private onCutWritten(index: number, { generation, file }: MessageOf<'cut-written'>): void {
    this.table.take('cutWritten');
    const cut = this.stops.written(index, generation, file);
    if (cut) this.options.publishCut?.(cut);
  }

  private onNonFinite(index: number, round: number): void {
    if (this.table.state !== 'GATHERING' || round !== this.round) return;
    this.notFinite('nonFinite', `a gradient of round ${round} has NaN or infinity (found by parameter server ${index})`, { server: index });
  }

  private notFinite(row: 'nonFinite' | 'scalars', message: string, data: Record<string, unknown>): void {
    const cause = this.options.nonFinite === 'rollback' ? 'NON_FINITE_ROLLBACK' : 'NON_FINITE';
    this.over(row, 'failed', message, { cause, ...data });
  }

  /** In the middle of a round: gives replicas without a live holder to the live members, in a new view. */
  private coverNow(): void {
    if (!this.members.cover()) return;
    this.view++;
    const message = this.viewMessage();
    this.servers.send(message, this.numbers());
    this.members.send(message, this.numbers());
  }

  private viewMessage(): Message {
    return { type: 'view', view: this.view, term: this.term, round: this.round, members: this.members.list() };
  }

  /** Hands blocks of the evaluation to a member, which has its whole step deadline for them. */
  private readonly sendBlocks = (id: string, message: Message): void => {
    const member = this.members.get(id)!;
    member.lastProgressMs = this.options.now();
    member.connection.sendMessage(message, this.numbers());
  };

  private owed(member: Member): Owed | undefined {
    if (this.table.state !== 'GATHERING') return undefined;
    return { round: this.round, replicas: member.replicas.filter((replica) => !this.contributions.has(replica)) };
  }

  private mayGoNow(member: Member): boolean {
    if (this.table.state === 'GATHERING') return member.replicas.length === 0 || this.waitingFor() !== null;
    return !this.owes(member);
  }

  /** Somebody is not there any more: what it had goes to the others. */
  private coverFor(member: Member): void {
    if (this.table.state === 'GATHERING') this.coverNow();
    else this.evaluation?.withdraw(member.id, this.members.live(), this.sendBlocks);
  }

  private onContribution(member: Member, message: MessageOf<'contribution'>): void {
    if (this.table.state !== 'GATHERING' || message.round !== this.round || message.replica >= this.options.replicas)
      return this.table.take('contributionStale');
    const expected = this.options.schedule.replicaExamples(this.round, message.replica);
    if (message.examples !== expected) {
      return this.attendance.lose(
        member,
        `it counted ${message.examples} examples for replica ${message.replica} of round ${this.round}, the schedule says ${expected}`,
        'NOT_A_MEMBER',
      );
    }
    this.table.take('contribution');
    if (!this.contributions.has(message.replica))
      this.contributions.set(message.replica, { examples: message.examples, sums: message.sums });
    this.tryCommit();
  }

  private onReduced(index: number, round: number): void {
    if (this.table.state !== 'GATHERING' || round !== this.round) return;
    this.table.take('reduced');
    this.reduced.add(index);
    this.tryCommit();
  }

  private onAgreement(index: number, message: MessageOf<'replica-complete'> | MessageOf<'scalars'>): void {
    if (this.table.state !== 'GATHERING' || message.round !== this.round || !this.agreement) return;
    const answer = this.agreement.hear(index, message);
    if (answer === 'non-finite') return this.notFinite('scalars', `a gradient of round ${this.round} has NaN or infinity`, {});
    this.table.take(message.type === 'scalars' ? 'scalars' : 'replicaComplete');
    if (answer) this.servers.send(answer, this.numbers());
  }

  private tryCommit(): void {
    // In the order of the replicas, whoever came first: sums of floats depend on it.
    const included = this.agreement ? this.agreement.included : this.members.replicas;
    if (this.reduced.size < this.options.servers || !included?.every((replica) => this.contributions.has(replica))) return;
    const last = this.round + 1 === this.options.schedule.totalRounds;
    const rows = included.map((replica) => this.contributions.get(replica)!);
    if (this.agreement?.decision?.skip) this.ledger.skip(this.round);
    else this.ledger.commit(this.round, rows);
    this.agreement?.reset();
    const committed = this.round;
    this.contributions.clear();
    this.reduced.clear();
    this.attendance.committed();
    this.round++;
    const leaving = this.attendance.leaving();
    const members = this.rebalance(leaving);
    const message: Message = { type: 'commit', round: committed, view: this.view, term: this.term, ...(members ? { members } : {}) };
    this.table.take('commit');
    const cut = this.stops.beginCut(this.round, () => this.ledger.cut());
    this.servers.send(cut ? { ...message, cut: true } : message, this.numbers());
    this.members.send(message, this.numbers());
    if (last) this.startEvaluation();
    else if (this.stops.isAsked) {
      this.table.take('commit', 'STOPPING');
      this.stops.extend();
    }
    for (const member of leaving) if (!last || !this.evaluation?.owes(member.id)) this.attendance.letGo(member);
  }

  /** At a commit: balanced blocks over everybody who stays. Returns the members when the view has changed. */
  private rebalance(leaving: readonly Member[]): Members | undefined {
    if (!this.attendance.hasChanged) return undefined;
    this.attendance.hasChanged = false;
    const staying = this.members.live().filter((member) => !leaving.includes(member));
    if (!this.members.rebalance(staying)) return undefined;
    this.view++;
    const members = this.members.list();
    const said = staying.map(({ id, replicas }) => `${id} has [${replicas.join(' ')}]`).join(', ') || 'no members';
    this.event('view.changed', `view ${this.view}: ${said}`, { view: this.view, round: this.round, members });
    return members;
  }

  private startEvaluation(): void {
    if (this.options.evalExamples === 0) return this.startCollecting({ loss: null, accuracy: null });
    this.table.take('commit', 'EVALUATING');
    this.evaluation = new Evaluation(this.round, this.options.evalExamples);
    this.event('evaluation.started', `all ${this.round} rounds are committed; measuring ${this.options.evalExamples} evaluation examples`, {
      round: this.round,
    });
    this.evaluation.offer(this.members.live(), this.sendBlocks);
  }

  private onEvaluated(message: MessageOf<'evaluated'>): void {
    if (this.table.state !== 'EVALUATING' || !this.evaluation) return;
    const result = this.evaluation.done(message);
    this.table.take('evaluated');
    for (const member of this.members.all())
      if (member.leaving !== undefined && !this.evaluation.owes(member.id)) this.attendance.letGo(member);
    if (result) this.startCollecting(result);
  }

  private startCollecting(result: EvaluationResult): void {
    this.table.take(this.table.state === 'EVALUATING' ? 'evaluated' : 'commit', 'COLLECTING');
    this.evaluation = undefined;
    this.options.collectWeights(result);
  }

  private over(
    row: 'collected' | 'cancel' | 'serverLost' | 'fail' | 'lost' | 'stopped' | 'nonFinite' | 'scalars',
    outcome: Outcome,
    message: string,
    failure: Record<string, unknown> & { readonly cause?: Cause } = {},
  ): void {
    this.table.take(row, 'OVER');
    if (outcome === 'failed') this.event('run.failed', message, { round: this.round, newest: this.stops.newest, ...failure });
    const end: Message = { type: 'end', outcome, message: message.slice(0, 2000) };
    this.members.send(end, this.numbers());
    this.servers.send(end, this.numbers());
    this.options.onOver(outcome, message);
  }

  private event(type: string, message: string, data: Record<string, unknown>): void {
    this.options.journal.append({ kind: 'event', type, message: message.slice(0, 2000), data });
  }
}
