/**
 * Masking with a gradient: of tf.js's own, the comparison that makes the mask has none, so that no layer in front of it could have weights. As in TensorFlow the
 * mask is a constant to the gradient, which is zero for the steps that are masked.
 */
import * as tf from '@tensorflow/tfjs-core';
import { replaceClass, single, type LayerClass } from './replace-class.js';

/** True for the steps that stay: [batch, …, steps], with a last dimension of one where it is kept. */
const staying = (input: tf.Tensor, value: number, keepsDimension: boolean): tf.Tensor =>
  tf.any(tf.notEqual(input, value), -1, keepsDimension);

function withGradient(stock: LayerClass): LayerClass {
  return class extends stock {
    static override readonly className = 'Masking';
    private get value(): number {
      return (this as unknown as { readonly maskValue: number }).maskValue;
    }
    override computeMask(inputs: tf.Tensor | tf.Tensor[]): tf.Tensor {
      // Without an input the mask is on no way to the loss, so nothing that is computed of it needs a gradient.
      const op = tf.customGrad(() => ({ value: staying(single(inputs), this.value, false), gradFunc: () => [] }));
      return op();
    }
    override call(inputs: tf.Tensor | tf.Tensor[], kwargs: Record<string, unknown>): tf.Tensor {
      const { value } = this;
      const op = tf.customGrad((x, save) => {
        const input = x as tf.Tensor;
        const kept = tf.cast(staying(input, value, true), input.dtype);
        (save as tf.GradSaveFunc)([kept]);
        return { value: tf.mul(input, kept), gradFunc: (dy, saved) => tf.mul(dy, saved[0]!) };
      });
      this.invokeCallHook(inputs, kwargs);
      return tf.tidy(() => op(single(inputs)));
    }
  };
}

export function registerMasking(): void {
  replaceClass('Masking', withGradient);
}
