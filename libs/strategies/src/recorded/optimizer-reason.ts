/** Which optimizers of Keras the library has: without loading tf.js. */
import type { OptimizerSpec } from '@paceline/spec';

/** Epsilon of Adagrad in tf.js, which takes none. */
const ADAGRAD_EPSILON = 1e-7;
const OF_TFJS: ReadonlySet<string> = new Set(['sgd', 'momentum', 'adam', 'adamax', 'adagrad', 'rmsprop']);

/** Why the library has no optimizer that takes these steps; undefined when it has one. */
export function optimizerReason(optimizer: OptimizerSpec): string | undefined {
  const { name } = optimizer;
  if (name === 'lamb' || name === 'lars') return `${name} takes norms of whole variables, which the library does not: a run does`;
  if (optimizer.emaMomentum !== undefined) return 'the library keeps no average of the weights: a run does';
  return undefined;
}

/** Whether tf.train has an optimizer that takes the same steps as that of Keras. */
export function isOfTfjs(optimizer: OptimizerSpec): boolean {
  if (!OF_TFJS.has(optimizer.name) || (optimizer as { weightDecay?: number }).weightDecay) return false;
  if (optimizer.name === 'rmsprop') return !optimizer.centered; // tf.js subtracts epsilon there
  return optimizer.name !== 'adagrad' || optimizer.epsilon === ADAGRAD_EPSILON;
}
