/** Small kernels that the gradients of ours are made of. Inputs are float32 tensors. All are there on TensorFlow too (../tensorflow/). */
import * as tf from '@tensorflow/tfjs-core';
import type { BackendWasm } from '@tensorflow/tfjs-backend-wasm';
import { heapOf } from './heap.js';

export const RELU_GRADIENT = 'PacelineReluGradient';
export const SUM_ROWS = 'PacelineSumRows';
export const EMPTY = 'PacelineEmpty';

/** dy where y > 0, else 0; y is the output of relu. */
export function reluGradient(dy: tf.Tensor, y: tf.Tensor): tf.Tensor {
  return tf.engine().runKernel(RELU_GRADIENT, { dy, y });
}

/** Sums over all dimensions but the last. */
export function sumRows(x: tf.Tensor): tf.Tensor {
  return tf.engine().runKernel(SUM_ROWS, { x });
}

/** A tensor whose values are yet to be written by the kernel that it is handed to. */
export function empty(shape: number[], dtype: 'float32' | 'bool' = 'float32'): tf.Tensor {
  return tf.engine().runKernel(EMPTY, {}, { shape, dtype });
}

export const passKernels: readonly tf.KernelConfig[] = [
  {
    kernelName: EMPTY,
    backendName: 'wasm',
    kernelFunc: ({ backend, attrs }) => heapOf(backend).output(attrs!['shape'] as number[], attrs!['dtype'] as 'float32' | 'bool'),
  },
  {
    kernelName: RELU_GRADIENT,
    backendName: 'wasm',
    kernelFunc: ({ inputs, backend }) => {
      const { dy, y } = inputs as { dy: tf.TensorInfo; y: tf.TensorInfo };
      const heap = heapOf(backend);
      const dz = heap.output(dy.shape);
      heap.kernels.reluGradient(heap.address(dy), heap.address(y), heap.address(dz), tf.util.sizeFromShape(dy.shape));
      return dz;
    },
  },
  {
    kernelName: SUM_ROWS,
    backendName: 'wasm',
    kernelFunc: ({ inputs, backend }) => {
      const { x } = inputs as { x: tf.TensorInfo };
      const heap = heapOf(backend);
      const columns = x.shape.at(-1)!;
      const out = heap.output([columns]);
      heap.kernels.sumRows(heap.address(x), tf.util.sizeFromShape(x.shape.slice(0, -1)), columns, heap.address(out));
      return out;
    },
  },
];

/**
 * The tape clones every tensor that a gradient will need, and the stock kernel copies it. A clone shares the values here, as
 * it does in the other backends: nothing writes to a tensor that has been handed out.
 */
export const shareClone: tf.KernelFunc = ({ inputs, backend }) => {
  const { dataId, shape, dtype } = inputs['x'] as tf.TensorInfo;
  (backend as BackendWasm).incRef(dataId);
  return { dataId, shape, dtype };
};
