/**
 * The largest model that a worker can train: its gradients lie in one arena, a WebAssembly memory of at most 1 GiB. A run is refused before
 * it begins when the one worker that may have to hold all of its replicas could not allocate them.
 *
 *   sync                        one vector for each level of the tree in progress: floor(log2 R) + 1
 *   sync, backup replicas       every replica's gradient until the commit: R
 *   with a codec                every replica's gradient as encoded, one that is not yet, and with error feedback two vectors for each replica
 *   async, ssp                  two work items that are pushed and not counted, and one in progress: 3
 */
import { encodedBits, isEncoded, type CodecSpec } from './codec-spec.js';
import type { RunSpec } from './run-spec.js';

export const GRADIENT_ARENA_BYTES = 1 << 30;
/** The arena begins with room for so many vectors, and with this much beside them. */
export const GRADIENT_ARENA_VECTORS = 3;
export const GRADIENT_ARENA_SLACK_BYTES = 1 << 20;
const FLOAT_BYTES = 4;

interface Distribution extends Pick<RunSpec, 'replicas'> {
  readonly strategy: Pick<RunSpec['strategy'], 'mode' | 'backupReplicas'>;
  readonly codec?: CodecSpec | undefined;
}

/** Flat vectors of P + S elements that a worker holds at once when it has all replicas. */
export function gradientVectors({ replicas, strategy, codec }: Distribution): number {
  const encoded = codec && isEncoded({ codec }) ? encodedBits(codec) / 32 : undefined;
  if (strategy.mode !== 'sync') return encoded === undefined ? 3 : Math.max(3, Math.ceil(1 + 3 * encoded));
  if (codec && encoded !== undefined) return Math.ceil(1 + replicas * encoded + (codec.errorFeedback ? 2 * replicas : 0));
  return strategy.backupReplicas > 0 ? replicas : Math.floor(Math.log2(replicas)) + 1;
}

/** Parameters and state of the largest model that trains with this distribution. */
export function largestModel(spec: Distribution): number {
  const vectors = Math.max(GRADIENT_ARENA_VECTORS, gradientVectors(spec));
  return Math.floor((GRADIENT_ARENA_BYTES - GRADIENT_ARENA_SLACK_BYTES) / FLOAT_BYTES / vectors);
}

/**
 * Bytes that a process of the run holds of the model at the least, so that one with less can be told before the run begins. A worker has the arena
 * of its gradients, the parameters as they came and those of its engine. A server has of its share the parameters (in mode sync two generations)
 * and the slots of the optimizer. What lies beside them for a while comes on top.
 * @param elements parameters and state
 */
export const leastWorkerBytes = (elements: number): number => FLOAT_BYTES * elements * (GRADIENT_ARENA_VECTORS + 2);
export const leastServerBytes = (
  { mode, servers }: Pick<RunSpec['strategy'], 'mode' | 'servers'>,
  slots: number,
  elements: number,
): number => FLOAT_BYTES * Math.ceil(elements / servers) * ((mode === 'sync' ? 2 : 1) + slots);

/** Why a model does not fit into the workers; undefined when it does. @param elements parameters and state */
export function tooLargeFor(spec: Distribution, elements: number): string | undefined {
  const most = largestModel(spec);
  if (elements <= most) return undefined;
  const vectors = gradientVectors(spec);
  const { replicas, strategy } = spec;
  const because =
    strategy.mode !== 'sync'
      ? `in mode ${strategy.mode} a worker holds ${vectors} gradients of it at once`
      : `a worker that has all ${replicas} replicas${strategy.backupReplicas > 0 ? ', with backup replicas,' : isEncoded(spec) ? `, with the codec ${spec.codec!.kind}${spec.codec!.errorFeedback ? ' and error feedback' : ''},` : ''} holds ${vectors} gradients of it at once`;
  const fewer = strategy.mode === 'sync' && vectors > GRADIENT_ARENA_VECTORS ? ', or fewer replicas' : '';
  return (
    `has ${elements} parameters (state included); at most ${most} train here: ${because}, in ${GRADIENT_ARENA_BYTES >> 20} MiB ` +
    `with room for ${GRADIENT_ARENA_VECTORS} at least; use a smaller model${fewer}`
  );
}
