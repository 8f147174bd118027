/**
 * The coordinator of modes async and ssp (docs/protocol.md §12): it issues work items, counts them when every shard is done with them, and
 * keeps the ledger. Members, deadlines, evaluation, stops and the end are those of every mode (attempt-coordinator.ts).
 *
 *   ITEMS → a member fetches parameters, computes, pushes to every shard → APPLIED from each shard → the work item is counted
 *
 * A member holds two work items at most: one that it computes and one that it goes on with while the first is applied. ITEMS always
 * names all that a member holds, so it can be sent again at any time. Work items of a member that goes are taken back and issued again;
 * a shard applies each work item once, whoever pushes it, so what the first holder has pushed stays.
 *
 * A checkpoint is taken between rounds: nothing of a round that is not begun is issued until all that is begun is counted, and then every
 * shard holds exactly the rounds before the checkpoint, as in mode sync.
 */
import { ProtocolError, type Message, type MessageOf } from '@paceline/protocol';
import type { Connection } from '../connection.js';
import type { Owed } from '../attempt/attendance.js';
import { AttemptCoordinator } from '../attempt/attempt-coordinator.js';
import { givenWork, type CoordinatedMember as Member } from '../attempt/membership.js';
import { some } from '../attempt/stall.js';
import { misfitOf } from '../attempt/measures.js';
import { StateTable } from '../attempt/state-table.js';
import type { KnownNumbers, Succession } from '../attempt/succession.js';
import { LEFT_OUT_BEFORE, begunItem, type IssuedItem } from './issued-item.js';
import { DoneSet, type ReportedDoneSet, type WorkItem, type ItemPlan } from './done-set.js';
import { ASYNC_COORDINATOR_ROWS, type AsyncCoordinatorOptions, type AsyncCoordinatorState } from './async-coordinator-table.js';
import { AsyncLedger } from './async-ledger.js';
import { ClockedItems, FreeItems, type WorkSource } from './work-source.js';
import { AsyncTakeovers } from './async-takeovers.js';

/** One to compute, one to go on with. */
const ITEMS_HELD = 2;

export class AsyncCoordinator extends AttemptCoordinator<AsyncCoordinatorOptions> {
  override readonly table = new StateTable<AsyncCoordinatorState, typeof ASYNC_COORDINATOR_ROWS>(
    'async-coordinator',
    ASYNC_COORDINATOR_ROWS,
    'ISSUING',
  );
  marks: DoneSet;
  override readonly ledger: AsyncLedger;
  private readonly plan: ItemPlan;
  private source: WorkSource;
  private readonly takeovers: AsyncTakeovers;
  /** Issued and not counted, by number. */
  private readonly issued = new Map<number, IssuedItem>();
  /** Numbers of work items by member, in the order in which it computes them. */
  private readonly held = new Map<string, readonly number[]>();
  /** What a member without a work item was told to wait for. */
  private readonly waits = new Map<string, string>();

  constructor(options: AsyncCoordinatorOptions) {
    super(options);
    const { schedule, replicas, journal, now, firstRound = 0, firstLedger, measured } = options;
    this.plan = {
      replicas,
      totalRounds: schedule.totalRounds,
      replicaExamples: (round: number, replica: number) => schedule.replicaExamples(round, replica),
    };
    this.marks = new DoneSet(this.plan, firstRound);
    this.source = this.sourceOf(this.marks);
    this.ledger = new AsyncLedger(schedule, replicas, this.marks, journal, now, firstLedger, measured);
    this.takeovers = new AsyncTakeovers(this, options, this.servers, {
      event: (type, message, data) => this.event(type, message, data),
      viewMessage: () => this.viewMessage(),
      checkpointLost: (why) => this.stops.underWay !== undefined && this.checkpointFailed(this.stops.underWay, why),
      begin: () => this.begin(),
      nextView: () => this.nextView(),
      marksTold: (index, marks) => this.marksTold(index, marks),
      succeed: (marks, from) => this.succeed(marks, from),
    });
  }

  private sourceOf(marks: DoneSet): WorkSource {
    const { mode, stalenessBound } = this.options;
    return mode === 'ssp' ? new ClockedItems(this.plan, marks, stalenessBound) : new FreeItems(this.plan, marks);
  }

  /** It has taken the place of another, and does not know yet which work items are done. */
  get isAsking(): boolean {
    return this.takeovers.isAsking;
  }

