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
 * The machine takes its clock as an argument; `tick` must be called every 100 ms or so.
 */
import { ProtocolError, type DataPlaneErrorCode, type Members, type Message, type MessageOf } from '@paceline/protocol';
import type { Connection, FrameNumbers } from '../connection.js';
import { COORDINATOR_ROWS, type CoordinatorOptions, type CoordinatorState, type EvaluationResult } from './coordinator-table.js';
import { Evaluation } from './evaluation.js';
import { LossCounter, MAX_LOSSES } from './loss-counter.js';
import { Membership, type CoordinatedMember as Member } from './membership.js';
import { RoundLedger, type Contribution } from './round-ledger.js';
import { ServerWatch } from './server-watch.js';
import { StateTable } from './state-table.js';

export class Coordinator {
  readonly table = new StateTable<CoordinatorState, typeof COORDINATOR_ROWS>('coordinator', COORDINATOR_ROWS, 'GATHERING');
  private readonly members: Membership;
  private readonly servers: ServerWatch;
  private readonly ledger: RoundLedger;
  private readonly contributions = new Map<number, Contribution>();
  private readonly reduced = new Set<number>();
  private readonly losses = new LossCounter();
  private fingerprint: string | undefined;
  private evaluation: Evaluation | undefined;
  private membershipChanged = false;
  round = 0;
  view = 1;
  term = 1;

  constructor(private readonly options: CoordinatorOptions) {
    const { servers, serverDeadlineMs = 10_000, serversDeadlineMs = 30_000, schedule, journal } = options;
    this.members = new Membership(options.replicas, options.now);
    this.servers = new ServerWatch(servers, { silentMs: serverDeadlineMs, completeMs: serversDeadlineMs }, options.now);
    this.ledger = new RoundLedger(schedule, journal, options.now);
  }

  get trainedExamples(): number {
    return this.ledger.trainedExamples;
  }

  get trainingMs(): number {
    return this.ledger.trainingMs;
  }

  numbers(): FrameNumbers {
    return { attempt: this.options.attempt, term: this.term, view: this.view, round: this.round };
  }

  get phase(): 'waiting' | 'training' | 'evaluating' | 'finished' {
    if (this.table.state === 'OVER') return 'finished';
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
    this.sendView(connection);
    this.begin();
  }

  serverLost(index: number, why: string): void {
    if (this.table.state === 'OVER' || !this.servers.remove(index)) return;
    this.over('serverLost', 'failed', `parameter server ${index} was lost in round ${this.round}: ${why}`);
  }

  serverMessage(index: number, message: Message): void {
    if (this.table.state === 'OVER' || !this.servers.heard(index) || message.type === 'heartbeat') return;
    if (message.type === 'reduced') this.onReduced(index, message.round);
    else if (message.type === 'member-link') this.onMemberLink(index, message);
    else throw new ProtocolError('BAD_MESSAGE', `a server does not send ${message.type} to the coordinator`);
  }

  // ---- members ----

  /** Admits a worker, or takes back one that was away. @throws ProtocolError RUN_OVER, SEAT_TAKEN, FINGERPRINT_MISMATCH */
  memberJoined(hello: MessageOf<'hello'>, connection: Connection): void {
    if (this.table.state === 'OVER') throw new ProtocolError('RUN_OVER');
    const holder = this.members.holderOf(hello.seat);
    if (holder && (holder.id !== hello.id || hello.n < holder.n)) {
      this.table.take('seatTaken');
      throw new ProtocolError('SEAT_TAKEN', `seat ${hello.seat} is held by ${holder.id}`);
    }
    this.fingerprint ??= hello.fingerprint;
    if (this.fingerprint !== hello.fingerprint) {
      throw new ProtocolError('FINGERPRINT_MISMATCH', `the run is pinned to ${this.fingerprint}, this worker has ${hello.fingerprint}`);
    }
    this.table.take('join');
    const previous = this.members.get(hello.id);
    if (previous?.connection.isOpen && previous.connection !== connection) previous.connection.close();
    this.members.add(hello, connection);
    if (previous) this.memberEvent('worker.back', hello, 'is back');
    else this.memberEvent('worker.joined', hello, 'joined');
    this.membershipChanged = true;
    if (this.table.state === 'GATHERING') {
      if (this.servers.isComplete) this.coverNow();
      this.begin();
    }
    // The newcomer learns the present view even when nothing was given to it.
    this.sendView(connection);
    // What was sent over an earlier connection, or came back over it, may be lost with it.
    this.evaluation?.withdraw(hello.id, this.members.live(), this.sendBlocks);
  }

