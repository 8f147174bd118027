/** Slots of each optimizer (values that it keeps per parameter), in the order of the memory. A checkpoint fits only an optimizer with the same slots. */
import type { OptimizerSpec } from './optimizer-spec.js';

/**
 * What servers apply: the optimizer, and with EF21 an estimate of the gradient before it. Where `isApplied` is set the worker has applied it, and what it sends is the
 * parameters (strategy tpu).
 */
export type AppliedOptimizer = OptimizerSpec & { readonly keepsEstimate?: true | undefined; readonly isApplied?: true | undefined };

export function optimizerSlots(spec: AppliedOptimizer): string[] {
  const average = spec.emaMomentum === undefined ? [] : [AVERAGE_SLOT];
  return [...slotsOf(spec), ...average, ...(spec.keepsEstimate ? [ESTIMATE_SLOT] : [])];
}

/** Behind those of the optimizer, where the run keeps a moving average of its weights. */
export const AVERAGE_SLOT = 'average';
/** The last one, with EF21: the sum of the gradients as the servers estimate them. */
export const ESTIMATE_SLOT = 'estimate';

function slotsOf(spec: OptimizerSpec): string[] {
  switch (spec.name) {
    case 'sgd':
      return [];
    case 'momentum':
    case 'lars':
      return ['velocity'];
    case 'adam':
    case 'adamw':
    case 'nadam':
    case 'lamb':
      return ['m', 'v'];
    case 'amsgrad':
      return ['m', 'v', 'largest'];
    case 'adamax':
      return ['m', 'u'];
    case 'rmsprop':
      return ['meanSquare', ...(spec.centered ? ['mean'] : []), ...(spec.momentum > 0 ? ['velocity'] : [])];
    case 'adagrad':
      return ['squares'];
    case 'adadelta':
      return ['squares', 'steps'];
    case 'ftrl':
      return ['squares', 'linear'];
    case 'lion':
      return ['m'];
  }
}
