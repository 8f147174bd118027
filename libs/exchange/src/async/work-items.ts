/**
 * The work of modes async and ssp, as their coordinator gives it out and counts it (docs/protocol.md §12): it issues work items (issued-items.ts),
 * counts them when every shard is done with them, and keeps the ledger. Members, deadlines, evaluation, stops and the end are those of every mode
 * (../attempt/coordinator.ts).
 *
 *   ITEMS → a member fetches parameters, computes, pushes to every shard → APPLIED from each shard → the work item is counted
 *
 * Work items of a member that goes are taken back and issued again; a shard applies each work item once, whoever pushes it, so what the first holder
 * has pushed stays.
 *
 * A checkpoint is taken between rounds: nothing of a round that is not begun is issued until all that is begun is counted, and then every
 * shard holds exactly the rounds before the checkpoint, as in mode sync.
 */
import type { Message, MessageOf } from '@paceline/protocol';
import { misfitOf } from '../attempt/measures.js';
import type { CoordinatedMember as Member } from '../attempt/membership.js';
import type { CoordinatorParts } from '../attempt/parts.js';
import { StateTable } from '../attempt/state-table.js';
import type { Owed, WorkPlan } from '../attempt/work-plan.js';
import { ASYNC_COORDINATOR_ROWS, type AsyncCoordinatorOptions, type AsyncCoordinatorState } from './async-coordinator-table.js';
import { AsyncLedger } from './async-ledger.js';
import { DoneSet, ReportedDoneSet, type ItemPlan, type WorkItem } from './done-set.js';
import { LEFT_OUT_BEFORE, begunItem, type IssuedItem } from './issued-item.js';
import { IssuedItems } from './issued-items.js';
import { ItemSuccession, type SucceededItems } from './item-succession.js';

export class WorkItems implements WorkPlan, SucceededItems {
  readonly table = new StateTable<AsyncCoordinatorState, typeof ASYNC_COORDINATOR_ROWS>(
    'async-coordinator',
    ASYNC_COORDINATOR_ROWS,
    'ISSUING',
  );
  marks: DoneSet;
  readonly ledger: AsyncLedger;
  readonly present: IssuedItems;
  readonly succession: ItemSuccession | undefined;
  /** Whoever is given a work item has its whole step deadline from then on. */
  readonly lastWorkMs = 0;
  private readonly itemPlan: ItemPlan;

  constructor(
    private readonly parts: CoordinatorParts,
    private readonly options: AsyncCoordinatorOptions,
  ) {
    const { schedule, replicas, journal, now, firstRound = 0, firstLedger, measured, succession } = options;
    this.itemPlan = {
      replicas,
      totalRounds: schedule.totalRounds,
      replicaExamples: (round: number, replica: number) => schedule.replicaExamples(round, replica),
    };
    this.marks = new DoneSet(this.itemPlan, firstRound);
    this.present = new IssuedItems(parts.attempt, this.table, options, this.itemPlan, this.marks);
    this.ledger = new AsyncLedger(schedule, replicas, this.marks, journal, now, firstLedger, measured);
    if (succession) this.succession = new ItemSuccession(parts.attempt, this, succession);
  }

  waitingFor(): null {
    return null;
  }

  // ---- members ----

  /** Membership has changed: work items of those who are gone come back, in mode ssp replicas are balanced over those who stay. */
  cover(): void {
    const { members } = this.parts.attempt;
    this.present.takeBackFromGone();
    if (this.options.mode === 'ssp') members.rebalance(members.live().filter(({ leaving }) => leaving === undefined));
    this.parts.attempt.nextView();
    this.issue();
  }

  owesWork({ id }: Member): boolean {
    return this.present.heldBy(id).length > 0;
  }

  owed({ id }: Member): Owed | undefined {
    const item = this.present.computedBy(id);
    return item && { round: item.round, replicas: [item.replica] };
  }

  isStillOwed({ round, replicas }: Owed): boolean {
    return !this.marks.has({ round, replica: replicas[0]! });
  }

  replicasOf(member: Member): number[] {
    return this.options.mode === 'ssp' ? member.replicas : this.present.replicasOf(member.id);
  }

  /** Over a new connection it begins anew: what it held is issued again, to it or to another. */
  takeBack(id: string): void {
    this.present.takeBack(id);
  }

