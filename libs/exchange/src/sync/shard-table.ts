/**
 * A shard's state table, and what it is given: chunks, memory, and whom it tells. A row says when it is taken, what is done, and what comes next. The
 * machine that takes them is in shard.ts.
 */
import type { ChunkDecoder } from '../transfer/chunk-frames.js';
import type { OwnedChunk } from '../transfer/chunks.js';
import type { ParameterEncoder } from '../transfer/published.js';
import type { ShardResidualsOptions } from './shard-residuals.js';
import type { ChunkScalars, RoundDecision } from './agreement.js';
import type { Region, regionSum } from '../attempt/regions.js';
import type { CoordinatorPort, ShardHost } from '../attempt/shard-ports.js';
import type { Slices } from '../attempt/shard-work.js';
import type { StateRows } from '../attempt/state-table.js';

export type ShardState = 'GATHERING' | 'DECIDING' | 'REDUCED' | 'OVER';

export const SHARD_ROWS = {
  chunkHeld: {
    from: ['GATHERING', 'DECIDING', 'REDUCED'],
    event: 'gradient chunk of a newer view or of round k+1',
    does: 'hold it unapplied, at most one round per member',
    next: '–',
  },
  chunkStale: {
    from: ['GATHERING', 'DECIDING', 'REDUCED'],
    event:
      'gradient chunk that is already applied, of an older round, inside a node that has arrived, or from a sender that is not a member',
    does: 'drop and count it',
    next: '–',
  },
  chunkKept: {
    from: ['GATHERING'],
    event: 'gradient chunk of round k',
    does: 'add it to the tree of its chunk; it replaces nodes that it contains',
    next: '–',
  },
  chunkComplete: {
    from: ['GATHERING'],
    event: 'the tree of a chunk is complete, plan streaming',
    does: 'apply the optimizer once from generation k into k+1; send the new chunk to all members, to those that read slowly when their queue has drained; when it was the last one tell the coordinator REDUCED(k)',
    next: ['REDUCED'],
  },
  chunkGathered: {
    from: ['GATHERING'],
    event: 'the tree of a chunk is complete, plan two-phase',
    does: 'keep the sum; when it was the last one report the scalars of all chunks',
    next: ['DECIDING'],
  },
  replicaComplete: {
    from: ['GATHERING'],
    event: 'the gradient of a replica has come for all chunks, with backup replicas',
    does: 'tell the coordinator',
    next: '–',
  },
  include: {
    from: ['GATHERING'],
    event: 'INCLUDE(k) from the coordinator, with backup replicas',
    does: 'add up the replicas that count, release the others; report the scalars of all chunks',
    next: ['DECIDING'],
  },
  decision: {
    from: ['DECIDING'],
    event: 'DECISION(k)',
    does: 'apply every chunk once, scaled; or leave the round out: generation k+1 is k, slots stay. Send k+1; tell the coordinator REDUCED(k)',
    next: ['REDUCED'],
  },
  decisionRepeated: { from: 'any', event: 'INCLUDE or DECISION of a round that already has it', does: 'nothing: it was done', next: '–' },
  nonFinite: {
    from: ['GATHERING'],
    event: 'the tree of a chunk is complete and has NaN or infinity',
    does: 'apply nothing of it; tell the coordinator',
    next: '–',
  },
  nothingOwned: {
    from: ['GATHERING'],
    event: 'a round begins and the shard owns no chunk, or exchanges none',
    does: 'tell the coordinator REDUCED(k), or with plan two-phase that it has no scalars',
    next: ['REDUCED', 'DECIDING'],
  },
  view: {
    from: ['GATHERING', 'DECIDING', 'REDUCED'],
    event: 'VIEW',
    does: 'take the members; applied chunks stay; look at held frames again',
    next: '–',
  },
  commit: {
    from: ['REDUCED'],
    event: 'COMMIT(k)',
    does: 'release generation k; k+1 becomes the present generation; with `checkpoint` hand it to the checkpoint first, with `best` keep it in place of the best before; look at held frames again',
    next: ['GATHERING'],
  },
  commitRepeated: { from: 'any', event: 'COMMIT of an earlier round', does: 'nothing: it was done', next: '–' },
  checkpointAgain: {
    from: ['GATHERING', 'DECIDING', 'REDUCED'],
    event: 'COMMIT of the round before with `checkpoint`: a coordinator has taken over after the last round',
    does: 'hand the present generation to the checkpoint again',
    next: '–',
  },
  join: {
    from: ['GATHERING', 'DECIDING', 'REDUCED'],
    event: 'a member connects',
    does: 'WELCOME with the chunks that are done, and what the trees of the others hold; send generation k, then the k+1 chunks so far',
    next: '–',
  },
  pull: {
    from: ['GATHERING', 'DECIDING', 'REDUCED'],
    event: 'PULL(generation, chunk)',
    does: 'send that chunk if it is there (of k, k+1 or the best generation), unless it is on its way, or owed',
    next: '–',
  },
  residualPull: {
    from: ['GATHERING', 'DECIDING', 'REDUCED'],
    event: 'RESIDUAL-PULL(k, replica, chunk) from a member',
    does: 'in the first round send what the checkpoint has that the attempt began with; of a replica that was handed on pull it from the worker that had it; otherwise say that it is not here',
    next: '–',
  },
  residual: {
    from: ['GATHERING', 'DECIDING', 'REDUCED'],
    event: 'a chunk of what round k has left of a replica, from the member that has it',
    does: 'hand it to the checkpoint that is being written, or send it to the worker that computes the replica now',
    next: '–',
  },
  replica: {
    from: ['GATHERING'],
    event: 'standby: a reduced chunk of round k from the primary, or the decision to leave the round out',
    does: 'apply the optimizer once from generation k into k+1, as decided',
    next: ['REDUCED'],
  },
  promoted: {
    from: ['GATHERING', 'DECIDING', 'REDUCED'],
    event: 'standby: the arbiter has promoted this server',
    does: 'take the new term; what is applied of round k stays, the rest is gathered',
    next: '–',
  },
  toldAgain: {
    from: ['GATHERING', 'DECIDING', 'REDUCED'],
    event: 'another coordinator has taken over, or TELL-AGAIN: the round stands still',
    does: 'report its position and which replicas it lacks; report complete replicas and the scalars of all chunks again',
    next: '–',
  },
  end: { from: 'any', event: 'END', does: 'let everything go', next: ['OVER'] },
} as const satisfies StateRows<ShardState>;

