/**
 * The coordinator of a synchronous run's attempt (ROUNDS §1, §4, §7): replica assignment, commits and the ledger. Members, deadlines,
 * evaluation, stops and the end are those of every mode (attempt-coordinator.ts).
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
import { Agreement } from './agreement.js';
import type { Owed } from './attendance.js';
import { AttemptCoordinator } from './attempt-coordinator.js';
import { COORDINATOR_ROWS, type CoordinatorOptions, type CoordinatorState } from './coordinator-table.js';
import type { CoordinatedMember as Member } from './membership.js';
import { RoundLedger, type Contribution } from './round-ledger.js';
import { RoundTakeovers } from './round-takeovers.js';
import { some } from './stall.js';
import { StateTable } from './state-table.js';
import type { KnownNumbers } from './takeover.js';
import type { Connection } from '../connection.js';

export class Coordinator extends AttemptCoordinator<CoordinatorOptions> {
  override readonly table = new StateTable<CoordinatorState, typeof COORDINATOR_ROWS>('coordinator', COORDINATOR_ROWS, 'GATHERING');
  override readonly ledger: RoundLedger;
  private readonly contributions = new Map<number, Contribution>();
  private readonly reduced = new Set<number>();
  private readonly agreement: Agreement | undefined;
  private readonly takeovers: RoundTakeovers;
  override round: number;

  constructor(options: CoordinatorOptions) {
    super(options);
    this.ledger = new RoundLedger(options.schedule, options.journal, options.now, options.firstLedger);
    this.round = options.firstRound ?? 0;
    if (options.twoPhase)
      this.agreement = new Agreement(
        options.servers,
        options.replicas,
        options.twoPhase,
        (round, replica) => options.schedule.replicaExamples(round, replica) > 0,
      );
    this.takeovers = new RoundTakeovers(this, options, this.servers, this.members, this.ledger, {
      event: (type, message, data) => this.event(type, message, data),
      viewMessage: () => this.viewMessage(),
      cutLost: (why) => this.stops.underWay !== undefined && this.cutFailed(this.stops.underWay, why),
      reduced: this.reduced,
      decided: (decision) => decision && this.agreement && (this.agreement.decision = decision),
      tryCommit: () => this.tryCommit(),
      moveOn: () => this.moveOn(),
      begin: () => this.begin(),
      nextView: () => this.nextView(),
    });
  }

  protected override waitingForServers(): string | null {
    return this.takeovers.waitingFor();
  }

  protected override isCovered(index: number, why: string): boolean {
    return this.takeovers.covers(index, why);
  }

  override serverJoined(index: number, connection: Connection): void {
    if (!this.takeovers.isAsking) return super.serverJoined(index, connection);
    this.table.take('serverJoins');
    this.servers.add(index, connection);
  }

  /**
   * @param known the round that the worker is in, and its view: after a takeover it may know of a commit, and of views, that no
   *   server has heard of
   * @throws ProtocolError NOT_PRIMARY while this coordinator does not know where the servers stand
   */
  override memberJoined(hello: MessageOf<'hello'>, connection: Connection, known?: KnownNumbers): void {
    const isAhead = known !== undefined && this.takeovers.memberComes(known);
    super.memberJoined(hello, connection);
    if (this.takeovers.isUnderWay) this.takeovers.memberBack(hello.id);
    else if (isAhead) this.sendView();
  }

  override tick(): void {
    this.takeovers.tick();
    super.tick();
  }

  /** In the middle of a round: gives replicas without a live holder to the live members, in a new view. */
  protected override cover(): void {
    if (!this.takeovers.isUnderWay && this.members.cover()) this.nextView();
  }

  private nextView(): void {
    this.view++;
    this.sendView();
  }

  private sendView(): void {
    const message = this.viewMessage();
    this.servers.send(message, this.numbers());
    this.members.send(message, this.numbers());
  }

  protected override comesAgain(): void {
    // Its replicas stay its own: it is told of them in the view, and computes what it has not.
  }

  protected override owesWork(member: Member): boolean {
    return member.replicas.length > 0;
  }

  protected override owed(member: Member): Owed {
    // Also those whose contribution has come: the gradient follows it, and handing that over may be what kills.
    return { round: this.round, replicas: [...member.replicas] };
  }

  protected override isStillOwed({ round }: Owed): boolean {
    return round === this.round;
  }

  protected override lastWorkMs(): number {
    return this.ledger.lastCommitMs;
  }

  protected override askAgain(): void {
    this.nextView();
    for (const said of this.agreement?.said(this.round) ?? []) this.servers.send(said, this.numbers());
  }

  protected override lacks(): string {
    const untold = this.untold();
    if (untold.length > 0) return `the contribution of replica ${some(untold)}, held by ${this.holdersOf(untold)}`;
    const each = this.undone().map((index) => {
      const missing = this.missing.get(index) ?? [];
      const what = missing.length > 0 ? `gather replica ${some(missing)}, held by ${this.holdersOf(missing)}` : 'be done with the round';
      return `parameter server ${index} to ${what}`;
    });
    return each.length > 0 ? some(each, 4) : 'its commit';
  }

  private undone(): number[] {
    return this.servers.indices.filter((index) => !this.reduced.has(index));
  }

  /** In an evaluation any shard may hold back the parameters that are measured. */
  protected override mayAwaitArbiter(): boolean {
    const shards = this.isTraining() ? this.undone() : this.servers.indices;
    return shards.some((index) => this.servers.covered.has(index));
  }

  protected override undelivered(): Member[] {
    const missing = new Set([...this.untold(), ...[...this.missing.values()].flat()]);
    return this.members.live().filter(({ replicas }) => replicas.some((replica) => missing.has(replica)));
  }

  /** Replicas that count, and whose contribution has not come. */
  private untold(): number[] {
    return (this.agreement?.included ?? this.members.replicas).filter((replica) => !this.contributions.has(replica));
  }

  private holdersOf(replicas: readonly number[]): string {
    const holders = this.members.live().filter((member) => member.replicas.some((replica) => replicas.includes(replica)));
    return some(holders.map(({ id }) => `worker ${id}`)) || 'nobody';
  }

  protected override comeToStop(): void {
    // The commit of the present round cuts.
  }

  protected override serverSaid(index: number, message: Message): void {
    switch (message.type) {
      case 'standing':
        if (message.round === this.round) this.missing.set(index, message.missing ?? []);
        return this.takeovers.hear(index, message);
      case 'standby-link':
        return this.takeovers.hear(index, message);
      case 'reduced':
        return this.onReduced(index, message.round);
      case 'non-finite':
        return this.onNonFinite(index, message.round);
      case 'replica-complete':
      case 'scalars':
        return this.onAgreement(index, message);
      default:
        throw new ProtocolError('BAD_MESSAGE', `a server does not send ${message.type} to the coordinator`);
    }
  }

  protected override memberSaid(_: Member, message: Message): void {
    throw new ProtocolError('BAD_MESSAGE', `a worker does not send ${message.type} to the coordinator`);
  }

  protected override finishTraining(): void {
    this.table.take('commit', this.options.evalExamples === 0 ? 'COLLECTING' : 'EVALUATING');
    this.startEvaluation();
  }

  private onNonFinite(index: number, round: number): void {
    if (this.table.state !== 'GATHERING' || round !== this.round) return;
    this.notFinite('nonFinite', `a gradient of round ${round} has NaN or infinity (found by parameter server ${index})`, { server: index });
  }

  private notFinite(row: 'nonFinite' | 'scalars', message: string, data: Record<string, unknown>): void {
    const cause = this.options.nonFinite === 'rollback' ? 'NON_FINITE_ROLLBACK' : 'NON_FINITE';
    this.table.take(row, 'OVER');
    this.conclude('failed', message, { cause, ...data });
  }

  protected override contributed(member: Member, message: MessageOf<'contribution'>): void {
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
    if (!this.contributions.has(message.replica)) {
      this.contributions.set(message.replica, { examples: message.examples, sums: message.sums });
      this.moved();
    }
    this.tryCommit();
  }

  private onReduced(index: number, round: number): void {
    if (this.takeovers.keepsReduced(index, round)) return;
    if (this.table.state !== 'GATHERING' || round !== this.round) return;
    this.table.take('reduced');
    if (!this.reduced.has(index)) this.moved();
    this.reduced.add(index);
    this.tryCommit();
  }

  private onAgreement(index: number, message: MessageOf<'replica-complete'> | MessageOf<'scalars'>): void {
    if (this.table.state !== 'GATHERING' || message.round !== this.round || !this.agreement) return;
    const answer = this.agreement.hear(index, message);
    if (answer === 'non-finite') return this.notFinite('scalars', `a gradient of round ${this.round} has NaN or infinity`, {});
    this.table.take(message.type === 'scalars' ? 'scalars' : 'replicaComplete');
    // What is told again, because the round stands still, is nothing new.
    if (!this.stall.isStalled) this.moved();
    if (answer) this.servers.send(answer, this.numbers());
  }

  private tryCommit(): void {
    // In the order of the replicas, whoever came first: sums of floats depend on it.
    const included = this.agreement ? this.agreement.included : this.members.replicas;
    if (this.reduced.size < this.options.servers || !included?.every((replica) => this.contributions.has(replica))) return;
    const rows = included.map((replica) => this.contributions.get(replica)!);
    if (this.agreement?.decision?.skip) this.ledger.skip(this.round);
    else this.ledger.commit(this.round, rows);
    this.moveOn();
  }

  /** The present round is committed. */
  private moveOn(): void {
    const last = this.round + 1 === this.options.schedule.totalRounds;
    this.agreement?.reset();
    const committed = this.round;
    this.moved();
    this.missing.clear();
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
    if (last) this.finishTraining();
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
}
