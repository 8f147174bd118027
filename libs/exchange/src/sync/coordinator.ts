/**
 * The coordinator of a synchronous run's attempt (docs/protocol.md §9, §10): replica assignment, commits and the ledger. Members, deadlines,
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
 * A generation that is to be validated is measured before its COMMIT (validations.ts). A checkpoint is taken by a COMMIT (checkpoints.ts). A pause, or a server that has to end, waits for the present round, checkpoints with its
 * commit, and ends the attempt when the checkpoint is published.
 *
 * The machine takes its clock as an argument; `tick` must be called every 100 ms or so.
 */
import { ProtocolError, type Members, type Message, type MessageOf } from '@paceline/protocol';
import { Agreement } from './agreement.js';
import type { Owed } from '../attempt/attendance.js';
import { AttemptCoordinator } from '../attempt/attempt-coordinator.js';
import { COORDINATOR_ROWS, type CoordinatorState } from './coordinator-table.js';
import type { CoordinatorOptions } from '../attempt/attempt-options.js';
import type { CoordinatedMember as Member } from '../attempt/membership.js';
import { Evaluation } from '../attempt/evaluation.js';
import type { ValidationPoint } from '../attempt/journal.js';
import { misfitOf, type Measures } from '../attempt/measures.js';
import { RoundLedger } from './round-ledger.js';
import type { Contribution } from '../attempt/ledger-state.js';
import { RoundTakeovers } from './round-takeovers.js';
import { TELL_AGAIN, some } from '../attempt/stall.js';
import { StateTable } from '../attempt/state-table.js';
import type { KnownNumbers } from '../attempt/succession.js';
import type { Connection } from '../connection.js';

export class Coordinator extends AttemptCoordinator<CoordinatorOptions> {
  override readonly table = new StateTable<CoordinatorState, typeof COORDINATOR_ROWS>('coordinator', COORDINATOR_ROWS, 'GATHERING');
  override readonly ledger: RoundLedger;
  private readonly contributions = new Map<number, Contribution>();
  private readonly reduced = new Set<number>();
  private readonly agreement: Agreement | undefined;
  private readonly takeovers: RoundTakeovers;
  /** The present round was committed by the coordinator before, of which a worker has heard: what its contributions said is not known. */
  private isUnseen = false;
  override round: number;