  memberBack(_id: string, isAhead: boolean): void {
    if (isAhead) this.parts.attempt.nextView();
  }

  fromMember(member: Member, message: Message): boolean {
    if (message.type === 'contribution') this.contributed(member, message);
    else if (message.type === 'item-non-finite') this.onNonFinite(message);
    else return false;
    return true;
  }

  private contributed(member: Member, message: MessageOf<'contribution'>): void {
    const issued = this.present.find(message);
    if (!issued) return this.table.take('contributionStale');
    const { round, replica } = issued.item;
    const expected = this.options.schedule.replicaExamples(round, replica);
    const misfit = misfitOf(message, this.options.measured, expected, `replica ${replica} of round ${round}`);
    if (misfit !== undefined) return this.parts.attendance.lose(member, misfit, 'NOT_A_MEMBER');
    this.table.take('contribution');
    if (!issued.contribution) this.parts.stall.moved();
    issued.contribution ??= { examples: message.examples, sums: message.sums };
    this.tryCount(issued);
  }

  private onNonFinite(message: MessageOf<'item-non-finite'>): void {
    const issued = this.present.find(message);
    if (!issued || issued.isDropped) return this.table.take('nonFiniteStale');
    this.table.take('nonFinite');
    const { round, replica } = issued.item;
    const what = `the gradient of replica ${replica} in round ${round} has NaN or infinity`;
    if (this.options.nonFinite === 'fail') return this.parts.ending.fail(what, 'NON_FINITE');
    if (this.options.nonFinite === 'rollback') return this.parts.ending.fail(what, 'NON_FINITE_ROLLBACK');
    if (issued.shards.size < this.options.shards.length) return this.leaveOut(issued, what);
    // Its holder before found another gradient, which is in all parameters; what it measured went with it.
    issued.contribution ??= { examples: this.options.schedule.replicaExamples(round, replica), sums: [] };
    this.tryCount(issued);
  }

  private leaveOut(issued: IssuedItem, what: string): void {
    const { round, replica } = issued.item;
    const { attempt } = this.parts;
    const examples = this.options.schedule.replicaExamples(round, replica);
    const appliedAt = [...issued.shards].sort((a, b) => a - b);
    issued.isDropped = true;
    // Counted when all shards know of it: then whoever takes over here finds out.
    issued.shards.clear();
    const partly = appliedAt.length === 0 ? '' : `; parameter server ${appliedAt.join(', ')} has applied that of its holder before`;
    const data = { round, replica, examples, cause: 'NON_FINITE', appliedAt };
    attempt.event('replica.dropped', `${what}: its ${examples} examples are left out${partly}`, data);
    attempt.servers.send({ type: 'drop', round, replica }, attempt.numbers());
  }

  // ---- servers ----

  fromServer(index: number, message: Message): boolean {
    if (message.type !== 'applied') return false;
    this.applied(index, this.present.find(message), message);
    return true;
  }

  private applied(
    index: number,
    issued: IssuedItem | undefined,
    { staleness, isDropped = false }: Pick<MessageOf<'applied'>, 'staleness' | 'isDropped'>,
  ): void {
    // DROP goes to all servers; a work item waits for those that own chunks.
    const isKnown = !issued || issued.shards.has(index) || !this.options.shards.includes(index);
    if (isKnown || (issued.isDropped && !isDropped)) return this.table.take('appliedStale');
    this.table.take('applied');
    this.parts.stall.moved();
    issued.shards.add(index);
    issued.staleness = Math.max(issued.staleness, staleness);
    this.tryCount(issued);
  }

  /** What a server has said of work items may have been lost with a connection, and what it was told to leave out. */
  serverStands(index: number, standing: MessageOf<'standing'>): void {
    if (this.succession?.isAsking) return this.succession.stands(index, standing);
    const { attempt } = this.parts;
    if (!standing.marks || !attempt.isTraining) return;
    const marks = new ReportedDoneSet(standing.marks);
    this.table.take('standing');
    if (this.succession && this.table.state !== 'STOPPING') this.adopt(marks);
    for (const [number, issued] of [...this.present.byNumber]) {
      const isDropped = marks.isLeftOut(number);
      if (isDropped && !issued.isDropped) this.leaveOut(issued, LEFT_OUT_BEFORE);
      if (marks.has(number) && !issued.shards.has(index)) this.applied(index, issued, { staleness: 0, isDropped });
      else if (issued.isDropped && !isDropped)
        attempt.servers.connectionOf(index)?.sendMessage({ type: 'drop', ...issued.item }, attempt.numbers());
    }
  }

