/** Workers that may hold a shard, as the api that dispatches sees them over time: who was there lately, and who has had nothing to do for a while. */
import { FEWER_AFTER_MS, type FleetCounts } from './waiting-reason.js';

/** Looks are no further apart while this api dispatches. */
const WATCHED_WITHIN_MS = 5_000;

export class ShardWorkerWatch {
  /** What was seen within the last `FEWER_AFTER_MS`. */
  private lately: readonly { readonly atMs: number; readonly count: number }[] = [];
  /** Since when workers have been seen without work, by their ids. */
  private idleSince: ReadonlyMap<string, number> = new Map();

  look(
    workers: readonly { readonly id: string; readonly isIdle: boolean }[],
    now: number,
  ): Required<Pick<FleetCounts, 'shardWorkers' | 'shardWorkersLately' | 'shardWorkersIdle'>> {
    // Another api may have dispatched meanwhile: nobody knows then what workers did.
    if (now - (this.lately.at(-1)?.atMs ?? -Infinity) > WATCHED_WITHIN_MS) this.idleSince = new Map();
    this.lately = [...this.lately.filter(({ atMs }) => now - atMs <= FEWER_AFTER_MS), { atMs: now, count: workers.length }];
    this.idleSince = new Map(workers.flatMap(({ id, isIdle }) => (isIdle ? [[id, this.idleSince.get(id) ?? now] as const] : [])));
    return {
      shardWorkers: workers.length,
      shardWorkersLately: Math.max(...this.lately.map(({ count }) => count)),
      shardWorkersIdle: [...this.idleSince.values()].filter((since) => now - since >= FEWER_AFTER_MS).length,
    };
  }
}
