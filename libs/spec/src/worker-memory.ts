/**
 * What a run holds of its model in a worker and in a server, in bytes (docs/ARCHITECTURE.md, Memory). A run that nobody has the memory for is refused
 * before it begins. Batches, what layers keep for the backward pass, and the code of a process come on top.
 *
 * A worker is counted with all replicas of the run, because it gets them all when it is the only one that is left. Gradients that it holds at once:
 *
 *   sync                        one vector for each level of the tree in progress: floor(log2 R) + 1
 *   sync, several threads       each has nodes of its part of the replicas, finished or in progress; stages of a model have one such part together, each
 *                               its variables of it
 *   sync, backup replicas       every replica's gradient until the commit: R
 *   with a codec                every replica's gradient as encoded, one that is not yet, with error feedback two vectors for each replica, with dgc four
 *   local-update                beside these: the weights of the replica in progress, and the slots of its optimizer; with innerState keep two sets of
 *                               slots for each replica, with elastic averaging or fragments two sets of weights; each of several threads has a replica in
 *                               progress, and its outer gradient
 *   tpu                         beside those of several threads: the weights and the slots of the optimizer, which its threads update, and what a round has come to
 *   async, ssp                  two work items that are pushed and not counted, and one in progress: 3
 *
 * Beside these, where a codec keeps something of replicas: copies of that for a checkpoint, until the servers have pulled them.
 */
import { encodedBits, encodedParameterBits, isEncoded, keepsRest, picksCodec, type CodecSpec } from './codec-spec.js';
import { appliedByServers } from './local-update.js';
import { optimizerSlots } from './optimizer-slots.js';
import type { OptimizerSpec } from './optimizer-spec.js';
import type { RunSpec } from './run-spec.js';
import { LIMITS } from './limits.js';
import { shardCount } from './shard-holders.js';
import { backupReplicasOf, stagesOf, threadsOf, type OUTER_OPTIMIZERS } from './strategy.js';

/** The gradients of a large model lie in several arenas, each of which is planned to hold so much. */
export const GRADIENT_ARENA_BYTES = 1 << 30;
/** An arena begins with room for so many vectors, and with this much beside them. */
export const GRADIENT_ARENA_VECTORS = 3;
export const GRADIENT_ARENA_SLACK_BYTES = 1 << 20;
/** Parameters and gradients as the engine of each compute thread keeps them. */
export const ENGINE_VECTORS = 2;
/** Gradients that wait at a shard for those of slower workers have so much. */
const GRADIENT_WINDOW_BYTES = 256 << 20;
/** What one replica may be ahead. Half of it is granted again in time: what a link of 10 Gbit/s holds with 6 ms there and back. More leaves the caches. */
const AHEAD_BYTES = 16 << 20;
/** What may wait at a shard, of all replicas; a chunk of each has room in any case. */
export const gradientWindowBytes = (replicas: number): number => Math.min(GRADIENT_WINDOW_BYTES, replicas * AHEAD_BYTES);
/** The grid of chunks. */
const CHUNK_BYTES = 1 << 20;
/** All that a WebAssembly memory holds, less a page. */
const ONE_ARENA_BYTES = 2 ** 32 - 65_536;
const FLOAT_BYTES = 4;
/** What an allocator rounds vectors up to. */
const ALIGNMENT_BYTES = 64;

interface Distribution extends Pick<RunSpec, 'replicas'> {
  readonly strategy: {
    readonly mode: RunSpec['strategy']['mode'];
    readonly backupReplicas?: number | undefined;
    readonly kind?: RunSpec['strategy']['kind'];
    readonly threads?: number | undefined;
    readonly workers?: number | undefined;
    readonly servers?: number | undefined;
    readonly innerState?: 'reset' | 'keep';
    readonly outerOptimizer?: (typeof OUTER_OPTIMIZERS)[number];
    readonly fragments?: number | undefined;
  };
  readonly optimizer?: OptimizerSpec;
  readonly codec?: CodecSpec | undefined;
}

interface Served extends Pick<RunSpec, 'replicas'> {
  readonly strategy: Pick<RunSpec['strategy'], 'mode'> &
    Parameters<typeof shardCount>[0] & { readonly backupReplicas?: number | undefined; readonly delayCompensation?: number | undefined };
  readonly codec?: CodecSpec | undefined;
  readonly checkpoint?: { readonly everySeconds: number; readonly everyRounds?: number | undefined } | undefined;
  readonly earlyStopping?: { readonly restoreBest?: boolean | undefined } | undefined;
}

