import * as tf from '@tensorflow/tfjs-core';
import type * as tfl from '@tensorflow/tfjs-layers';
import { DENSE_KERNEL } from '../wasm/dense-kernel.js';

interface DenseInternals {
  activation: { getClassName(): string } | null;
  kernel: tfl.LayerVariable;
  bias: tfl.LayerVariable | null;
  call(inputs: tf.Tensor | tf.Tensor[], kwargs: object): tf.Tensor | tf.Tensor[];
}

/** Lets a Dense layer use the fused kernel for what it covers: rank 2, activation none or relu. */
export function fuseDense(layer: tfl.layers.Layer): void {
  const dense = layer as unknown as DenseInternals;
  const activation = dense.activation?.getClassName() ?? 'linear';
  if (activation !== 'linear' && activation !== 'relu') return;
  const stock = dense.call.bind(dense);
  dense.call = (inputs, kwargs) => {
    const x = Array.isArray(inputs) ? inputs[0]! : inputs;
    if (x.rank !== 2) return stock(inputs, kwargs);
    const w = dense.kernel.read();
    return tf.engine().runKernel(DENSE_KERNEL, { x, w, ...(dense.bias ? { bias: dense.bias.read() } : {}) }, { activation });
  };
}
