/** Activations by the names of tf.js: those that it has, and those of ours (`activations.ts`). Keras' names are these in snake case. */
const OF_TFJS = [
  'linear',
  'relu',
  'relu6',
  'elu',
  'selu',
  'sigmoid',
  'hardSigmoid',
  'softplus',
  'softsign',
  'tanh',
  'softmax',
  'logSoftmax',
  'gelu',
  'gelu_new',
  'mish',
  'swish',
] as const;

/** Activations of Keras 3 that tf.js lacks. */
export const OWN_ACTIVATIONS = [
  'silu',
  'hardSilu',
  'hardSwish',
  'leakyRelu',
  'exponential',
  'celu',
  'hardTanh',
  'tanhShrink',
  'logSigmoid',
  'squareplus',
] as const;

/** Keras 3 gave the name hard_sigmoid to another function: a topology of Keras 3 is built with this one. Nobody can write the name. */
export const HARD_SIGMOID_OF_KERAS_3 = 'hardSigmoidOfKeras3';

export const ACTIVATIONS: ReadonlySet<string> = new Set([...OF_TFJS, ...OWN_ACTIVATIONS]);