  memberClosed(id: string, connection: Connection, why: string): void {
    const member = this.members.get(id);
    if (!member || member.connection !== connection || this.table.state === 'OVER') return;
    member.up = false;
    if (member.leaving !== undefined) return this.remove(member, 'worker.left', member.leaving);
    this.goAway(member, why);
  }

  memberMessage(id: string, message: Message): void {
    const member = this.members.get(id);
    if (!member || this.table.state === 'OVER') return;
    const now = this.options.now();
    member.lastHeardMs = now;
    switch (message.type) {
      case 'heartbeat':
        if (message.progress !== member.progress) {
          member.progress = message.progress;
          member.lastProgressMs = now;
        }
        return;
      case 'contribution':
        return this.onContribution(member, message);
      case 'evaluated':
        return this.onEvaluated(message);
      case 'leave':
        return this.onLeave(member, message.reason);
      case 'failed':
        return this.lose(member, `${message.code}: ${message.message}`, 'NOT_A_MEMBER');
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
    const now = this.options.now();
    const silent = this.servers.silent();
    if (silent) return this.serverLost(silent.index, `nothing heard for ${silent.silentMs} ms`);
    if (this.servers.isLate) return this.fail(`waited too long for ${this.waitingFor()}`);
    for (const member of this.members.all()) {
      if (member.awaySinceMs !== undefined) {
        if (now - member.awaySinceMs > (this.options.awayMs ?? 3000))
          this.lose(member, 'its socket closed and it did not come back', 'SILENT_PEER');
      } else if (now - member.lastHeardMs > (this.options.heartbeatDeadlineMs ?? 3000)) {
        this.lose(member, `nothing heard for ${Math.round(now - member.lastHeardMs)} ms`, 'SILENT_PEER');
      } else if (
        this.owes(member) &&
        now - Math.max(member.lastProgressMs, this.ledger.lastCommitMs) > (this.options.stepDeadlineMs ?? 60_000)
      ) {
        this.lose(member, 'its compute thread makes no progress', 'NOT_A_MEMBER');
      }
      if (this.isOver()) return;
    }
  }

  /** Tells the servers that the coordinator lives; call it every second. */
  heartbeat(): void {
    this.servers.send({ type: 'heartbeat', progress: this.round }, this.numbers());
  }

  // ---- outcomes ----

  weightsCollected(data: Record<string, unknown>): void {
    if (this.table.state === 'OVER') return;
    this.event('run.finished', `finished after ${this.round} rounds`, data);
    this.over('collected', 'finished', 'the run is finished');
  }

  cancel(): void {
    if (this.table.state === 'OVER') return;
    this.event('run.cancelled', `cancelled in round ${this.round}`, { round: this.round });
    this.over('cancel', 'cancelled', 'the run was cancelled');
  }

  fail(message: string): void {
    if (this.table.state === 'OVER') return;
    this.over('fail', 'failed', message);
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
    this.event(
      'training.started',
      `training started with ${this.members.live().length} worker(s), ${this.options.servers} server(s), ${this.options.replicas} replicas`,
      {
        workers: this.members.live().length,
        servers: this.options.servers,
        replicas: this.options.replicas,
        totalRounds: this.options.schedule.totalRounds,
        fingerprint: this.fingerprint ?? '',
      },
    );
  }

  /** In the middle of a round: gives replicas without a live holder to the live members, in a new view. */
  private coverNow(): void {
    const assignment = this.members.cover();
    if (!assignment) return;
    this.members.assign(assignment);
    this.view++;
    const message: Message = { type: 'view', view: this.view, term: this.term, round: this.round, members: this.members.list() };
    this.servers.send(message, this.numbers());
    this.members.send(message, this.numbers());
  }

  private sendView(connection: Connection): void {
    connection.sendMessage(
      { type: 'view', view: this.view, term: this.term, round: this.round, members: this.members.list() },
      this.numbers(),
    );
  }

  /** Hands blocks of the evaluation to a member, which has its whole step deadline for them. */
  private readonly sendBlocks = (id: string, message: Message): void => {
    const member = this.members.get(id)!;
    member.lastProgressMs = this.options.now();
    member.connection.sendMessage(message, this.numbers());
  };

  private onMemberLink(index: number, message: MessageOf<'member-link'>): void {
    const member = this.members.get(message.id);
    if (!member) return;
    if (message.up) {
      member.brokenShards.delete(index);
      if (member.brokenShards.size === 0 && member.up && member.awaySinceMs !== undefined) {
        member.awaySinceMs = undefined;
        this.membershipChanged = true;
        this.memberEvent('worker.back', member, 'is back');
        this.coverNow();
        this.evaluation?.offer(this.members.live(), this.sendBlocks);
      }
    } else {
      member.brokenShards.add(index);
      this.goAway(member, `its socket to parameter server ${index} closed`);
    }
  }

  private goAway(member: Member, why: string): void {
    if (member.awaySinceMs !== undefined) return;
    this.table.take('away');
    member.awaySinceMs = this.options.now();
    this.membershipChanged = true;
    this.memberEvent('worker.away', member, 'is away', why);
    if (this.table.state === 'GATHERING') {
      member.owed = { round: this.round, replicas: member.replicas.filter((replica) => !this.contributions.has(replica)) };
      this.coverNow();
    } else this.evaluation?.withdraw(member.id, this.members.live(), this.sendBlocks);
  }

  /** @param code tells the worker whether it may come back at once (SILENT_PEER) or has to give up its seat */
  private lose(member: Member, why: string, code: DataPlaneErrorCode): void {
    this.goAway(member, why);
    this.table.take('lost');
    this.remove(member, 'worker.lost', why);
    if (member.connection.isOpen) member.connection.close(new ProtocolError(code, why));
    this.countLosses(member);
  }

  private remove(member: Member, type: 'worker.lost' | 'worker.left', why: string): void {
    if (!this.members.remove(member.id)) return;
    this.membershipChanged = true;
    this.memberEvent(type, member, type === 'worker.lost' ? 'was lost' : 'left', why);
    if (this.table.state === 'GATHERING') this.coverNow();
    else this.evaluation?.withdraw(member.id, this.members.live(), this.sendBlocks);
  }

  private countLosses({ id, host, owed }: Member): void {
    if (owed?.round !== this.round || this.table.state !== 'GATHERING') return;
    const poisoned = this.losses.count(owed.replicas, host, this.options.now());
    if (poisoned === undefined) return;
    this.over(
      'lost',
      'failed',
      `poison round: replica ${poisoned} of round ${this.round} has lost its worker ${MAX_LOSSES} times; the last one was ${id}`,
    );
  }

  private onLeave(member: Member, reason: string): void {
    this.table.take('leave');
    member.leaving = reason;
    this.membershipChanged = true;
    if (this.table.state === 'GATHERING' && member.replicas.length > 0 && this.waitingFor() === null) return;
    if (this.table.state === 'EVALUATING' && this.evaluation?.owes(member.id)) return;
    this.letGo(member);
  }

  private letGo(member: Member): void {
    member.connection.sendMessage({ type: 'end', outcome: 'finished', message: 'you have left the run' }, this.numbers());
    this.remove(member, 'worker.left', member.leaving ?? 'left');
  }

  private onContribution(member: Member, message: MessageOf<'contribution'>): void {
    if (this.table.state !== 'GATHERING' || message.round !== this.round || message.replica >= this.options.replicas)
      return this.table.take('contributionStale');
    const expected = this.options.schedule.replicaExamples(this.round, message.replica);
    if (message.examples !== expected) {
      return this.lose(
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

  private tryCommit(): void {
    if (this.reduced.size < this.options.servers || this.contributions.size < this.options.replicas) return;
    const last = this.round + 1 === this.options.schedule.totalRounds;
    // In the order of the replicas, whoever came first: sums of floats depend on it.
    const inOrder = Array.from({ length: this.options.replicas }, (_, replica) => this.contributions.get(replica)!);
    this.ledger.commit(this.round, inOrder);
    const committed = this.round;
    this.contributions.clear();
    this.reduced.clear();
    this.losses.clear();
    this.round++;
    const leaving = this.members.all().filter((m) => m.leaving !== undefined && m.up);
    const members = this.rebalance(leaving);
    const message: Message = { type: 'commit', round: committed, view: this.view, term: this.term, ...(members ? { members } : {}) };
    this.table.take('commit');
    this.servers.send(message, this.numbers());
    this.members.send(message, this.numbers());
    if (last) this.startEvaluation();
    for (const member of leaving) if (!last || !this.evaluation?.owes(member.id)) this.letGo(member);
  }

  /** At a commit: balanced blocks over everybody who stays. Returns the members when the view has changed. */
  private rebalance(leaving: readonly Member[]): Members | undefined {
    if (!this.membershipChanged) return undefined;
    this.membershipChanged = false;
    const staying = this.members.live().filter((member) => !leaving.includes(member));
    const assignment = this.members.rebalance(staying);
    if (!assignment) return undefined;
    this.members.assign(assignment);
    this.view++;
    this.event(
      'view.changed',
      `view ${this.view}: ${staying.map((m) => `${m.id} has [${m.replicas.join(' ')}]`).join(', ') || 'no members'}`,
      {
        view: this.view,
        round: this.round,
        members: this.members.list(),
      },
    );
    return this.members.list();
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
    for (const member of this.members.all()) if (member.leaving !== undefined && !this.evaluation.owes(member.id)) this.letGo(member);
    if (result) this.startCollecting(result);
  }

  private startCollecting(result: EvaluationResult): void {
    this.table.take(this.table.state === 'EVALUATING' ? 'evaluated' : 'commit', 'COLLECTING');
    this.evaluation = undefined;
    this.options.collectWeights(result);
  }

  private over(
    row: 'collected' | 'cancel' | 'serverLost' | 'fail' | 'lost',
    outcome: 'finished' | 'cancelled' | 'failed',
    message: string,
  ): void {
    this.table.take(row, 'OVER');
    if (outcome === 'failed') this.event('run.failed', message, { round: this.round });
    const end: Message = { type: 'end', outcome, message: message.slice(0, 2000) };
    this.members.send(end, this.numbers());
    this.servers.send(end, this.numbers());
    this.options.onOver(outcome, message);
  }

  private memberEvent(type: string, { id, seat }: { readonly id: string; readonly seat: number }, what: string, why?: string): void {
    const message = why === undefined ? `worker ${id} ${what} in round ${this.round}` : `worker ${id} ${what}: ${why}`;
    this.event(type, message, { workerId: id, seat, round: this.round });
  }

  private event(type: string, message: string, data: Record<string, unknown>): void {
    this.options.journal.append({ kind: 'event', type, message: message.slice(0, 2000), data });
  }
}
