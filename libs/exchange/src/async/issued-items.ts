/**
 * The work items that are issued and not counted, and who holds them. A member holds two at most: one that it computes and one that it goes on with
 * while the first is applied. ITEMS always names all that a member holds, so it can be sent again at any time.
 */
import type { Attempt } from '../attempt/attempt.js';
import { givenWork, type CoordinatedMember as Member } from '../attempt/membership.js';
import { some } from '../attempt/stall.js';
import type { StateTable } from '../attempt/state-table.js';
import type { PresentWork } from '../attempt/work-plan.js';
import type { ASYNC_COORDINATOR_ROWS, AsyncCoordinatorOptions, AsyncCoordinatorState } from './async-coordinator-table.js';
import type { DoneSet, ItemPlan, WorkItem } from './done-set.js';
import type { IssuedItem } from './issued-item.js';
import { ClockedItems, FreeItems, type WorkSource } from './work-source.js';

/** One to compute, one to go on with. */
const ITEMS_HELD = 2;

export class IssuedItems implements PresentWork {
  /** By number. */
  readonly byNumber = new Map<number, IssuedItem>();
  source: WorkSource;
  /** Numbers of work items by member, in the order in which it computes them. */
  private readonly held = new Map<string, readonly number[]>();
  /** What a member without a work item was told to wait for. */
  private readonly waits = new Map<string, string>();

  constructor(
    private readonly attempt: Attempt,
    private readonly table: StateTable<AsyncCoordinatorState, typeof ASYNC_COORDINATOR_ROWS>,
    private readonly options: AsyncCoordinatorOptions,
    private readonly plan: ItemPlan,
    private marks: DoneSet,
  ) {
    this.source = this.newSource();
  }

  private newSource(): WorkSource {
    const { mode, stalenessBound } = this.options;
    return mode === 'ssp' ? new ClockedItems(this.plan, this.marks, stalenessBound) : new FreeItems(this.plan, this.marks);
  }

  /** A coordinator takes over. @param begun work items that the one before has issued; those that are not in the marks are here */
  resume(marks: DoneSet, begun: readonly WorkItem[]): void {
    this.marks = marks;
    this.source = this.newSource();
    this.source.resume(begun, (number) => this.byNumber.get(number)?.isDropped ?? false);
  }

  find(item: WorkItem): IssuedItem | undefined {
    return item.replica < this.options.replicas && this.attempt.isTraining ? this.byNumber.get(this.marks.numberOf(item)) : undefined;
  }

  heldBy(id: string): readonly number[] {
    return this.held.get(id) ?? [];
  }

  /** The work item that the member computes; the one after it waits for nothing but this. */
  computedBy(id: string): WorkItem | undefined {
    return this.heldBy(id)
      .map((number) => this.byNumber.get(number)!)
      .find(({ contribution }) => !contribution)?.item;
  }

  replicasOf(id: string): number[] {
    return [...new Set(this.heldBy(id).map((number) => this.marks.itemOf(number).replica))];
  }

  /** The members that are not live hold nothing any more. */
  takeBackFromGone(): void {
    const live = new Set(this.attempt.members.live().map(({ id }) => id));
    for (const id of this.held.keys()) if (!live.has(id)) this.takeBack(id);
  }

  /** The member does not hold them any more, and is told so if it still listens. */
  takeBack(id: string): void {
    for (const number of this.heldBy(id)) {
      const issued = this.byNumber.get(number)!;
      issued.holder = undefined;
      this.source.giveBack(issued.item);
    }
    this.held.delete(id);
    this.waits.delete(id);
    const member = this.attempt.members.get(id);
    if (member) this.tell(member);
  }

  /** It is counted (and in the marks). */
  counted({ item, holder }: IssuedItem): void {
    const number = this.marks.numberOf(item);
    this.source.done(item);
    this.byNumber.delete(number);
    if (holder === undefined) return;
    this.held.set(
      holder,
      this.heldBy(holder).filter((other) => other !== number),
    );
  }

  /** Gives every one of `members` its first work item before anybody gets a second. @param changed a member whose work items are not what it knows */
  issue(members: readonly Member[], changed?: Member): void {
    const told = new Set<Member>(changed ? [changed] : []);
    for (let most = 1; most <= ITEMS_HELD; most++) for (const member of members) if (this.issueUpTo(member, most)) told.add(member);
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
    const before = this.byNumber.get(number);
    if (before) this.reissue(before, member);
    else {
      this.table.take('issue');
      const shards = new Set<number>();
      this.byNumber.set(number, { item: next, holder: member.id, shards, staleness: 0, contribution: undefined, isDropped: false });
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
    this.attempt.event('work-item.reissued', what, { round, replica, workerId: member.id, appliedAt });
  }

  /** All that the member holds: what is not named it may let go. */
  tell(member: Member): void {
    if (!member.up) return;
    const items = this.heldBy(member.id).map((number) => this.marks.itemOf(number));
    const waitsFor = items.length === 0 ? (this.waits.get(member.id)?.slice(0, 300) ?? null) : null;
    member.connection.sendMessage({ type: 'items', items, waitsFor }, this.attempt.numbers());
  }

  /** Tells the servers again what they have to leave out. */
  dropAgain(): void {
    const { servers } = this.attempt;
    for (const { item, isDropped } of this.byNumber.values())
      if (isDropped) servers.send({ type: 'drop', ...item }, this.attempt.numbers());
  }

  lacks(): string {
    const each = [...this.byNumber.values()].map(({ item: { round, replica }, holder, shards, contribution, isDropped }) => {
      const waiting = this.options.shards.filter((index) => !shards.has(index));
      const where = waiting.length > 0 ? ` to be done at parameter server ${some(waiting)}` : ' to be counted';
      const what = contribution || isDropped ? where : `${where}, and its contribution`;
      return `the work item of replica ${replica} in round ${round} (${holder ?? 'nobody'})${what}`;
    });
    return some(each, 4) || 'a work item to be issued';
  }

  undelivered(): Member[] {
    return this.attempt.members.live().filter(({ id }) => this.heldBy(id).length > 0);
  }

  /** Any shard may hold back what it has applied. */
  mayAwaitArbiter(): boolean {
    const { servers } = this.attempt;
    return servers.indices.some((index) => servers.covered.has(index));
  }
}
