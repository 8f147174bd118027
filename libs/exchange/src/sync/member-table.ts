/** A member's state table, and what it is given. The machine is in member.ts. */
import type { EncodedParameters } from '../transfer/chunk-frames.js';
import type { MemberChunk } from '../transfer/chunks.js';
import type { MemberGroup } from '../transfer/row-pulls.js';
import type { ReplicaResidual, ResidualLayout } from '../transfer/residuals.js';
import type { Rows } from '../transfer/rows.js';
import type { PaceClock } from './round-pace.js';
import type { Outcome } from '../attempt/attempt-options.js';
import type { StateRows } from '../attempt/state-table.js';

export type MemberState = 'SYNCING' | 'READY' | 'OVER';

export const MEMBER_ROWS = {
  welcome: {
    from: ['SYNCING', 'READY'],
    event: 'WELCOME from a server',
    does: 'send again what it does not name as done, or held by the trees, of round k',
    next: '–',
  },
  takenOver: {
    from: ['SYNCING', 'READY'],
    event: 'WELCOME from a server in a higher term',
    does: 'its standby has taken over the shard: discard chunks of k+1 of that shard; the new primary publishes them again',
    next: '–',
  },
  staleTerm: {
    from: 'any',
    event: 'a message or a chunk of an older term than the shard has',
    does: 'refuse it: STALE_TERM; it comes from a former primary',
    next: '–',
  },
  parameters: {
    from: ['SYNCING', 'READY'],
    event: 'chunk of generation k or k+1',
    does: 'keep it; when generation k is complete the round can start',
    next: ['READY'],
  },
  parametersAhead: {
    from: ['SYNCING', 'READY'],
    event: 'chunk of a generation after k+1',
    does: 'COMMIT has happened and is on its way: release older generations, wait for it',
    next: ['SYNCING'],
  },
  parametersStale: { from: ['SYNCING', 'READY'], event: 'chunk of an older generation', does: 'drop it', next: '–' },
  view: {
    from: ['SYNCING', 'READY'],
    event: 'VIEW',
    does: 'compute replicas that are new to it',
    next: '–',
  },
  credit: {
    from: ['SYNCING', 'READY'],
    event: 'CREDIT(round, base) from a server',
    does: 'send the chunks of that server up to the end of its window',
    next: '–',
  },
  dropped: {
    from: ['SYNCING', 'READY'],
    event: 'DROPPED(round, chunks) from a server',
    does: 'in round k, send these chunks again: they came there before the view that names this member',
    next: '–',
  },
  viewOld: { from: 'any', event: 'VIEW older than the present one', does: 'drop it', next: '–' },
  commit: {
    from: ['SYNCING', 'READY'],
    event: 'COMMIT(k)',
    does: 'release gradients of k and generation k; start k+1 if its generation is complete, and k was not the last',
    next: ['SYNCING', 'READY'],
  },
  commitOld: { from: 'any', event: 'COMMIT of an earlier round', does: 'nothing', next: '–' },
  node: {
    from: ['SYNCING', 'READY'],
    event: 'the compute thread has added up a tree node',
    does: 'send its chunks to the servers that own them',
    next: '–',
  },
  toldAgain: {
    from: ['SYNCING', 'READY'],
    event: 'TELL-AGAIN: the round stands still',
    does: 'send contributions again, and every node that no server has applied; pull chunks that are missing; await nothing more of what another worker has kept',
    next: '–',
  },
  residualPull: {
    from: ['SYNCING', 'READY'],
    event: 'RESIDUAL-PULL(k, replica, chunk) from a server',
    does: 'send what round k has left of the replica in that chunk, or that it is not here; wait for COMMIT(k) first',
    next: '–',
  },
  residual: {
    from: ['SYNCING', 'READY'],
    event: 'a chunk of what the round before has left of a replica, from a checkpoint or from the worker that had it',
    does: 'keep it; compute the replica when all of it is here, or some of it is nowhere',
    next: '–',
  },
  evaluate: {
    from: ['SYNCING', 'READY'],
    event: 'EVALUATE',
    does: 'measure the blocks when the generation is complete; of a validation it is k+1, before COMMIT(k)',
    next: '–',
  },
  end: { from: 'any', event: 'END or leave granted', does: 'let everything go', next: ['OVER'] },
} as const satisfies StateRows<MemberState>;

