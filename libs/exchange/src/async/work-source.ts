/**
 * Says which work item a worker may compute next. Pure: it knows what was issued and what is done, and neither members nor connections.
 *
 *   async   free work items: in order of their numbers, to whoever asks
 *   ssp     clocked work items: replica r's clock is the first round of which its work item is not done; (k, r) goes to the holder of
 *           replica r, once k ≤ (slowest clock) + bound (Ho et al. 2013)
 *
 * A work item whose holder is gone is given back and issued again before new ones. `limit` keeps rounds back: a checkpoint is taken at a round
 * of which everything below is done and nothing above is begun.
 */
import { MAX_ITEMS_AHEAD } from '@paceline/protocol';
import { DoneSet, type WorkItem, type ItemPlan } from './done-set.js';

export interface Wait {
  /** In words, for whoever has to wait. */
  readonly waitsFor: string;
}

export abstract class WorkSource {
  protected limitRounds: number;
  protected readonly returned = new Set<number>();
  /** Rounds of which a work item was issued. */
  issuedRounds: number;

  constructor(
    protected readonly plan: ItemPlan,
    protected readonly marks: DoneSet,
  ) {
    this.limitRounds = plan.totalRounds;
    this.issuedRounds = marks.rounds;
  }

  /** Issues no work item of round `rounds` or later, until the next call. */
  limit(rounds: number): void {
    this.limitRounds = Math.min(rounds, this.plan.totalRounds);
  }

  /** Issues the next work item for a member that holds `replicas`, or says what has to happen first. */
  abstract next(replicas: readonly number[]): WorkItem | Wait;

  /**
   * A coordinator takes over: these are begun, as the shards know. What is not done of all that may be begun is issued before anything new.
   * @param isOut left out: nobody computes it any more
   */
  resume(begun: readonly WorkItem[], isOut: (number: number) => boolean): void {
    for (const item of begun) {
      this.issuedRounds = Math.max(this.issuedRounds, item.round + 1);
      this.pass(item);
    }
    for (const item of this.passed()) {
      const number = this.marks.numberOf(item);
      if (!this.marks.has(item) && !isOut(number)) this.returned.add(number);
    }
  }

  protected tooFar(number: number): Wait | undefined {
    if (number - this.marks.watermark < MAX_ITEMS_AHEAD) return undefined;
    const { replica, round } = this.marks.itemOf(this.marks.watermark);
    return { waitsFor: `the work item of replica ${replica} in round ${round}: ${MAX_ITEMS_AHEAD} work items beyond it are issued` };
  }

  /** It is none that is new. */
  protected abstract pass(item: WorkItem): void;
  /** All that are not new any more, from the first one that is not done. */
  protected abstract passed(): Iterable<WorkItem>;

  /** Its holder is gone. */
  giveBack(item: WorkItem): void {
    if (!this.marks.has(item)) this.returned.add(this.marks.numberOf(item));
  }

  /** It is done (and in the marks). */
  done(item: WorkItem): void {
    this.returned.delete(this.marks.numberOf(item));
  }

  protected issue(number: number): WorkItem {
    const item = this.marks.itemOf(number);
    this.returned.delete(number);
    this.issuedRounds = Math.max(this.issuedRounds, item.round + 1);
    return item;
  }

  /** Why nothing of round `round` is issued at all, or undefined. */
  protected heldBack(round: number): Wait | undefined {
    if (round < this.limitRounds) return undefined;
    if (round >= this.plan.totalRounds) return { waitsFor: 'the last work items of others: all are issued' };
    return { waitsFor: `all work items before round ${this.limitRounds} to be done, for a checkpoint` };
  }
}

export class FreeItems extends WorkSource {
  private cursor: number;

  constructor(plan: ItemPlan, marks: DoneSet) {
    super(plan, marks);
    this.cursor = marks.watermark;
  }

