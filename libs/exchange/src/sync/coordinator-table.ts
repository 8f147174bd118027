/** The coordinator's state table, and what it is given. The machine is in rounds.ts. */

import type { StateRows } from '../attempt/state-table.js';

export type CoordinatorState = 'GATHERING' | 'EVALUATING' | 'COLLECTING' | 'STOPPING' | 'OVER';

export const COORDINATOR_ROWS = {
  serverJoins: {
    from: ['GATHERING', 'EVALUATING', 'COLLECTING', 'STOPPING'],
    event: 'a server connects',
    does: 'count it; training starts when all have connected',
    next: '–',
  },
  serverLost: {
    from: ['GATHERING', 'EVALUATING', 'COLLECTING', 'STOPPING'],
    event: "a server's connection closes, or nothing is heard from it for 10 s",
    does: 'end the attempt: FAILED, naming the server and the round',
    next: ['OVER'],
  },
  serverAway: {
    from: ['GATHERING', 'EVALUATING', 'COLLECTING', 'STOPPING'],
    event: 'a server with a standby is lost',
    does: 'wait for the standby to take over; give up a checkpoint that was being written; commit only what the lost server had REDUCED',
    next: '–',
  },
  serverTakenOver: {
    from: ['GATHERING', 'EVALUATING', 'COLLECTING', 'STOPPING'],
    event: 'a standby joins in a higher term, replacing its primary',
    does: 'COMMIT(k) again if it lacks it; ask it again for weights that are being collected',
    next: '–',
  },
  standbyLink: {
    from: 'any',
    event: "a server's standby follows, or was dropped",
    does: 'journal it; from here on the loss of this server is covered, or not',
    next: '–',
  },
  succeeded: {
    from: ['GATHERING'],
    event: 'promoted: all servers have reported their positions',
    does: 'the highest round is the present one: send COMMIT of the one before to servers that lack it; write the ledger rows that are not stored; new view; wait for workers to come back',
    next: '–',
  },
  regathered: {
    from: ['GATHERING'],
    event: 'promoted: all workers are back, or their grace period is over',
    does: 'give replicas without a worker to the others; go on',
    next: '–',
  },
  committedElsewhere: {
    from: ['GATHERING'],
    event: 'promoted: a worker comes back that has COMMIT(k), which no server has',
    does: 'COMMIT(k) to all: every server is REDUCED(k)',
    next: ['EVALUATING', 'COLLECTING', 'STOPPING'],
  },
  join: {
    from: ['GATHERING', 'EVALUATING', 'COLLECTING', 'STOPPING'],
    event: 'a worker connects',
    does: 'take it into the members; orphaned replicas are given to it at once (new view), else it gets its share at the next commit',
    next: '–',
  },
  seatTaken: { from: 'any', event: 'a worker connects for a seat that another holds', does: 'refuse it: SEAT_TAKEN', next: '–' },
  away: {
    from: ['GATHERING', 'EVALUATING', 'COLLECTING', 'STOPPING'],
    event: "a member's socket to the coordinator or to a shard closes",
    does: 'new view: its replicas go to the others at once; its seat is kept for 3 s',
    next: '–',
  },
  lost: {
    from: ['GATHERING', 'EVALUATING', 'COLLECTING', 'STOPPING'],
    event: 'a member is away, silent or without progress past its deadline',
    does: 'free its seat; count the loss of each replica it owed; the fifth loss of one (round, replica) is a poison round: FAILED',
    next: ['OVER'],
  },
  leave: {
    from: ['GATHERING', 'EVALUATING', 'COLLECTING', 'STOPPING'],
    event: 'a member asks to leave',
    does: 'let it go at the next commit; at once when it owes nothing; when it has replicas to hand on, with HANDED-ON or the commit after the next',
    next: '–',
  },
  handedOn: {
    from: ['GATHERING'],
    event: 'HANDED-ON(k-1): all was sent that others may want of the replicas that a member has given away',
    does: 'let the member go if it leaves',
    next: '–',
  },
  contribution: {
    from: ['GATHERING'],
    event: 'contribution of (k, replica)',
    does: 'check its example count against the schedule; keep the first',
    next: '–',
  },
  contributionStale: {
    from: 'any',
    event: 'contribution of another round',
    does: 'drop it; what it says is lost counts where that round was committed last',
    next: '–',
  },
  reduced: { from: ['GATHERING'], event: 'REDUCED(k) from a shard', does: 'count it', next: '–' },
  replicaComplete: {
    from: ['GATHERING'],
    event: 'a shard has all chunks of a replica, with backup replicas',
    does: 'when R − b of the replicas that have examples are complete on all shards, fix the set: INCLUDE(k) to the shards',
    next: '–',
  },
  scalars: {
    from: ['GATHERING'],
    event: 'the scalars of a shard, plan two-phase',
    does: 'when those of all shards are there, decide: DECISION(k) to the shards, or FAILED where the gradient is not finite and the run wants that',
    next: ['OVER'],
  },
  commit: {
    from: ['GATHERING'],
    event: 'all shards REDUCED(k) and all contributions that count in',
    does: 'COMMIT(k) to shards, then members; the ledger moves; rebalance; take a checkpoint where one is due; after the last round, or where a validation ends the run, evaluate what is not measured yet',
    next: ['EVALUATING', 'COLLECTING', 'STOPPING'],
  },
  partWritten: {
    from: 'any',
    event: 'a shard has written its part of a checkpoint',
    does: 'when all have, publish the manifest',
    next: '–',
  },
  checkpointSettled: {
    from: ['GATHERING', 'EVALUATING', 'COLLECTING', 'STOPPING'],
    event: 'the checkpoint is published, or has failed, or is past its deadline',
    does: 'journal it; a run that waited for it to stop is over',
    next: ['OVER'],
  },
  stop: {
    from: ['GATHERING'],
    event: 'the control plane wants a pause, a server was told to end, or with EF21 the last workers leave',
    does: 'finish the round and take a last checkpoint with its commit; past the deadline stop on the one before and say how many rounds will be redone',
    next: ['OVER'],
  },
  stopped: {
    from: ['GATHERING', 'STOPPING'],
    event: 'the last checkpoint is not there within the deadline, or none is needed',
    does: 'END to all: paused, or failed with the cause STOPPED',
    next: ['OVER'],
  },
  nonFinite: {
    from: ['GATHERING'],
    event: 'a gradient of round k has NaN or infinity',
    does: 'END to all: FAILED, naming round and server',
    next: ['OVER'],
  },
  estimateLost: {
    from: ['GATHERING'],
    event: 'with EF21: a contribution to this round, or to the one before, says that the estimate of its replica is lost',
    does: 'END to all: FAILED with the cause ESTIMATE_LOST, so that the next attempt begins with the last checkpoint',
    next: ['OVER'],
  },
  validation: {
    from: ['GATHERING'],
    event: 'all that COMMIT(k) needs is there, and generation k+1 is to be validated',
    does: 'have the members measure the evaluation split, or the held-out examples, on it; COMMIT(k) waits',
    next: '–',
  },
  validated: {
    from: ['GATHERING'],
    event: 'measures of a block of a validation',
    does: 'add them in block order; when all are there, judge, have the best weights measured on the evaluation split where that is not done, and then COMMIT(k) with what follows',
    next: '–',
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
    from: ['GATHERING', 'EVALUATING'],
    event: 'for 5 s nobody works and nothing arrives, although everybody is connected and heard',
    does: 'journal what is missing; new view; TELL-AGAIN to all: members send again, shards report their positions again; blocks of the evaluation are given out anew',
    next: '–',
  },
  undelivered: {
    from: ['GATHERING', 'EVALUATING'],
    event: 'this has had no effect for 7 s',
    does: 'lose the members whose part is missing: they come back over new connections, and others do their work',
    next: '–',
  },
  stalled: {
    from: ['GATHERING', 'EVALUATING'],
    event: 'that has had no effect for 10 s either (where a shard that is not done has a standby, as long as a takeover may take)',
    does: 'END to all: FAILED with the cause STALLED, naming what is missing',
    next: ['OVER'],
  },
  cancel: {
    from: ['GATHERING', 'EVALUATING', 'COLLECTING', 'STOPPING'],
    event: 'the control plane wants the run cancelled',
    does: 'END to all',
    next: ['OVER'],
  },
  fail: {
    from: ['GATHERING', 'EVALUATING', 'COLLECTING', 'STOPPING'],
    event: 'the attempt cannot go on',
    does: 'END to all, with the reason',
    next: ['OVER'],
  },
} as const satisfies StateRows<CoordinatorState>;