/** Generations of the parameters that worker and server have. */
export const generationsOf = ({ mode }: Pick<RunSpec['strategy'], 'mode'>): number => (mode === 'sync' ? 2 : 1);

/** Vectors that are kept of a replica: what its last gradient has left, what this one leaves, and with dgc the velocity of both. */
const restVectors = (codec: CodecSpec): number => (codec.kind === 'dgc' ? 4 : keepsRest(codec) ? 2 : 0);

/** Flat vectors of P + S elements that a worker holds at once when it has all replicas. */
export function gradientVectors(spec: Distribution): number {
  return sentVectors(spec) + localVectors(spec);
}

/** What the steps of a round need beside gradients, where a worker updates weights by itself. */
function localVectors({ replicas, strategy, optimizer }: Distribution): number {
  if (strategy.kind !== 'local-update' && strategy.kind !== 'tpu') return 0;
  const slots = optimizer ? optimizerSlots(optimizer).length : 0;
  if (strategy.kind === 'tpu') return 2 + slots;
  const own = strategy.outerOptimizer === 'elastic' || strategy.fragments !== undefined ? 2 * replicas : 0;
  const threads = mostThreads({ replicas, strategy });
  const kept = strategy.innerState === 'keep';
  return (threads > 1 ? 2 * threads : 1) + own + slots * (kept ? 2 * replicas : threads);
}

function sentVectors({ replicas, strategy, codec }: Distribution): number {
  const encoded = codec && isEncoded({ codec }) ? encodedBits(codec) / 32 : undefined;
  if (strategy.mode !== 'sync') return encoded === undefined ? 3 : Math.max(3, Math.ceil(1 + 3 * encoded));
  const threads = mostThreads({ replicas, strategy });
  const dense =
    backupReplicasOf(strategy) > 0
      ? replicas
      : threads > 1 || stagesOf(strategy) !== undefined
        ? threadVectors(replicas, threads)
        : Math.floor(Math.log2(replicas)) + 1;
  if (!codec || encoded === undefined) return dense;
  const most = Math.ceil(1 + replicas * encoded + restVectors(codec) * replicas);
  return picksCodec({ codec }) ? Math.max(dense, most) : most;
}

/** A server writes so much of what a codec keeps of replicas into a checkpoint, chunk by chunk; a run that has more is refused (libs/learning/src/residual-bounds.ts). */
export const MOST_RESIDUAL_BYTES = 2 ** 33;
/** Their names stand in the header of the file and in the manifest. */
export const MOST_RESIDUAL_TENSORS = 65_536;
/** Vectors of the trainable elements that a checkpoint has of each replica: what was left out or the estimate, and with dgc the velocity. */
export const residualVectors = ({ kind }: CodecSpec): number => (kind === 'dgc' ? 2 : 1);

/** Copies of what is kept of all replicas: for a checkpoint, and for workers that have them next. @param elements parameters and state */
function residualCopyBytes({ replicas, strategy, codec }: Distribution, elements: number): number {
  if (!codec || !keepsRest(codec) || picksCodec({ codec }) || strategy.mode !== 'sync') return 0;
  return 2 * FLOAT_BYTES * elements * replicas * residualVectors(codec);
}

/** Where the spec does not say, a worker may have a core for each replica. */
const mostThreads = (spec: Pick<Distribution, 'replicas' | 'strategy'>): number => threadsOf(spec, LIMITS.threads);

/** An interval of n replicas has 2 floor(log2 n) + 1 nodes at most, or one for each replica, finished or in progress. */
function threadVectors(replicas: number, threads: number): number {
  const most = Math.ceil(replicas / threads);
  return Math.min(replicas, threads * Math.min(most, 2 * Math.floor(Math.log2(most)) + 1));
}

/** Memory of a worker that has all replicas. @param elements parameters and state */
export const workerBytes = (spec: Distribution, elements: number): number =>
  FLOAT_BYTES * elements * (generationsOf(spec.strategy) + ENGINE_VECTORS * mostThreads(spec) + gradientVectors(spec)) +
  residualCopyBytes(spec, elements);

