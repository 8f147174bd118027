/** State table and options of the shard of modes async and ssp. The machine is in async-shard.ts. */
import type { Region } from '../attempt/regions.js';
import type { ChunkDecoder } from '../transfer/chunk-frames.js';
import type { OwnedChunk } from '../transfer/chunks.js';
import type { CoordinatorPort, ShardHost } from '../attempt/shard-ports.js';
import type { Slices } from '../attempt/shard-work.js';
import type { StateRows } from '../attempt/state-table.js';
import type { WorkItem, ItemPlan } from './done-set.js';

export type AsyncShardState = 'SERVING' | 'OVER';

export const ASYNC_SHARD_ROWS = {
  join: { from: ['SERVING'], event: 'a worker connects', does: 'WELCOME; it fetches what it needs', next: '–' },
  fetch: {
    from: ['SERVING'],
    event: 'FETCH(item)',
    does: 'send all chunks as they are now, once the standby has their updates; note how many updates they contain, and keep them for the delay compensation',
    next: '–',
  },
  fetchHeld: { from: ['SERVING'], event: 'FETCH behind a gradient that is held', does: 'answer it after the gradient', next: '–' },
  chunkKept: {
    from: ['SERVING'],
    event: 'gradient chunk of a work item',
    does: 'keep it until all chunks of the shard are there',
    next: '–',
  },
  chunkStale: {
    from: 'any',
    event: 'gradient chunk of a work item that is done here or was not fetched here, or from a sender that is not a member',
    does: 'drop and count it; if the work item is done, report that again',
    next: '–',
  },
  gradientHeld: {
    from: ['SERVING'],
    event: 'a whole gradient of a newer view',
    does: 'hold it until VIEW has come, and the COMMIT with `checkpoint` that may precede it',
    next: '–',
  },
  applied: {
    from: ['SERVING'],
    event: 'the last chunk of a work item has come',
    does: 'update all chunks, set its mark, forward it to the standby; when that has it tell the coordinator APPLIED with its staleness',
    next: '–',
  },
  drop: {
    from: ['SERVING'],
    event: 'DROP(item)',
    does: 'mark it as done without an update, note that it is dropped, send APPLIED',
    next: '–',
  },
  dropRepeated: {
    from: 'any',
    event: 'DROP of a work item that is done here',
    does: 'note that it is dropped, send APPLIED again',
    next: '–',
  },
  view: {
    from: ['SERVING'],
    event: 'VIEW',
    does: 'take the members; look at held gradients again; if a new coordinator has taken over, take no gradient that was fetched before, and report which work items are done',
    next: '–',
  },
  replica: {
    from: ['SERVING'],
    event: 'standby: the update of a work item is complete, or says that the item is dropped',
    does: 'apply it as the primary has, mark it as done',
    next: '–',
  },
  promoted: {
    from: ['SERVING'],
    event: 'standby: the arbiter has promoted this server',
    does: 'take the new term; release the chunks of an unfinished update; workers fetch again',
    next: '–',
  },
  toldAgain: {
    from: ['SERVING'],
    event: 'TELL-AGAIN, another coordinator, or a broken connection to it',
    does: 'report which work items are done, as soon as the standby has them',
    next: '–',
  },
  checkpoint: {
    from: ['SERVING'],
    event: 'COMMIT(k) with `checkpoint`: every work item before round k+1 is done here, and none beyond',
    does: 'hand all chunks as they are to the checkpoint',
    next: '–',
  },
  pull: { from: ['SERVING'], event: 'PULL of the last generation', does: 'send that chunk to the coordinator', next: '–' },
  end: { from: 'any', event: 'END', does: 'let everything go', next: ['OVER'] },
} as const satisfies StateRows<AsyncShardState>;

/** Work items whose parameters one worker may have fetched, or whose gradient it may be sending: it holds two at a time. */
export const ITEMS_OF_WORKER = 4;

export interface AsyncUpdate {
  readonly item: WorkItem;
  /** Number of the update at this shard, from 1. */
  readonly step: number;
  /** Updates applied here since the parameters of this one were fetched. */
  readonly staleness: number;
  /** The chunk as it was fetched, for the delay compensation. */
  readonly fetched: Region | undefined;
  /** Standby: the gradient comes from the primary, after the delay compensation. */
  readonly isCompensated?: boolean;
}

/** What was done with a work item. */
export interface AppliedItem {
  readonly item: WorkItem;
  readonly staleness: number;
  readonly isDropped: boolean;
}

/** The memory of a shard in modes async and ssp, with the optimizer: ItemUpdates of libs/hosting. */
export interface ItemStore {
  /** Applies one update to one chunk. `paramIn` may be `paramOut`; for the state section `gradient` is what its values change by. It may be written to. */
  update(chunk: OwnedChunk, update: AsyncUpdate, paramIn: Region, paramOut: Region, gradient: Region): void;
}

export interface AsyncShardOptions {
  readonly index: number;
  readonly attempt: number;
  readonly plan: ItemPlan;
  /** Rounds that are done from the start: those of the checkpoint that the attempt begins with. */
  readonly firstRound?: number;
  readonly chunks: readonly OwnedChunk[];
  /** The parameters to begin with, one region per owned chunk, in their order. */
  readonly initial: readonly Region[];
  /** Keep what a worker has fetched until its update is applied (delay compensation). */
  readonly keepsFetched: boolean;
  readonly store: ItemStore;
  readonly host?: Pick<ShardHost, 'checkpointWanted' | 'frameDropped'>;
  readonly decoder?: ChunkDecoder | undefined;
  readonly coordinator: CoordinatorPort;
  /** How work on all chunks shares the event loop; without it, it is done in one go. */
  readonly slices?: Slices | undefined;
}