  /**
   * The server has taken its shard over since this coordinator asked, and has heard of work items from the coordinator before that nobody here
   * knows of: they are begun, or left out.
   */
  private adopt(marks: ReportedDoneSet): void {
    const { byNumber, source } = this.present;
    const unknown: WorkItem[] = [];
    for (let number = this.marks.watermark; number < marks.end; number++) {
      const item = this.marks.itemOf(number);
      if (!marks.has(number) || item.round >= this.itemPlan.totalRounds || this.marks.has(item) || byNumber.has(number)) continue;
      unknown.push(item);
      const issued = begunItem(item, false);
      byNumber.set(number, issued);
      if (marks.isLeftOut(number)) this.leaveOut(issued, LEFT_OUT_BEFORE);
    }
    if (unknown.length === 0) return;
    source.resume(unknown, (number) => {
      const issued = byNumber.get(number);
      return issued !== undefined && (issued.isDropped || issued.holder !== undefined);
    });
    if (this.table.state === 'DRAINING') source.limit(source.issuedRounds);
    this.issue();
  }

  /** Members are told again what they hold, shards what they have to leave out. */
  askAgain(): void {
    const { attempt } = this.parts;
    attempt.nextView();
    for (const member of attempt.members.live()) this.present.tell(member);
    this.present.dropAgain();
    this.issue();
  }

  // ---- a takeover of this coordinator ----

  /** What is done at all shards counts, whatever of it the coordinator before had heard. */
  takeUp(told: ReadonlyMap<number, ReportedDoneSet>): void {
    const { firstRound = 0, shards, succession } = this.options;
    const { attempt } = this.parts;
    const { ledgerFrom } = succession!;
    const owners = shards.flatMap((index) => told.get(index) ?? []);
    // Each names the last of those that were left out; who names most of them has the shortest rest.
    const leftOutBefore = owners
      .map((each) => each.leftOutBefore)
      .reduce((a, b) => (b.end < a.end ? b : a), { examples: 0, end: Infinity });
    if (leftOutBefore.end > ledgerFrom * this.itemPlan.replicas && leftOutBefore.examples > 0) {
      const why = 'more work items were dropped than a successor is told of, and the ledger of their rounds is not stored';
      return this.parts.ending.fail(`the coordinator is gone, and no successor can continue: ${why}`, 'SERVER_LOST');
    }
    const marks = new DoneSet(this.itemPlan, firstRound);
    const leftOut = new Set(owners.flatMap((each) => [...each.leftOut].filter((number) => number >= leftOutBefore.end)));
    // What all shards have, and nobody has left out, is counted in one go: an attempt may have had millions.
    const common = [...leftOut].reduce((least, number) => Math.min(least, number), Math.min(...owners.map((each) => each.watermark)));
    const lastOfAll = Math.max(marks.watermark, common - this.itemPlan.replicas);
    const begun = Array.from({ length: Math.max(0, common - lastOfAll) }, (_, i) => marks.itemOf(lastOfAll + i)).filter(
      ({ round, replica }) => this.itemPlan.replicaExamples(round, replica) > 0, // nobody has begun what has no rows
    );
    marks.skipTo(common);
    for (let number = marks.watermark, end = Math.max(...owners.map((each) => each.end)); number < end; number++) {
      const item = marks.itemOf(number);
      const doneAt = shards.filter((index) => told.get(index)?.has(number));
      const isDropped = leftOut.has(number);
      if (doneAt.length === 0 || item.round >= this.itemPlan.totalRounds || marks.has(item)) continue;
      begun.push(item);
      const knows = isDropped ? doneAt.filter((index) => told.get(index)!.knowsLeftOut(number)) : doneAt;
      if (knows.length === shards.length) marks.add(item);
      else this.present.byNumber.set(number, begunItem(item, isDropped, knows));
    }
    this.marks = marks;
    attempt.round = this.rounds;
    this.present.resume(marks, begun);
    this.ledger.succeed(marks, leftOut, leftOutBefore, { firstRound, ledgerFrom, allBefore: Math.floor(common / this.itemPlan.replicas) });
    const { round, view, term } = attempt;
    const message = `the standby of parameter server 0 coordinates from round ${round} on, term ${term}`;
    attempt.event('standby.promoted', message, { server: 0, round, view, term });
    this.present.dropAgain();
    this.parts.begin();
    if (this.parts.stops.isAsked) this.drain();
  }

