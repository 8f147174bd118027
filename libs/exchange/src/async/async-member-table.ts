/** The state table of the member of modes async and ssp, and what it is given. The machine is in async-member.ts. */
import type { Outcome } from '../attempt/attempt-options.js';
import type { StateRows } from '../attempt/state-table.js';
import type { MemberChunk } from '../transfer/chunks.js';
import type { WorkItem } from './done-set.js';

export type AsyncMemberState = 'WAITING' | 'FETCHING' | 'COMPUTING' | 'OVER';

export const ASYNC_MEMBER_ROWS = {
  welcome: {
    from: ['WAITING', 'FETCHING', 'COMPUTING'],
    event: 'WELCOME from a server',
    does: 'send contributions and gradients of held work items again; fetch again what was being fetched',
    next: '–',
  },
  items: {
    from: ['WAITING', 'FETCHING', 'COMPUTING'],
    event: 'ITEMS',
    does: 'release the gradients of work items that are not listed; a work item that is not listed is fetched anew if it is issued again; start the first one',
    next: '–',
  },
  takenOver: {
    from: ['WAITING', 'FETCHING', 'COMPUTING'],
    event: 'WELCOME from a server in a higher term',
    does: 'its standby has taken over the shard and knows of no fetch: release gradients, and compute all held work items from parameters that are fetched anew',
    next: '–',
  },
  staleTerm: {
    from: 'any',
    event: 'a message or a chunk of an older term than the shard has',
    does: 'refuse it: STALE_TERM; it comes from a former primary',
    next: '–',
  },
  toldAgain: {
    from: ['WAITING', 'FETCHING', 'COMPUTING'],
    event: 'TELL-AGAIN: nothing moves',
    does: 'send contributions and gradients of held work items again; fetch again what was being fetched',
    next: '–',
  },
  view: { from: ['WAITING', 'FETCHING', 'COMPUTING'], event: 'VIEW', does: 'take its number and members', next: '–' },
  fetch: {
    from: ['WAITING'],
    event: 'a work item is held that is not computed, or blocks of the evaluation split are',
    does: 'FETCH to every server',
    next: ['FETCHING'],
  },
  parameters: { from: ['FETCHING'], event: 'chunk of the work item that is fetched', does: 'keep it', next: '–' },
  complete: { from: ['FETCHING'], event: 'the last chunk has come', does: 'compute', next: ['COMPUTING', 'WAITING'] },
  parametersStale: { from: 'any', event: 'any other chunk', does: 'drop it', next: '–' },
  computed: {
    from: ['COMPUTING'],
    event: 'the compute thread has the gradient',
    does: 'contribution to the coordinator, the gradient to every shard; go on with the next work item',
    next: ['WAITING'],
  },
  obsolete: { from: ['COMPUTING'], event: 'the same, of a work item that was taken back', does: 'let it go', next: ['WAITING'] },
  nonFinite: { from: ['COMPUTING'], event: 'the gradient has NaN or infinity', does: 'report it; send no gradient', next: ['WAITING'] },
  measured: { from: ['COMPUTING'], event: 'measures of a block', does: 'EVALUATED to the coordinator', next: ['WAITING'] },
  detached: {
    from: 'any',
    event: 'the connection to the coordinator closes',
    does: 'the coordinator takes the work items back: release everything',
    next: '–',
  },
  end: { from: 'any', event: 'END or leave granted', does: 'let everything go', next: ['OVER'] },
} as const satisfies StateRows<AsyncMemberState>;

/** What the member asks of the compute thread; answers come through `contribution` and `node`, `nonFinite`, `evaluated`, `failed`. */
export interface AsyncComputePort {
  /** Compute a work item from the parameters that are in the store now. @param next the work item that follows, as far as is known: its rows can be prepared */
  item(item: WorkItem, next: WorkItem | undefined): void;
  /** Measure blocks of the evaluation split with the parameters that are in the store now. */
  evaluate(generation: number, blocks: readonly { from: number; to: number }[]): void;
}

export interface AsyncMemberOptions {
  readonly id: string;
  readonly attempt: number;
  readonly chunks: readonly MemberChunk[];
  readonly servers: number;
  /** The flat vector in shared memory. It is written only while nothing computes. */
  readonly store: Uint8Array;
  readonly compute: AsyncComputePort;
  /** The coordinator ended this member's part. */
  onEnd(outcome: Outcome, message: string): void;
}