  constructor(options: CoordinatorOptions) {
    super(options);
    this.ledger = new RoundLedger(options.schedule, options.journal, options.now, options.firstLedger, options.measured);
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
      checkpointLost: (why) => this.stops.underWay !== undefined && this.checkpointFailed(this.stops.underWay, why),
      reduced: this.reduced,
      decided: (decision) => decision && this.agreement && (this.agreement.decision = decision),
      tryCommit: () => this.tryCommit(),
      commitUnseen: () => this.commitUnseen(),
      tookCourse: (course) => (this.validations.course = course),
      begin: () => this.begin(),
      nextView: () => this.nextView(),
    });
  }

  protected override waitingForServers(): string | null {
    return this.takeovers.waitingFor() ?? this.waitingForWorkers();
  }

  private waitingForWorkers(): string | null {
    const missing = this.missingWorkers();
    if (missing === 0) return null;
    return `${missing} more worker${missing === 1 ? '' : 's'} to take a step task: it begins with ${this.options.startWorkers}`;
  }

  /** Before the first round: workers that it is to begin with and that are not there yet. */
  private missingWorkers(): number {
    const { startWorkers = 1, firstRound = 0, succession } = this.options;
    if (startWorkers < 2 || this.ledger.hasBegun || firstRound > 0 || succession || this.isOver()) return 0;
    return Math.max(0, startWorkers - this.members.live().length);
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
    if (!this.takeovers.isUnderWay && this.missingWorkers() === 0 && this.members.cover()) this.nextView();
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
    // The commit of the present round takes the checkpoint.
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
    this.table.take('commit', this.afterTraining);
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
    const misfit = misfitOf(message, this.options.measured, expected, `replica ${message.replica} of round ${this.round}`);
    if (misfit !== undefined) return this.attendance.lose(member, misfit, 'NOT_A_MEMBER');
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

  private commitUnseen(): void {
    this.isUnseen = true;
    this.tryCommit();
  }

  private tryCommit(): void {
    if (this.isUnseen) {
      if (!this.isValidated()) return;
      this.isUnseen = false;
      const validation = this.validationPoint();
      this.ledger.commitUnseen(this.round, validation);
      this.moveOn();
      // What members that are ahead have told of the next round while it was measured was none of this one.
      if (validation) this.members.send(TELL_AGAIN, this.numbers());
      return;
    }
    // In the order of the replicas, whoever came first: sums of floats depend on it.
    const included = this.agreement ? this.agreement.included : this.members.replicas;
    if (this.reduced.size < this.options.servers || !included?.every((replica) => this.contributions.has(replica))) return;
    const rows = included.map((replica) => this.contributions.get(replica)!);
    if (!this.isValidated()) return;
    const validation = this.validationPoint();
    if (this.agreement?.decision?.skip) this.ledger.skip(this.round, validation);
    else this.ledger.commit(this.round, rows, validation);
    this.moveOn();
  }

  /** False while the generation that COMMIT(k) would make is measured, or a checkpoint is written that the run may end with. */
  private isValidated(): boolean {
    const generation = this.round + 1;
    const range = this.validations.needs(generation);
    if (range) {
      if (this.evaluation) return false;
      this.table.take('validation');
      this.evaluation = new Evaluation(generation, range, this.options.measured);
      this.evaluation.offer(this.members.live(), this.sendBlocks);
      return false;
    }
    const verdict = this.validations.of(generation)?.verdict;
    const isLast = generation === this.options.schedule.totalRounds || verdict?.stop !== undefined;
    this.awaitsBest = isLast ? this.stops.isBestUnderWay : this.stops.isCrowded && this.validations.willBeBest(generation);
    return !this.awaitsBest;
  }

  protected override validated(values: Measures | undefined): void {
    this.table.take('validated');
    this.stops.validates();
    if (!values) return;
    this.validations.measured(this.evaluation!.generation, values);
    this.evaluation = undefined;
    this.tryCommit();
  }

  private validationPoint(): ValidationPoint | undefined {
    const judged = this.validations.of(this.round + 1);
    return judged && { round: this.round, examples: this.options.heldOutExamples ?? this.options.evalExamples, values: judged.values };
  }

  protected override afterCheckpoint(): void {
    super.afterCheckpoint();
    // The end of the run may have waited for the best checkpoint.
    if (this.table.state === 'GATHERING' && !this.takeovers.isUnderWay) this.tryCommit();
  }

  /** The present round is committed. */
  private moveOn(): void {
    const verdict = this.validations.of(this.round + 1)?.verdict;
    const isLast = this.round + 1 === this.options.schedule.totalRounds || verdict?.stop !== undefined;
    this.agreement?.reset();
    const committed = this.round;
    this.moved();
    this.missing.clear();
    this.contributions.clear();
    this.reduced.clear();
    this.attendance.committed();
    this.round++;
    this.validations.committed(this.round);
    for (const { type, message, data } of verdict?.events ?? []) this.event(type, message, data);
    const leaving = this.attendance.leaving();
    const members = this.rebalance(leaving);
    const message: MessageOf<'commit'> = {
      type: 'commit',
      round: committed,
      view: this.view,
      term: this.term,
      ...(members ? { members } : {}),
    };
    this.table.take('commit');
    const isBest = this.validations.isBest(this.round);
    const { course } = this.validations;
    const checkpoint = this.stops.beginCheckpoint(this.round, () => ({ ...this.ledger.checkpoint(), course, isBest }), { isBest, isLast });
    const decided = { ...(verdict ? { course: verdict.course } : {}), ...(isBest ? { best: true } : {}) };
    this.servers.send({ ...message, ...(checkpoint ? { checkpoint } : {}), ...decided }, this.numbers());
    this.members.send(isLast ? { ...message, last: true } : message, this.numbers());
    if (isLast) this.finishTraining();
    else if (this.stops.isAsked) {
      this.table.take('commit', 'STOPPING');
      this.stops.extend();
    }
    for (const member of leaving) if (!isLast || !this.evaluation?.owes(member.id)) this.attendance.letGo(member);
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
