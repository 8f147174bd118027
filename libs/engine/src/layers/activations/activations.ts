/**
 * Activations of Keras 3 that tf.js lacks, made of operations whose gradients all engines have. Registered beside those of tf.js, which finds
 * activations by name.
 */
import * as tf from '@tensorflow/tfjs-core';
import { HARD_SIGMOID_OF_KERAS_3, type OWN_ACTIVATIONS } from './activation-names.js';

type Activation = (x: tf.Tensor) => tf.Tensor;

/** relu6(x + 3) / 6 */
const hardSigmoid: Activation = (x) => tf.div(tf.minimum(6, tf.relu(tf.add(x, 3))), 6);
const silu: Activation = (x) => tf.mul(x, tf.sigmoid(x));
const hardSilu: Activation = (x) => tf.mul(x, hardSigmoid(x));

const FUNCTIONS: Readonly<Record<(typeof OWN_ACTIVATIONS)[number] | typeof HARD_SIGMOID_OF_KERAS_3, Activation>> = {
  silu,
  hardSilu,
  hardSwish: hardSilu,
  leakyRelu: (x) => tf.leakyRelu(x, 0.2),
  exponential: (x) => tf.exp(x),
  // With alpha 1, which is all that a name can say.
  celu: (x) => tf.elu(x),
  hardTanh: (x) => tf.clipByValue(x, -1, 1),
  tanhShrink: (x) => tf.sub(x, tf.tanh(x)),
  logSigmoid: (x) => tf.neg(tf.softplus(tf.neg(x))),
  squareplus: (x) => tf.div(tf.add(x, tf.sqrt(tf.add(tf.square(x), 4))), 2),
  [HARD_SIGMOID_OF_KERAS_3]: hardSigmoid,
};

export function registerActivations(): void {
  for (const [name, apply] of Object.entries(FUNCTIONS)) {
    class Named extends tf.serialization.Serializable {
      static readonly className = name;
      getConfig(): tf.serialization.ConfigDict {
        return {};
      }
      apply(x: tf.Tensor): tf.Tensor {
        return tf.tidy(() => apply(x));
      }
    }
    tf.serialization.registerClass(Named);
  }
}