  protected override waitingForServers(): string | null {
    return this.takeovers.waitingFor();
  }

  protected override isCovered(index: number, why: string): boolean {
    return this.takeovers.covers(index, why);
  }

  override serverJoined(index: number, connection: Connection): void {
    if (this.takeovers.isAsking) {
      this.table.take('serverJoins');
      return this.servers.add(index, connection);
    }
    super.serverJoined(index, connection);
    // While a server was away nothing was issued, and who joined is in no view.
    if (this.servers.isComplete && this.isTraining() && this.ledger.hasBegun) this.cover();
  }

  /** @throws ProtocolError NOT_PRIMARY while this coordinator does not know which work items are done */
  override memberJoined(hello: MessageOf<'hello'>, connection: Connection, known?: KnownNumbers): void {
    const isAhead = known !== undefined && this.takeovers.memberComes(known);
    super.memberJoined(hello, connection);
    if (isAhead) this.nextView();
  }

  protected override viewMessage(): Message {
    const { since } = this.takeovers;
    return { ...super.viewMessage(), ...(since === undefined ? {} : { since }) };
  }

  /** As many as R updates make one, whichever rounds of the schedule they belong to. */
  override get round(): number {
    return Math.floor(this.marks.count / this.options.replicas);
  }

  /** Over a new connection it begins anew: what it held is issued again, to it or to another. */
  protected override comesAgain(id: string): void {
    this.takeBack(id);
  }

  /** Membership has changed: work items of those who are gone come back, in mode ssp replicas are balanced over those who stay. */
  protected override cover(): void {
    const live = this.members.live();
    for (const id of this.held.keys()) if (!live.some((member) => member.id === id)) this.takeBack(id);
    if (this.options.mode === 'ssp') this.members.rebalance(live.filter(({ leaving }) => leaving === undefined));
    this.nextView();
    this.issue();
  }

  private nextView(): void {
    this.view++;
    const view = this.viewMessage();
    this.servers.send(view, this.numbers());
    this.members.send(view, this.numbers());
  }

  protected override owesWork({ id }: Member): boolean {
    return this.heldBy(id).length > 0;
  }

  /** The work item that it computes; the one after it waits for nothing but this. */
  protected override owed({ id }: Member): Owed | undefined {
    const computing = this.heldBy(id).find((number) => !this.issued.get(number)!.contribution);
    if (computing === undefined) return undefined;
    const { round, replica } = this.marks.itemOf(computing);
    return { round, replicas: [replica] };
  }

  protected override isStillOwed({ round, replicas }: Owed): boolean {
    return !this.marks.has({ round, replica: replicas[0]! });
  }

  protected override lastWorkMs(): number {
    return 0; // whoever is given a work item has its whole step deadline from then on
  }

  protected override replicasOf(member: Member): number[] {
    if (this.options.mode === 'ssp') return member.replicas;
    return [...new Set(this.heldBy(member.id).map((number) => this.marks.itemOf(number).replica))];
  }

  protected override contributed(member: Member, message: MessageOf<'contribution'>): void {
    const issued = this.find(message);
    if (!issued) return this.table.take('contributionStale');
    const { round, replica } = issued.item;
    const expected = this.options.schedule.replicaExamples(round, replica);
    const misfit = misfitOf(message, this.options.measured, expected, `replica ${replica} of round ${round}`);
    if (misfit !== undefined) return this.attendance.lose(member, misfit, 'NOT_A_MEMBER');
    this.table.take('contribution');
    if (!issued.contribution) this.moved();
    issued.contribution ??= { examples: message.examples, sums: message.sums };
    this.tryCount(issued);
  }

  protected override memberSaid(_: Member, message: Message): void {
    if (message.type !== 'item-non-finite')
      throw new ProtocolError('BAD_MESSAGE', `a worker does not send ${message.type} to the coordinator`);
    const issued = this.find(message);
    if (!issued || issued.isDropped) return this.table.take('nonFiniteStale');
    this.table.take('nonFinite');
    const { round, replica } = issued.item;
    const what = `the gradient of replica ${replica} in round ${round} has NaN or infinity`;
    if (this.options.nonFinite === 'fail') return this.fail(what, 'NON_FINITE');
    if (this.options.nonFinite === 'rollback') return this.fail(what, 'NON_FINITE_ROLLBACK');
    const examples = this.options.schedule.replicaExamples(round, replica);
    if (issued.shards.size === this.options.shards.length) {
      // Its holder before found another gradient, which is in all parameters; what it measured went with it.
      issued.contribution ??= { examples, sums: [] };
      return this.tryCount(issued);
    }
    this.leaveOut(issued, what);
  }