/** The reduction tree of one chunk; libs/learning has the implementation. */
export interface ChunkReduction {
  /** The node lies inside one that has come, or is one: `insert` would drop it. */
  covers(node: { lo: number; hi: number }): boolean;
  insert(node: { lo: number; hi: number }, region: Region): 'dropped' | 'kept' | 'complete';
  /** The sum, once `insert` has said `complete`. */
  takeRoot?(): Region;
  /** With backup replicas: the sum over those that count. */
  takeSum?(included: ReadonlySet<number>): Region;
  missingLeaves(): number[];
  /** Nothing has come. */
  readonly isEmpty: boolean;
  dispose(): void;
}

/** The memory of a shard in mode sync, with the optimizer: ParameterStore of libs/hosting. */
export interface RoundStore {
  /** Whether `update` may write the new parameters over the gradient: paramOut is the gradient then. Left out: it may not. */
  canReplaceGradient?(chunk: OwnedChunk): boolean;
  /** Whether what `update` would apply is finite. Left out: where the sum is. */
  staysFinite?(chunk: OwnedChunk, round: number, sum: Region): boolean;
  /**
   * Applies round `round` to one chunk: reads paramIn and gradient (sum over examples), writes paramOut. With plan two-phase as decided,
   * and then the gradient may be written to.
   */
  update(chunk: OwnedChunk, round: number, paramIn: Region, paramOut: Region, gradient: Region, decision?: RoundDecision): void;
  /** A round that is left out, for one chunk: the next generation, retained. Without it that is the present one. */
  leaveOut?(chunk: OwnedChunk, round: number, params: Region): Region;
  /** Plan two-phase: what has to be known of a chunk before it is decided. It changes nothing: it may be asked again. */
  measure?(chunk: OwnedChunk, gradient: Region, params: Region, round: number): Omit<ChunkScalars, 'chunk'>;
}

/** The rows of a table at this shard, as a chunk of its rounds. */
export interface TableGroup extends OwnedChunk {
  readonly rows: { readonly count: number; readonly width: number };
}

/** Tables that are exchanged by rows: TableStore of libs/hosting. Their chunks are no chunks of a round, their groups are. */
export interface ShardTables {
  readonly groups: readonly TableGroup[];
  /** Makes the rows of generation k+1 from those of k. */
  apply(group: TableGroup, round: number, sum: Region): void;
  /** Of generation k, or of k+1, for whom the group is applied. The result is the caller's. */
  read(group: TableGroup, ids: Uint32Array, isNext: boolean): Float32Array;
  /** k+1 is the present generation now. */
  commit(): void;
  /** A chunk of a table, of the present generation or of the best one; not retained. */
  find(chunk: number, isBest: boolean): Region | undefined;
  /** All chunks of the shard in their order, retained: takes over those that are exchanged whole. */
  whole(others: readonly Region[]): Region[];
  keepAsBest(): void;
  letGo(): void;
}

export interface ShardOptions {
  readonly index: number;
  readonly attempt: number;
  readonly replicas: number;
  readonly chunks: readonly OwnedChunk[];
  /** The generation that the attempt begins with, one region per owned chunk, in their order. */
  readonly initial: readonly Region[];
  /** Its number: rounds committed before; 0 without a checkpoint. */
  readonly firstRound?: number;
  createReduction(ops: typeof regionSum): ChunkReduction;
  isValidNode(lo: number, hi: number): boolean;
  readonly store: RoundStore;
  /** Whether a chunk is exchanged in a round; a chunk that is not stays as it is. Left out: all are. Plan streaming alone, without standbys. */
  readonly isExchanged?: ((round: number, chunk: number) => boolean) | undefined;
  /** Plan two-phase; without it the plan is streaming. With backups the trees are made of leaves, and wait for INCLUDE. */
  readonly twoPhase?: { readonly hasBackups: boolean };
  readonly host?: ShardHost;
  readonly coordinator: CoordinatorPort;
  readonly decoder?: ChunkDecoder | undefined;
  /** How workers get parameters; as float32 where it is left out. Whoever collects the weights always does. */
  readonly encoder?: ParameterEncoder | undefined;
  /** Bytes of parameters in the queue of one connection; several writes where it is left out. */
  readonly parameterWindowBytes?: number | undefined;
  /** Chunks that a member may send beyond the lowest one that is not complete; all of them where it is left out. */
  readonly gradientWindowChunks?: number | undefined;
  /** What the codec keeps of replicas, where checkpoints have it. */
  readonly residuals?: Omit<ShardResidualsOptions, 'replicas' | 'chunks'> | undefined;
  /** Their groups are the last of `chunks`. */
  readonly tables?: ShardTables | undefined;
  /** How work on all chunks shares the event loop; without it, it is done in one go. */
  readonly slices?: Slices | undefined;
}
