/**
 * Which work items are done: a low-water mark, below which all are, and the set of those beyond it (docs/protocol.md §12.4). The coordinator has one for
 * the run, each shard has one for itself.
 *
 * Work item (k, r) has the number k·R + r. Work items without rows (the ragged last round of an epoch) are nobody's work: the mark passes them by itself.
 */
import { MAX_ITEMS_AHEAD, type DoneSetMessage } from '@paceline/protocol';

/** One replica batch: the rows of `replica` in round `round` of the schedule. */
export interface WorkItem {
  readonly round: number;
  readonly replica: number;
}

/** What the work items of a run are; libs/learning has the schedule. */
export interface ItemPlan {
  readonly replicas: number;
  readonly totalRounds: number;
  /** Rows of a work item; 0 for one that nobody computes. */
  replicaExamples(round: number, replica: number): number;
}

/** Work items that were left out are gone through once for so many. */
const FORGET_EVERY = 4_096;

export class DoneSet {
  private mark: number;
  private readonly beyond = new Set<number>();
  private readonly left = new Set<number>();
  /** Left out longer ago: `end` is the number after the last of them. */
  private readonly leftBefore = { examples: 0, end: 0 };
  private highestLeft = -1;
  private readonly total: number;

  /** @param fromRound rounds that are done from the start: those of the checkpoint */
  constructor(
    private readonly plan: ItemPlan,
    fromRound = 0,
  ) {
    this.mark = fromRound * plan.replicas;
    this.total = plan.totalRounds * plan.replicas;
    this.advance();
  }

  numberOf({ round, replica }: WorkItem): number {
    return round * this.plan.replicas + replica;
  }

  itemOf(number: number): WorkItem {
    return { round: Math.floor(number / this.plan.replicas), replica: number % this.plan.replicas };
  }

  /** Number of the first work item that is not done. */
  get watermark(): number {
    return this.mark;
  }

  /** How many work items are done, in whatever order: the update that comes next is the (count + 1)-th. */
  get count(): number {
    return this.mark + this.beyond.size;
  }

  /** Rounds of which every work item is done. */
  get rounds(): number {
    return Math.floor(this.mark / this.plan.replicas);
  }

  /** Round of the last work item that is done. */
  get highestRound(): number {
    return Math.floor((this.beyond.size > 0 ? this.highest() : this.mark - 1) / this.plan.replicas);
  }

  /** True when every work item before round `rounds` is done and none beyond. Work items without rows at the start of that round count for nothing. */
  isExactly(rounds: number): boolean {
    const from = rounds * this.plan.replicas;
    if (this.mark < from || this.beyond.size > 0) return false;
    for (let number = from; number < this.mark; number++) if (!this.isEmpty(number)) return false;
    return true;
  }

  get isComplete(): boolean {
    return this.mark === this.total;
  }

  has(item: WorkItem): boolean {
    const number = this.numberOf(item);
    return number < this.mark || this.beyond.has(number) || this.isEmpty(number);
  }

  /** @throws Error when it is done already: no work item is applied, or counted, twice */
  add(item: WorkItem): void {
    if (this.has(item)) throw new Error(`work item ${item.replica} of round ${item.round} is done already`);
    this.beyond.add(this.numberOf(item));
    this.advance();
  }

  /** All before it are done. */
  skipTo(number: number): void {
    if (number <= this.mark) return;
    this.mark = Math.min(number, this.total);
    for (const each of this.beyond) if (each < this.mark) this.beyond.delete(each);
    this.advance();
  }

  /** It is to be left out, whether it is done already or not. False when that is known. */
  leaveOut(item: WorkItem): boolean {
    const number = this.numberOf(item);
    if (this.left.has(number) || number < this.leftBefore.end) return false;
    this.left.add(number);
    if (number > this.highestLeft) this.highestLeft = number;
    if (this.left.size > MAX_ITEMS_AHEAD + FORGET_EVERY) this.forgetLeft();
    return true;
  }

  /** Forgets dropped items that are `MAX_ITEMS_AHEAD` behind the highest. Such items are done at every shard, because the coordinator issues none further ahead than that. */
  private forgetLeft(): void {
    const end = this.highestLeft - MAX_ITEMS_AHEAD + 1;
    for (const number of this.left) {
      if (number >= end) continue;
      this.left.delete(number);
      const { round, replica } = this.itemOf(number);
      this.leftBefore.examples += this.plan.replicaExamples(round, replica);
      this.leftBefore.end = Math.max(this.leftBefore.end, number + 1);
    }
  }

  isLeftOut(item: WorkItem): boolean {
    return this.left.has(this.numberOf(item));
  }

  /** The message for the coordinator: the watermark, and a bitmap from the first item that is not done. */
  told(since: number): DoneSetMessage {
    const bits = new Uint8Array(Math.ceil((this.highest() + 1 - this.mark) / 8));
    for (const number of this.beyond) bits[(number - this.mark) >> 3]! |= 1 << ((number - this.mark) & 7);
    this.forgetLeft();
    const beyond = Buffer.from(bits).toString('base64');
    return { watermark: this.mark, beyond, dropped: [...this.left], droppedBefore: { ...this.leftBefore }, since };
  }

  private highest(): number {
    let highest = this.mark;
    for (const number of this.beyond) if (number > highest) highest = number;
    return highest;
  }

  private advance(): void {
    while (this.mark < this.total && (this.beyond.delete(this.mark) || this.isEmpty(this.mark))) this.mark++;
  }

  private isEmpty(number: number): boolean {
    const { round, replica } = this.itemOf(number);
    return this.plan.replicaExamples(round, replica) === 0;
  }
}

/** What a shard has told of its marks, to be asked. */
export class ReportedDoneSet {
  private readonly bits: Uint8Array;
  private readonly dropped: ReadonlySet<number>;

  constructor(private readonly told: DoneSetMessage) {
    this.bits = Buffer.from(told.beyond, 'base64');
    this.dropped = new Set(told.dropped);
  }

  get watermark(): number {
    return this.told.watermark;
  }

  /** No work item from it on is done. */
  get end(): number {
    return this.told.watermark + this.bits.length * 8;
  }

  get leftOut(): Iterable<number> {
    return this.dropped;
  }

  /** Left out, done at every shard, and not named any more. */
  get leftOutBefore(): DoneSetMessage['droppedBefore'] {
    return this.told.droppedBefore;
  }

  has(number: number): boolean {
    const place = number - this.told.watermark;
    return place < 0 || ((this.bits[place >> 3] ?? 0) & (1 << (place & 7))) !== 0;
  }

  isLeftOut(number: number): boolean {
    return this.dropped.has(number);
  }

  /** Whether this shard knows that a work item was dropped. It may know without still listing the item. */
  knowsLeftOut(number: number): boolean {
    return this.isLeftOut(number) || number < this.leftOutBefore.end;
  }
}