  private leaveOut(issued: IssuedItem, what: string): void {
    const { round, replica } = issued.item;
    const examples = this.options.schedule.replicaExamples(round, replica);
    const appliedAt = [...issued.shards].sort((a, b) => a - b);
    issued.isDropped = true;
    // Counted when all shards know of it: then whoever takes over here finds out.
    issued.shards.clear();
    const partly = appliedAt.length === 0 ? '' : `; parameter server ${appliedAt.join(', ')} has applied that of its holder before`;
    const data = { round, replica, examples, cause: 'NON_FINITE', appliedAt };
    this.event('replica.dropped', `${what}: its ${examples} examples are left out${partly}`, data);
    this.servers.send({ type: 'drop', round, replica }, this.numbers());
  }

  protected override serverSaid(index: number, message: Message): void {
    if (message.type === 'standing' || message.type === 'standby-link') return this.takeovers.hear(index, message);
    if (message.type !== 'applied') throw new ProtocolError('BAD_MESSAGE', `a server does not send ${message.type} to the coordinator`);
    this.applied(index, this.find(message), message);
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
    this.moved();
    issued.shards.add(index);
    issued.staleness = Math.max(issued.staleness, staleness);
    this.tryCount(issued);
  }

  /** What a server has said of work items may have been lost with a connection, and what it was told to leave out. */
  private marksTold(index: number, marks: ReportedDoneSet): void {
    if (!this.isTraining()) return;
    this.table.take('standing');
    if (this.takeovers.hasSucceeded && this.table.state !== 'STOPPING') this.adopt(marks);
    for (const [number, issued] of [...this.issued]) {
      const isDropped = marks.isLeftOut(number);
      if (isDropped && !issued.isDropped) this.leaveOut(issued, LEFT_OUT_BEFORE);
      if (marks.has(number) && !issued.shards.has(index)) this.applied(index, issued, { staleness: 0, isDropped });
      else if (issued.isDropped && !isDropped)
        this.servers.connectionOf(index)?.sendMessage({ type: 'drop', ...issued.item }, this.numbers());
    }
  }

  /**
   * The server has taken its shard over since this coordinator asked, and has heard of work items from the coordinator before that nobody here
   * knows of: they are begun, or left out.
   */
  private adopt(marks: ReportedDoneSet): void {
    const unknown: WorkItem[] = [];
    for (let number = this.marks.watermark; number < marks.end; number++) {
      const item = this.marks.itemOf(number);
      if (!marks.has(number) || item.round >= this.plan.totalRounds || this.marks.has(item) || this.issued.has(number)) continue;
      unknown.push(item);
      const issued = begunItem(item, false);
      this.issued.set(number, issued);
      if (marks.isLeftOut(number)) this.leaveOut(issued, LEFT_OUT_BEFORE);
    }
    if (unknown.length === 0) return;
    this.source.resume(unknown, (number) => {
      const issued = this.issued.get(number);
      return issued !== undefined && (issued.isDropped || issued.holder !== undefined);
    });
    if (this.table.state === 'DRAINING') this.source.limit(this.source.issuedRounds);
    this.issue();
  }

