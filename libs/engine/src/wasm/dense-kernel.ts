/**
 * One kernel for a dense layer, relu(x·w + bias) or x·w + bias, with its gradient. While a gradient tape runs, tf.js
 * takes matMul, add and relu apart, and saves what each of them needs; fused it is one XNNPACK call and three saved tensors.
 */
import * as tf from '@tensorflow/tfjs-core';

export const DENSE_KERNEL = 'PacelineDense';

export interface DenseAttrs {
  readonly activation: 'linear' | 'relu';
}

/**
 * x [n, inputs] · w [inputs, units] + bias [units] → [n, units], float32. `bias` may be left out.
 * @param fusedMatMul the stock _FusedMatMul
 */
export function denseKernel(fusedMatMul: tf.KernelFunc): tf.KernelConfig {
  return {
    kernelName: DENSE_KERNEL,
    backendName: 'wasm',
    kernelFunc: ({ inputs, backend, attrs }) => {
      const { x, w, bias } = inputs as { x: tf.TensorInfo; w: tf.TensorInfo; bias?: tf.TensorInfo };
      // The stock kernel works on batches of matrices; only the shapes are looked at, the data is the same.
      const out = fusedMatMul({
        inputs: { a: batchOfOne(x), b: batchOfOne(w), ...(bias ? { bias } : {}) },
        backend,
        attrs: { transposeA: false, transposeB: false, activation: (attrs as unknown as DenseAttrs).activation, leakyreluAlpha: 0 },
      }) as tf.TensorInfo;
      out.shape = [x.shape[0]!, w.shape[1]!];
      return out;
    },
  };
}

export const denseGradient: tf.GradConfig = {
  kernelName: DENSE_KERNEL,
  inputsToSave: ['x', 'w'],
  outputsToSave: [true],
  gradFunc: (dy, saved, attrs) => {
    const [x, w, y] = saved as [tf.Tensor2D, tf.Tensor2D, tf.Tensor2D];
    const isRelu = (attrs as unknown as DenseAttrs).activation === 'relu';
    const dz = (isRelu ? tf.mul(dy as tf.Tensor, tf.step(y)) : dy) as tf.Tensor2D;
    // The tape asks only for what depends on a variable: no gradient of the first layer's input is computed.
    return {
      x: () => tf.matMul(dz, w, false, true),
      w: () => tf.matMul(x, dz, true, false),
      bias: () => tf.sum(dz, 0),
    };
  },
};

const batchOfOne = ({ dataId, dtype, shape }: tf.TensorInfo): tf.TensorInfo => ({ dataId, dtype, shape: [1, ...shape] });