  next(): WorkItem | Wait {
    if (this.returned.size > 0) return this.issue(Math.min(...this.returned));
    while (this.cursor < this.plan.totalRounds * this.plan.replicas && this.marks.has(this.marks.itemOf(this.cursor))) this.cursor++;
    const { round } = this.marks.itemOf(this.cursor);
    const wait = this.heldBack(round);
    if (wait) return wait;
    return this.tooFar(this.cursor) ?? this.issue(this.cursor++);
  }

  protected override pass(item: WorkItem): void {
    this.cursor = Math.max(this.cursor, this.marks.numberOf(item) + 1);
  }

  protected override *passed(): Iterable<WorkItem> {
    for (let number = this.marks.watermark; number < this.cursor; number++) yield this.marks.itemOf(number);
  }
}

export class ClockedItems extends WorkSource {
  private readonly clocks: number[];
  /** First round of each replica that was never issued. */
  private readonly fresh: number[];

  constructor(
    plan: ItemPlan,
    marks: DoneSet,
    private readonly bound: number,
  ) {
    super(plan, marks);
    this.clocks = Array.from({ length: plan.replicas }, () => marks.rounds);
    this.fresh = [...this.clocks];
    for (let replica = 0; replica < plan.replicas; replica++) this.wind(replica);
  }

  /** First round of which the replica's work item is not done. */
  clock(replica: number): number {
    return this.clocks[replica]!;
  }

  next(replicas: readonly number[]): WorkItem | Wait {
    const first = this.first(replicas);
    if (!first) return { waitsFor: 'a replica: there are more workers than replicas' };
    const wait = this.heldBack(first.round);
    if (wait) return wait;
    const slowest = this.slowest();
    const ahead = first.round - this.clocks[slowest]!;
    if (ahead > this.bound) {
      return {
        waitsFor: `replica ${slowest} to catch up: replica ${first.replica} is ${this.bound} round${this.bound === 1 ? '' : 's'} ahead of it, the staleness bound`,
      };
    }
    const number = this.marks.numberOf(first);
    const far = this.tooFar(number);
    if (far) return far;
    if (this.fresh[first.replica] === first.round) this.fresh[first.replica] = first.round + 1;
    return this.issue(number);
  }

  override done(item: WorkItem): void {
    super.done(item);
    this.wind(item.replica);
    if (item.round > this.clocks[this.slowest()]! + this.bound)
      throw new Error(
        `the work item of replica ${item.replica} in round ${item.round} is done beyond the staleness bound of ${this.bound}`,
      );
  }

  protected override pass({ round, replica }: WorkItem): void {
    this.fresh[replica] = Math.max(this.fresh[replica]!, round + 1);
  }

  protected override *passed(): Iterable<WorkItem> {
    for (const [replica, fresh] of this.fresh.entries())
      for (let round = this.clocks[replica]!; round < fresh; round++) yield { round, replica };
  }

  /** The earliest work item that these replicas have to do. */
  private first(replicas: readonly number[]): WorkItem | undefined {
    let best: WorkItem | undefined;
    for (const number of this.returned) {
      const item = this.marks.itemOf(number);
      if (replicas.includes(item.replica) && (!best || item.round < best.round)) best = item;
    }
    for (const replica of replicas) {
      while (this.fresh[replica]! < this.plan.totalRounds && this.marks.has({ round: this.fresh[replica]!, replica }))
        this.fresh[replica] = this.fresh[replica]! + 1;
      if (!best || this.fresh[replica]! < best.round) best = { round: this.fresh[replica]!, replica };
    }
    return best;
  }

  private slowest(): number {
    let slowest = 0;
    this.clocks.forEach((clock, replica) => {
      if (clock < this.clocks[slowest]!) slowest = replica;
    });
    return slowest;
  }

  private wind(replica: number): void {
    while (this.clocks[replica]! < this.plan.totalRounds && this.marks.has({ round: this.clocks[replica]!, replica }))
      this.clocks[replica] = this.clocks[replica]! + 1;
  }
}