/**
 * Of one of the run's servers: its share of the parameters and of the optimizer's slots, the gradients that wait, where parameters are encoded for
 * the workers two encoded generations, and what is kept of a checkpoint that is written while training goes on: a generation, and copies of the slots.
 * Gradients that wait: mode sync one window, with backup replicas every gradient of a round; modes async and ssp two work items of a worker, and with the
 * delay compensation the parameters of two fetches.
 * @param slots of the optimizer, per parameter; @param elements parameters and state
 */
export function serverBytes(spec: Served, slots: number, elements: number): number {
  const { strategy, earlyStopping, codec, checkpoint } = spec;
  const best = earlyStopping?.restoreBest ? 1 : 0;
  const encoded = (2 * encodedParameterBits({ codec })) / 32;
  const written = checkpoint && (checkpoint.everySeconds > 0 || checkpoint.everyRounds !== undefined) ? 1 + slots : 0;
  const vector = FLOAT_BYTES * Math.ceil(elements / shardCount(strategy));
  const vectors = generationsOf(strategy) + slots + best + encoded + written;
  return Math.ceil(vector * vectors + waitingGradientBytes(spec, vector));
}

/** The same of a run whose model is described. */
export const serverPartBytes = (
  spec: Pick<RunSpec, 'strategy' | 'replicas' | 'codec' | 'optimizer' | 'gradient' | 'checkpoint' | 'earlyStopping'>,
  { parameterCount, stateCount }: { readonly parameterCount: number; readonly stateCount: number },
): number => serverBytes(spec, optimizerSlots(appliedByServers(spec).optimizer).length, parameterCount + stateCount);

/**
 * What the gradients of all replicas take of a chunk while they wait at a server, in chunks as float32. Encoded ones wait as they came, sums of them as
 * float32. Of siblings that have both come the sum alone is there, and while one gradient is missing a sum has no sibling: of R replicas there are at
 * most (R + 2) / 4.
 */
export function waitingCopies({ replicas, codec }: Pick<Served, 'replicas' | 'codec'>): number {
  // Until one is picked the workers send float32.
  const encoded = codec && isEncoded({ codec }) && !picksCodec({ codec }) ? Math.min(1, encodedBits(codec) / 32) : 1;
  const sums = replicas > 2 ? Math.floor((replicas + 2) / 4) : 0;
  return Math.max(replicas * encoded, sums + (replicas - 2 * sums) * encoded);
}

/** @param vector bytes of one value for each element of the shard; what is left of it as it is, such as state, is not told from what a codec encodes */
function waitingGradientBytes(spec: Served, vector: number): number {
  const { replicas, strategy } = spec;
  if (strategy.mode !== 'sync') return vector * ((strategy.delayCompensation ?? 0) > 0 ? 4 : 2);
  if (backupReplicasOf(strategy) > 0) return vector * replicas;
  // One that waits for no other is applied as it comes.
  if (replicas === 1) return 0;
  // The sum itself may wait until it is decided what is applied.
  const copies = Math.max(1, waitingCopies(spec));
  return Math.min(vector * copies, Math.max(gradientWindowBytes(replicas), CHUNK_BYTES * copies));
}

/** Why workers that update weights by themselves cannot train a model of this size: their vectors lie in one arena. @param elements parameters and state */
export function localModelIssue(spec: Distribution, elements: number): string | undefined {
  const { kind } = spec.strategy;
  if (kind !== 'local-update' && kind !== 'tpu') return undefined;
  // With local updates each of several threads has an arena of its own, for its vectors.
  const { strategy } = spec;
  const ofOne = kind === 'local-update' ? Object.assign({}, spec, { strategy: Object.assign({}, strategy, { threads: 1 }) }) : spec;
  const vectors = Math.max(GRADIENT_ARENA_VECTORS, gradientVectors(ofOne));
  const most = Math.floor(((ONE_ARENA_BYTES - GRADIENT_ARENA_SLACK_BYTES) / vectors - ALIGNMENT_BYTES) / FLOAT_BYTES);
  if (elements <= most) return undefined;
  const fewer = spec.replicas > 1 ? ', fewer replicas' : '';
  const reset = spec.strategy.innerState === 'keep' ? ', innerState reset' : '';
  return (
    `has ${elements} parameters (state included); at most ${most} train with ${kind}: a worker holds ${vectors} vectors of that size ` +
    `(gradients, weights, slots) in 4 GiB; use a smaller model${fewer}${reset}`
  );
}