  /** It takes the place of another: what is done at all shards counts, whatever of it that one had heard. */
  private succeed(told: ReadonlyMap<number, ReportedDoneSet>, { ledgerFrom }: Succession): void {
    const { firstRound = 0, shards } = this.options;
    const owners = shards.flatMap((index) => told.get(index) ?? []);
    // Each names the last of those that were left out; who names most of them has the shortest rest.
    const leftOutBefore = owners
      .map((each) => each.leftOutBefore)
      .reduce((a, b) => (b.end < a.end ? b : a), { examples: 0, end: Infinity });
    if (leftOutBefore.end > ledgerFrom * this.plan.replicas && leftOutBefore.examples > 0) {
      const why =
        'work items were left out whose rounds are not stored in the ledger, more of them than a coordinator that takes over is told of';
      return this.fail(`the coordinator is gone, and nobody can go on in its place: ${why}`, 'SERVER_LOST');
    }
    const marks = new DoneSet(this.plan, firstRound);
    const leftOut = new Set(owners.flatMap((each) => [...each.leftOut].filter((number) => number >= leftOutBefore.end)));
    const begun: WorkItem[] = [];
    for (let number = marks.watermark, end = Math.max(...owners.map((each) => each.end)); number < end; number++) {
      const item = marks.itemOf(number);
      const doneAt = shards.filter((index) => told.get(index)?.has(number));
      const isDropped = leftOut.has(number);
      if (doneAt.length === 0 || item.round >= this.plan.totalRounds || marks.has(item)) continue;
      begun.push(item);
      const knows = isDropped ? doneAt.filter((index) => told.get(index)!.knowsLeftOut(number)) : doneAt;
      if (knows.length === shards.length) marks.add(item);
      else this.issued.set(number, begunItem(item, isDropped, knows));
    }
    this.marks = marks;
    this.source = this.sourceOf(marks);
    this.source.resume(begun, (number) => this.issued.get(number)?.isDropped ?? false);
    this.ledger.succeed(marks, leftOut, leftOutBefore, firstRound, ledgerFrom);
    const { round, view, term } = this;
    const message = `the standby of parameter server 0 coordinates from round ${round} on, term ${term}`;
    this.event('standby.promoted', message, { server: 0, round, view, term });
    for (const { item, isDropped } of this.issued.values()) if (isDropped) this.servers.send({ type: 'drop', ...item }, this.numbers());
    this.begin();
    if (this.stops.isAsked) this.comeToStop();
  }

  /** Members are told again what they hold, shards what they have to leave out. */
  protected override askAgain(): void {
    this.nextView();
    for (const member of this.members.live()) this.tell(member);
    for (const { item, isDropped } of this.issued.values()) if (isDropped) this.servers.send({ type: 'drop', ...item }, this.numbers());
    this.issue();
  }

  /** Any shard may hold back what it has applied. */
  protected override mayAwaitArbiter(): boolean {
    return this.servers.indices.some((index) => this.servers.covered.has(index));
  }

  protected override lacks(): string {
    const each = [...this.issued.values()].map(({ item: { round, replica }, holder, shards, contribution, isDropped }) => {
      const waiting = this.options.shards.filter((index) => !shards.has(index));
      const where = waiting.length > 0 ? ` to be done at parameter server ${some(waiting)}` : ' to be counted';
      const what = contribution || isDropped ? where : `${where}, and its contribution`;
      return `the work item of replica ${replica} in round ${round} (${holder ?? 'nobody'})${what}`;
    });
    return some(each, 4) || 'a work item to be issued';
  }

  protected override undelivered(): Member[] {
    return this.members.live().filter(({ id }) => this.heldBy(id).length > 0);
  }

  protected override comeToStop(): void {
    if (this.isAsking) return; // it drains when it knows what is begun
    this.drain();
    this.tryCheckpoint();
  }

  protected override finishTraining(): void {
    this.table.take('counted', this.options.evalExamples === 0 ? 'COLLECTING' : 'EVALUATING');
    this.startEvaluation();
  }

  private find(item: WorkItem): IssuedItem | undefined {
    return item.replica < this.options.replicas && this.isTraining() ? this.issued.get(this.marks.numberOf(item)) : undefined;
  }

  private heldBy(id: string): readonly number[] {
    return this.held.get(id) ?? [];
  }

  /** The member does not hold them any more, and is told so if it still listens. */
  private takeBack(id: string): void {
    for (const number of this.heldBy(id)) {
      const issued = this.issued.get(number)!;
      issued.holder = undefined;
      this.source.giveBack(issued.item);
    }
    this.held.delete(id);
    this.waits.delete(id);
    const member = this.members.get(id);
    if (member) this.tell(member);
  }

  private tryCount(issued: IssuedItem): void {
    const { item, shards, contribution, isDropped, staleness, holder } = issued;
    if (shards.size < this.options.shards.length || (!contribution && !isDropped)) return;
    const number = this.marks.numberOf(item);
    this.marks.add(item);
    this.source.done(item);
    this.attendance.counted(item.round, item.replica);
    this.issued.delete(number);
    if (holder !== undefined)
      this.held.set(
        holder,
        this.heldBy(holder).filter((other) => other !== number),
      );
    this.ledger.count(item, contribution && !isDropped ? { ...contribution, staleness } : undefined);
    if (this.marks.isComplete) return this.completed();
    this.table.take('counted');
    if (this.table.state === 'ISSUING' && this.stops.wantsCheckpoint(this.round)) this.drain();
    this.tryCheckpoint();
    if (this.isTraining()) this.issue(holder === undefined ? undefined : this.members.get(holder));
    this.letLeave();
  }

