import * as tf from '@tensorflow/tfjs-core';
import type * as tfl from '@tensorflow/tfjs-layers';
import { DENSE_KERNEL } from './dense-wasm.js';
import { gelu } from '../activations/gelu-wasm.js';

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

/** On wasm also rows of rows, which are one matrix, and GELU. */
export function fuseDenseOfRows(layer: tfl.layers.Layer): void {
  fuseDense(layer);
  const dense = layer as unknown as DenseInternals;
  const activation = dense.activation?.getClassName() ?? 'linear';
  const isGelu = activation === 'gelu';
  if (!isGelu && activation !== 'linear' && activation !== 'relu') return;
  const stock = dense.call.bind(dense);
  dense.call = (inputs, kwargs) => {
    const x = Array.isArray(inputs) ? inputs[0]! : inputs;
    if (x.rank < 2 || (x.rank === 2 && !isGelu)) return stock(inputs, kwargs);
    return tf.tidy(() => {
      const w = dense.kernel.read();
      const [width, units] = w.shape as [number, number];
      const rows = tf.reshape(x, [x.size / width, width]);
      const named = Object.assign({ x: rows, w }, dense.bias && { bias: dense.bias.read() });
      const y: tf.Tensor = tf.engine().runKernel(DENSE_KERNEL, named, { activation: isGelu ? 'linear' : activation });
      return tf.reshape(isGelu ? gelu(y) : y, [...x.shape.slice(0, -1), units]);
    });
  };
}