  // ---- counting ----

  private tryCount(issued: IssuedItem): void {
    const { item, shards, contribution, isDropped, staleness, holder } = issued;
    if (shards.size < this.options.shards.length || (!contribution && !isDropped)) return;
    const { attempt, attendance, stops } = this.parts;
    this.marks.add(item);
    attempt.round = this.rounds;
    attendance.counted(item.round, item.replica);
    this.present.counted(issued);
    this.ledger.count(item, contribution && !isDropped ? { ...contribution, staleness } : undefined);
    if (this.marks.isComplete) return this.completed();
    this.table.take('counted');
    if (this.table.state === 'ISSUING' && stops.wantsCheckpoint(attempt.round)) this.stopIssuing();
    this.tryCheckpoint();
    if (attempt.isTraining) this.issue(holder === undefined ? undefined : attempt.members.get(holder));
    this.letLeave();
  }

  /** As many as R updates make one, whichever rounds of the schedule they belong to. */
  private get rounds(): number {
    return Math.floor(this.marks.count / this.options.replicas);
  }

  /** To live members that stay, as long as nothing is waited for. */
  private issue(changed?: Member): void {
    const { attempt } = this.parts;
    const mayIssue = attempt.isTraining && this.ledger.hasBegun && this.parts.waitingFor() === null;
    this.present.issue(mayIssue ? attempt.members.live().filter(({ leaving }) => leaving === undefined) : [], changed);
  }

  private letLeave(): void {
    const { attendance, measurements } = this.parts;
    for (const member of attendance.leaving()) if (!this.owesWork(member) && !measurements.owes(member.id)) attendance.letGo(member);
  }

  private completed(): void {
    const { attempt } = this.parts;
    this.present.source.limit(Infinity);
    this.beginCheckpoint();
    for (const member of attempt.members.all()) this.present.tell(member);
    this.finishTraining();
    this.letLeave();
  }

  finishTraining(): void {
    const { finish } = this.parts;
    this.table.take('counted', finish.firstState);
    finish.begin();
  }

  // ---- checkpoints ----

  drain(): void {
    if (this.succession?.isAsking) return; // it drains when it knows what is begun
    this.stopIssuing();
    this.tryCheckpoint();
  }

  /** From here on no round is begun. */
  private stopIssuing(): void {
    if (this.table.state !== 'ISSUING') return;
    this.table.take('drain', 'DRAINING');
    this.present.source.limit(this.present.source.issuedRounds);
  }

  private tryCheckpoint(): void {
    const { attempt, stops } = this.parts;
    const { byNumber, source } = this.present;
    if (this.table.state !== 'DRAINING' || byNumber.size > 0 || this.marks.count < source.issuedRounds * this.options.replicas) return;
    if (this.marks.isComplete) return;
    // A coordinator that has just taken over, and was told to stop meanwhile, may find nothing done since.
    if (stops.isAsked && attempt.round === stops.newest) return stops.end();
    // A work item issued from here on may reach a shard before COMMIT does; the view that its gradient names makes the shard wait.
    if (this.beginCheckpoint()) attempt.nextView();
    if (stops.isAsked) {
      this.table.take('drained', 'STOPPING');
      return stops.extend();
    }
    this.table.take('drained', 'ISSUING');
    source.limit(Infinity);
  }

  /** The shards hold all rounds before this one and nothing of it: as a COMMIT leaves them in mode sync. False when none is taken. */
  private beginCheckpoint(): boolean {
    const { attempt, stops } = this.parts;
    const { round, view, term } = attempt;
    if (!stops.beginCheckpoint(round, () => this.ledger.checkpoint())) return false;
    attempt.servers.send({ type: 'commit', round: round - 1, view, term, checkpoint: true }, attempt.numbers());
    return true;
  }
}
