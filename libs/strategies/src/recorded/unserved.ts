/** Which recordings a strategy of the library cannot follow, and why: without loading tf.js. */
import type { RecordedProgram, RecordedStrategy } from './protocol.js';
import { optimizerReason } from './optimizer-reason.js';

/** Optimizers whose step is linear in the gradient and in what they keep: a mean of their steps is the step of the mean. */
const LINEAR: ReadonlySet<string> = new Set(['sgd', 'momentum']);

/** What replicas that take steps alone cannot follow; undefined for what they can. */
export function unservedByLocalSteps({
  optimizer,
  globalBatch,
  replicas,
}: Pick<RecordedProgram, 'optimizer' | 'globalBatch' | 'replicas'>): string | undefined {
  if (!LINEAR.has(optimizer.name) && replicas > 1)
    return `replicas take their steps of ${optimizer.name} alone, and the mean of such steps is not the step of the mean gradient`;
  if (globalBatch % replicas !== 0)
    return `the ${replicas} replicas have different numbers of the ${globalBatch} examples, and their copies are averaged alike`;
  return undefined;
}

/** Replicas of each worker of hybrid: enough for their gradients to be added up in it. */
export const HYBRID_REPLICAS = 2;

/** Workers of each group of hybrid, where a group is several of them. */
export const GROUP_WORKERS = 2;

/** Stages of a model with model-parallel. */
export const RECORDED_STAGES = 2;

/** @param clips whether gradients are clipped @returns undefined for what is served */
export function unserved(
  program: Pick<RecordedProgram, 'optimizer' | 'globalBatch' | 'replicas' | 'layers'>,
  { kind, workersPerGroup = 1 }: Pick<RecordedStrategy, 'kind' | 'workersPerGroup'>,
  clips: boolean,
): string | undefined {
  if (clips) return 'the optimizers of tf.js do not clip gradients';
  const reason = optimizerReason(program.optimizer);
  if (reason !== undefined) return reason;
  if (kind === 'local-update') return unservedByLocalSteps(program);
  if (kind === 'one-device' && program.replicas > 1 && program.layers.includes('BatchNormalization'))
    return `its batch normalisation was recorded with ${program.replicas} replicas, each by its own rows; there is one here`;
  if (workersPerGroup > 1 && program.replicas === 1 && program.layers.includes('BatchNormalization'))
    return 'its batch normalisation was recorded with one replica, and a group has several';
  if (kind === 'hybrid' && workersPerGroup === 1 && program.replicas % HYBRID_REPLICAS > 0 && program.layers.includes('BatchNormalization'))
    return `its batch normalisation was recorded with ${program.replicas} replicas, each by its own rows; here they are a multiple of ${HYBRID_REPLICAS}`;
  return undefined;
}
