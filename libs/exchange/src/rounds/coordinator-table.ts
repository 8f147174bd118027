/** The coordinator's state table, and what it is given. The machine is in coordinator.ts. */
import type { Journal } from './journal.js';
import type { StateRows } from './state-table.js';

export type CoordinatorState = 'GATHERING' | 'EVALUATING' | 'COLLECTING' | 'OVER';

export const COORDINATOR_ROWS = {
  serverJoins: { from: ['GATHERING'], event: 'a server connects', does: 'count it in; training starts when all are there', next: '–' },
  serverLost: {
    from: ['GATHERING', 'EVALUATING', 'COLLECTING'],
    event: "a server's connection closes, or nothing is heard from it for 10 s",
    does: 'end the attempt: FAILED, naming the server and the round',
    next: ['OVER'],
  },
  join: {
    from: ['GATHERING', 'EVALUATING', 'COLLECTING'],
    event: 'a worker connects',
    does: 'take it into the members; orphaned replicas are given to it at once (new view), else it gets its share at the next commit',
    next: '–',
  },
  seatTaken: { from: 'any', event: 'a worker connects for a seat that another holds', does: 'refuse it: SEAT_TAKEN', next: '–' },
  away: {
    from: ['GATHERING', 'EVALUATING', 'COLLECTING'],
    event: "a member's socket to the coordinator or to a shard closes",
    does: 'new view: its replicas go to the others at once; its seat is kept for 3 s',
    next: '–',
  },
  lost: {
    from: ['GATHERING', 'EVALUATING', 'COLLECTING'],
    event: 'a member is away, silent or without progress past its deadline',
    does: 'free its seat; count the loss of each replica it owed; the fifth loss of one (round, replica) is a poison round: FAILED',
    next: ['OVER'],
  },
  leave: {
    from: ['GATHERING', 'EVALUATING', 'COLLECTING'],
    event: 'a member asks to leave',
    does: 'let it go at the next commit (at once when it owes nothing)',
    next: '–',
  },
  contribution: {
    from: ['GATHERING'],
    event: 'contribution of (k, replica)',
    does: 'check its example count against the schedule; keep the first',
    next: '–',
  },
  contributionStale: { from: 'any', event: 'contribution of another round', does: 'drop it', next: '–' },
  reduced: { from: ['GATHERING'], event: 'REDUCED(k) from a shard', does: 'count it', next: '–' },
  commit: {
    from: ['GATHERING'],
    event: 'all shards REDUCED(k) and all contributions in',
    does: 'COMMIT(k) to shards, then members; the ledger moves; rebalance; after the last round evaluate',
    next: ['EVALUATING', 'COLLECTING'],
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
  cancel: {
    from: ['GATHERING', 'EVALUATING', 'COLLECTING'],
    event: 'the control plane wants the run cancelled',
    does: 'END to all',
    next: ['OVER'],
  },
  fail: {
    from: ['GATHERING', 'EVALUATING', 'COLLECTING'],
    event: 'the attempt cannot go on',
    does: 'END to all, with the reason',
    next: ['OVER'],
  },
} as const satisfies StateRows<CoordinatorState>;

/** What the coordinator knows of the order of examples; libs/learning has it. */
export interface RoundSchedule {
  readonly totalRounds: number;
  examplesIn(round: number): number;
  epochOf(round: number): number;
  replicaExamples(round: number, replica: number): number;
}

export interface EvaluationResult {
  readonly loss: number | null;
  readonly accuracy: number | null;
}

export interface CoordinatorOptions {
  readonly attempt: number;
  readonly replicas: number;
  readonly servers: number;
  readonly schedule: RoundSchedule;
  /** Examples of the evaluation split; 0 for none. */
  readonly evalExamples: number;
  readonly journal: Journal;
  now(): number;
  /** Called once after evaluation: collects and writes the weights, then calls `weightsCollected`. */
  collectWeights(evaluation: EvaluationResult): void;
  /** Called once when the attempt is over, whatever the outcome. */
  onOver(outcome: 'finished' | 'cancelled' | 'failed', message: string): void;
  readonly heartbeatDeadlineMs?: number;
  readonly stepDeadlineMs?: number;
  readonly awayMs?: number;
  /** A server that says nothing for this long is lost; all have to connect within `serversDeadlineMs` of the first. */
  readonly serverDeadlineMs?: number;
  readonly serversDeadlineMs?: number;
}