/** Hears which chunks lie in the vectors of generations, for a thread that reads them while others still come. */
export interface ParameterArrivals {
  /** A generation takes the place of the one two before it, or of another one: of what lay there only these chunks are chunks of it. Told before any of it is written. */
  opens(generation: number, kept: Iterable<number>): void;
  /** A chunk is whole. It stays as it is until `opens`, or `gone`. */
  came(generation: number, chunk: number): void;
  /** It is about to be written once more, perhaps with other values. */
  gone(generation: number, chunk: number): void;
}

/** What the member asks of the compute thread. Results come back through `contribution`, `node`, `evaluated`, `failed`. */
export interface ComputePort {
  /**
   * Compute replicas of a round from the generation of the same number; they are new (never asked before in this round).
   * @param codec of the gradients, where the coordinator has picked one
   */
  step(round: number, replicas: readonly number[], codec?: string): void;
  evaluate(generation: number, blocks: readonly { from: number; to: number }[]): void;
  /** Rows of a group that it asked for, of a table that is exchanged by rows. */
  rows?(generation: number, group: number, rows: Rows): void;
  /** Copies what a round has left of replicas, as far as it is here; the answer is `residuals`. Left out: nothing is ever here. */
  readResiduals?(round: number, replicas: readonly number[]): void;
  /** What a round has left of a replica, in place of what is here. Left out: it cannot be taken. */
  takeResidual?(round: number, residual: ReplicaResidual): void;
  /** Round numbers below are not needed any more. */
  committed(round: number): void;
  /** Left out: it reads a generation from `step` and `evaluate` on, and none before. */
  readonly arrivals?: ParameterArrivals | undefined;
}

/** Two generations of the flat vector in shared memory. */
export interface GenerationStore {
  /** Bytes of the flat vector of `generation` (its slot is generation mod 2). */
  bytes(generation: number): Uint8Array;
}

export interface MemberOptions {
  readonly id: string;
  readonly attempt: number;
  readonly chunks: readonly MemberChunk[];
  /** Tables that are exchanged by rows. */
  readonly groups?: readonly MemberGroup[] | undefined;
  readonly servers: number;
  readonly totalRounds: number;
  readonly store: GenerationStore;
  /** Whether a chunk is exchanged in a round: one that is not is neither sent nor does it come. Left out: all are. */
  readonly isExchanged?: ((round: number, chunk: number) => boolean) | undefined;
  /** Left out: all come as float32. */
  readonly parameters?: EncodedParameters | undefined;
  readonly compute: ComputePort;
  /** What the codec keeps of each replica, where checkpoints have it. */
  readonly residuals?: ResidualLayout | undefined;
  /** EF21: the gradient of a replica whose estimate is lost is told of and not sent, because servers would add it to an estimate that has the lost one in it. */
  readonly keepsEstimates?: boolean | undefined;
  /** With a codec: the first replica of each sum that it would send of these without one. Left out: as it sends them. */
  readonly firstOfSums?: ((replicas: readonly number[]) => readonly number[]) | undefined;
  /** Its rounds are measured: `codec: auto`, `strategy: auto`. */
  readonly paceClock?: PaceClock | undefined;
  /** They are measured with the codec that was picked too: `strategy: auto`. */
  readonly measuresStrategy?: boolean | undefined;
  /** The coordinator ended this member's part. */
  onEnd(outcome: Outcome, message: string): void;
  /** The view gave this member other replicas, or the round moved: for status reports. */
  onRound?(round: number, replicas: readonly number[]): void;
}