  private completed(): void {
    this.source.limit(Infinity);
    if (this.stops.beginCheckpoint(this.round, () => this.ledger.checkpoint())) this.requestCheckpoint();
    for (const member of this.members.all()) this.tell(member);
    this.finishTraining();
    this.letLeave();
  }

  /** From here on no round is begun. */
  private drain(): void {
    if (this.table.state !== 'ISSUING') return;
    this.table.take('drain', 'DRAINING');
    this.source.limit(this.source.issuedRounds);
  }

  private tryCheckpoint(): void {
    const { replicas } = this.options;
    if (this.table.state !== 'DRAINING' || this.issued.size > 0 || this.marks.count < this.source.issuedRounds * replicas) return;
    if (this.marks.isComplete) return;
    // Who has just taken over, and was told to stop meanwhile, may find nothing done since.
    if (this.stops.isAsked && this.round === this.stops.newest) return this.endStopped();
    if (this.stops.beginCheckpoint(this.round, () => this.ledger.checkpoint())) {
      this.requestCheckpoint();
      // A work item issued from here on may reach a shard before COMMIT does; the view that its gradient names makes the shard wait.
      this.nextView();
    }
    if (this.stops.isAsked) {
      this.table.take('drained', 'STOPPING');
      return this.stops.extend();
    }
    this.table.take('drained', 'ISSUING');
    this.source.limit(Infinity);
  }

  /** The shards hold all rounds before this one and nothing of it: as a COMMIT leaves them in mode sync. */
  private requestCheckpoint(): void {
    this.servers.send({ type: 'commit', round: this.round - 1, view: this.view, term: this.term, checkpoint: true }, this.numbers());
  }

  private letLeave(): void {
    for (const member of this.attendance.leaving())
      if (this.heldBy(member.id).length === 0 && !this.evaluation?.owes(member.id)) this.attendance.letGo(member);
  }

  /** Gives every live member its first work item before anybody gets a second. @param changed a member whose work items are not what it knows */
  private issue(changed?: Member): void {
    const told = new Set<Member>(changed ? [changed] : []);
    if (this.isTraining() && this.ledger.hasBegun && this.waitingFor() === null) {
      const live = this.members.live().filter(({ leaving }) => leaving === undefined);
      for (let most = 1; most <= ITEMS_HELD; most++) for (const member of live) if (this.issueUpTo(member, most)) told.add(member);
    }
    for (const member of told) this.tell(member);
  }

  /** True when the member has to be told. */
  private issueUpTo(member: Member, most: number): boolean {
    const held = this.heldBy(member.id);
    if (held.length >= most) return false;
    const next = this.source.next(member.replicas);
    if ('waitsFor' in next) {
      if (held.length > 0 || this.waits.get(member.id) === next.waitsFor) return false;
      this.table.take('wait');
      this.waits.set(member.id, next.waitsFor);
      return true;
    }
    this.waits.delete(member.id);
    if (held.length === 0) givenWork(member, this.options.now());
    const number = this.marks.numberOf(next);
    this.held.set(member.id, [...held, number]);
    const before = this.issued.get(number);
    if (before) this.reissue(before, member);
    else {
      this.table.take('issue');
      this.issued.set(number, {
        item: next,
        holder: member.id,
        shards: new Set<number>(),
        staleness: 0,
        contribution: undefined,
        isDropped: false,
      });
    }
    return true;
  }

  private reissue(issued: IssuedItem, member: Member): void {
    this.table.take('reissue');
    issued.holder = member.id;
    const { round, replica } = issued.item;
    const appliedAt = [...issued.shards].sort((a, b) => a - b);
    const partly = appliedAt.length === 0 ? '' : `; parameter server ${appliedAt.join(', ')} has applied it already`;
    const what = `the work item of replica ${replica} in round ${round} goes to ${member.id}${partly}`;
    this.event('work-item.reissued', what, { round, replica, workerId: member.id, appliedAt });
  }

  /** All that the member holds: what is not named it may let go. */
  private tell(member: Member): void {
    if (!member.up) return;
    const items = this.heldBy(member.id).map((number) => this.marks.itemOf(number));
    const waitsFor = items.length === 0 ? (this.waits.get(member.id)?.slice(0, 300) ?? null) : null;
    member.connection.sendMessage({ type: 'items', items, waitsFor }, this.numbers());
  }
}
