/** A work item that the coordinator has issued and not counted. */
import type { Contribution } from '../attempt/ledger-state.js';
import type { WorkItem } from './done-set.js';

export interface IssuedItem {
  readonly item: WorkItem;
  holder: string | undefined;
  /** Shards that are done with it. */
  readonly shards: Set<number>;
  /** Staleness at the slowest shard. */
  staleness: number;
  contribution: Contribution | undefined;
  isDropped: boolean;
}

/** Why a work item is left out that workers of this coordinator have not called so. */
export const LEFT_OUT_BEFORE = 'the coordinator before this one had begun to drop a gradient';

/** An item that the previous coordinator had issued; no worker computes it now. */
export const begunItem = (item: WorkItem, isDropped: boolean, shards: readonly number[] = []): IssuedItem => ({
  item,
  holder: undefined,
  shards: new Set(shards),
  staleness: 0,
  contribution: undefined,
  isDropped,
});
