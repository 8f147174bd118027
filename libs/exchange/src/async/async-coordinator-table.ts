/** State table and options of the coordinator of modes async and ssp. The machine is in work-items.ts. */
import type { AttemptOptions } from '../attempt/attempt-options.js';
import type { StateRows } from '../attempt/state-table.js';

export type AsyncCoordinatorState = 'ISSUING' | 'DRAINING' | 'EVALUATING' | 'COLLECTING' | 'STOPPING' | 'OVER';

const TRAINING = ['ISSUING', 'DRAINING'] as const;
const LIVE = [...TRAINING, 'EVALUATING', 'COLLECTING', 'STOPPING'] as const;

export const ASYNC_COORDINATOR_ROWS = {
  serverJoins: { from: LIVE, event: 'a server connects', does: 'count it; training starts when all have connected', next: '–' },
  serverLost: {
    from: LIVE,
    event: "a server's connection closes, or nothing is heard from it for 10 s",
    does: 'end the attempt: FAILED, naming the server and the round',
    next: ['OVER'],
  },
  serverAway: {
    from: LIVE,
    event: 'a server with a standby is lost',
    does: 'wait for the standby to take over; give up a checkpoint that was being written; count only what the lost server has reported as APPLIED',
    next: '–',
  },
  serverTakenOver: {
    from: LIVE,
    event: 'a standby joins in a higher term, replacing its primary',
    does: 'note the work items that it is done with; ask it again for weights that are being collected',
    next: '–',
  },
  standbyLink: {
    from: 'any',
    event: "a server's standby follows, or was dropped",
    does: 'journal it; from here on the loss of this server is covered, or not',
    next: '–',
  },
  succeeded: {
    from: ['ISSUING'],
    event: 'promoted: all servers have reported which work items they are done with, after the VIEW with `since`',
    does: 'count work items that are done at all shards; write the ledger rows that are not stored; send DROP again for work items that any of them was told to drop; issue the rest again',
    next: '–',
  },
  standing: {
    from: LIVE,
    event: 'a server reports again which work items it is done with',
    does: 'note what is new; send DROP again for work items that it has not dropped; work items that only the previous coordinator issued count as begun',
    next: '–',
  },
  join: {
    from: LIVE,
    event: 'a worker connects',
    does: 'take it into the members (new view); in mode ssp replicas are balanced anew; issue work items to it',
    next: '–',
  },
  seatTaken: { from: 'any', event: 'a worker connects for a seat that another holds', does: 'refuse it: SEAT_TAKEN', next: '–' },
  away: {
    from: LIVE,
    event: "a member's socket to the coordinator or to a shard closes",
    does: 'take its work items back, new view, in mode ssp its replicas (and their clocks) go to the others; its seat is kept for 3 s',
    next: '–',
  },
  lost: {
    from: LIVE,
    event: 'a member is away, silent or without progress past its deadline',
    does: 'free its seat; count a loss for the work item that it computed; the fifth loss of one work item is a poison round: FAILED',
    next: ['OVER'],
  },
  leave: {
    from: LIVE,
    event: 'a member asks to leave',
    does: 'issue nothing more to it; release it when it holds no work item',
    next: '–',
  },
  issue: {
    from: TRAINING,
    event: 'a live member holds fewer than two work items, and the mode has one for it',
    does: 'ITEMS to the member, with all that it holds',
    next: '–',
  },
  reissue: {
    from: TRAINING,
    event: 'a work item that was taken back is issued to another',
    does: 'journal it, with the shards that have it already; they apply nothing twice',
    next: '–',
  },
  wait: {
    from: TRAINING,
    event: 'a member holds no work item and there is none for it: the staleness bound, a checkpoint, the end',
    does: 'tell it what it waits for',
    next: '–',
  },
  contribution: {
    from: TRAINING,
    event: 'contribution of a work item that is not counted',
    does: 'check its example count against the schedule; keep the first',
    next: '–',
  },
  contributionStale: { from: 'any', event: 'contribution of a work item that is counted, or not issued', does: 'drop it', next: '–' },
  applied: { from: TRAINING, event: 'a shard is done with a work item', does: 'note the shard and the staleness', next: '–' },
  appliedStale: { from: 'any', event: 'a shard is done with a work item that is counted, or has no chunks', does: 'nothing', next: '–' },
  nonFinite: {
    from: TRAINING,
    event: 'a gradient has NaN or infinity',
    does: 'policy skip: DROP to all shards, and when all know of it the rows are logged as dropped (unless all shards have another gradient of it); fail and rollback: FAILED with that cause',
    next: '–',
  },
  nonFiniteStale: { from: 'any', event: 'a gradient has NaN or infinity, of a work item that is counted', does: 'nothing', next: '–' },
  counted: {
    from: TRAINING,
    event: 'all shards are done with a work item and its contribution is in',
    does: 'count it: done set, ledger, clocks; issue; when it was the last one take a checkpoint, if the run keeps any, and evaluate',
    next: ['EVALUATING', 'COLLECTING'],
  },
  drain: {
    from: ['ISSUING'],
    event: 'a checkpoint is due, or a stop was asked for',
    does: 'issue no work item of a round that is not begun; what is begun is finished',
    next: ['DRAINING'],
  },
  drained: {
    from: ['DRAINING'],
    event: 'all work items of all begun rounds are counted',
    does: 'COMMIT with `checkpoint` to the shards, which now all hold the same rounds and nothing beyond; go on in a new view, or stop',
    next: ['ISSUING', 'STOPPING'],
  },
  partWritten: {
    from: 'any',
    event: 'a shard has written its part of a checkpoint',
    does: 'when all have, publish the manifest',
    next: '–',
  },
  checkpointSettled: {
    from: LIVE,
    event: 'the checkpoint is published, or has failed, or is past its deadline',
    does: 'journal it; a run that waited for it to stop is over',
    next: '–',
  },
  stop: {
    from: TRAINING,
    event: 'the control plane wants a pause, or a server was told to end',
    does: 'drain and take a last checkpoint; past the deadline stop on the one before and say how many rounds will be redone',
    next: '–',
  },
  stopped: {
    from: [...TRAINING, 'STOPPING'],
    event: 'the last checkpoint is there, or not there within the deadline, or none is needed',
    does: 'END to all: paused, or failed with the cause STOPPED',
    next: ['OVER'],
  },
  evaluated: {
    from: ['EVALUATING'],
    event: 'measures of a block of the evaluation split',
    does: 'add them in block order; when all are there collect the weights',
    next: ['COLLECTING'],
  },
  collected: {
    from: ['COLLECTING'],
    event: 'the weights are collected and written',
    does: 'END to all; the run is finished',
    next: ['OVER'],
  },
  askedAgain: {
    from: [...TRAINING, 'EVALUATING'],
    event: 'for 5 s nobody works and nothing arrives, although everybody is connected and heard',
    does: 'journal what is missing; new view; TELL-AGAIN to all: members send and fetch again; DROP is sent again; blocks of the evaluation are given out anew',
    next: '–',
  },
  undelivered: {
    from: [...TRAINING, 'EVALUATING'],
    event: 'this has had no effect for 7 s',
    does: 'lose the members whose part is missing: they come back over new connections, and others do their work',
    next: '–',
  },
  stalled: {
    from: [...TRAINING, 'EVALUATING'],
    event: 'that has had no effect for 10 s either (where a shard has a standby, as long as a takeover may take)',
    does: 'END to all: FAILED with the cause STALLED, naming what is missing',
    next: ['OVER'],
  },
  cancel: { from: LIVE, event: 'the control plane wants the run cancelled', does: 'END to all', next: ['OVER'] },
  fail: { from: LIVE, event: 'the attempt cannot go on', does: 'END to all, with the reason', next: ['OVER'] },
} as const satisfies StateRows<AsyncCoordinatorState>;

export interface AsyncCoordinatorOptions extends AttemptOptions {
  /** async: free work items; ssp: clocks of replicas, at most `stalenessBound` rounds apart. */
  readonly mode: 'async' | 'ssp';
  readonly stalenessBound: number;
  readonly nonFinite: 'fail' | 'skip' | 'rollback';
  /** Servers that own a chunk: a work item counts when all of them are done with it. */
  readonly shards: readonly number[];
}
