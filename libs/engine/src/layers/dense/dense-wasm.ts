/**
 * One kernel for a dense layer, relu(x·w + bias) or x·w + bias, with its gradient. While a gradient tape runs, tf.js
 * takes matMul, add and relu apart, and saves what each of them needs; fused it is one product and three saved tensors.
 */
import * as tf from '@tensorflow/tfjs-core';
import { heapOf } from '../../backends/wasm/heap.js';
import { reluGradient, sumRows } from '../../backends/wasm/passes.js';
import { multiply } from '../../backends/wasm/products.js';

export const DENSE_KERNEL = 'PacelineDense';

export interface DenseAttrs {
  readonly activation: 'linear' | 'relu';
}

/** x [n, inputs] · w [inputs, units] + bias [units] → [n, units], float32. `bias` may be left out. */
export const denseKernel: tf.KernelConfig = {
  kernelName: DENSE_KERNEL,
  backendName: 'wasm',
  kernelFunc: ({ inputs, backend, attrs }) => {
    const { x, w, bias } = inputs as { x: tf.TensorInfo; w: tf.TensorInfo; bias?: tf.TensorInfo };
    const heap = heapOf(backend);
    const [m, k, n] = [x.shape[0]!, w.shape[0]!, w.shape[1]!];
    const out = heap.output([m, n]);
    const relu = (attrs as unknown as DenseAttrs).activation === 'relu';
    const [a, b, c] = [x, w, out].map((tensor) => heap.address(tensor)) as [number, number, number];
    multiply(heap, { a, b, c, m, n, k, bias: bias && heap.address(bias) });
    if (relu) heap.kernels.relu(c, c, m * n);
    return out;
  },
};

export const denseGradient: tf.GradConfig = {
  kernelName: DENSE_KERNEL,
  inputsToSave: ['x', 'w'],
  outputsToSave: [true],
  gradFunc: (dy, saved, attrs) => {
    const [x, w, y] = saved as [tf.Tensor2D, tf.Tensor2D, tf.Tensor2D];
    const isRelu = (attrs as unknown as DenseAttrs).activation === 'relu';
    const dz = (isRelu ? reluGradient(dy as tf.Tensor, y) : dy) as tf.Tensor2D;
    // The tape asks only for what depends on a variable: no gradient of the first layer's input is computed.
    return {
      x: () => tf.matMul(dz, w, false, true),
      w: () => tf.matMul(x, dz, true, false),
      bias: () => sumRows(dz),
    };
  },
};
