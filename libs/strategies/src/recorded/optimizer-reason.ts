/** Which optimizers of Keras tf.js has too: without loading tf.js. */
import type { OptimizerSpec } from '@paceline/spec';

/** Epsilon of Adagrad in tf.js, which takes none. */
const ADAGRAD_EPSILON = 1e-7;
const KNOWN: ReadonlySet<string> = new Set(['sgd', 'momentum', 'adam', 'adamax', 'adagrad', 'rmsprop']);

/** Why tf.js has no optimizer that takes these steps; undefined when it has one. */
export function optimizerReason(optimizer: OptimizerSpec): string | undefined {
  const { name } = optimizer;
  if (name === 'adadelta') return 'adadelta of tf.js divides by the mean of the squares before a step, that of Keras by the one after it';
  if (!KNOWN.has(name)) return `tf.js has no ${name}`;
  if (name === 'rmsprop' && optimizer.centered) return 'rmsprop with centered subtracts epsilon in tf.js, and adds it in Keras';
  if (name === 'adagrad' && optimizer.epsilon !== ADAGRAD_EPSILON) return `adagrad of tf.js has the epsilon ${ADAGRAD_EPSILON}`;
  if ((optimizer as { weightDecay?: number }).weightDecay) return `${name} of tf.js has no weight decay`;
  if ((optimizer as { emaMomentum?: number }).emaMomentum !== undefined) return `${name} of tf.js keeps no average of the weights`;
  return undefined;
}
