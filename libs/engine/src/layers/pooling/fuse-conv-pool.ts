import type * as tf from '@tensorflow/tfjs-core';
import type * as tfl from '@tensorflow/tfjs-layers';
import type { ConvMaxPool } from './conv-pool-wasm.js';
import { fusedConvOf } from '../convolution/fuse-conv.js';

interface PoolInternals {
  poolSize: [number, number];
  strides: [number, number];
  padding: string;
  dataFormat: string;
  call(inputs: tf.Tensor | tf.Tensor[], kwargs: object): tf.Tensor | tf.Tensor[];
}

/** A place in a window is a byte. */
const MOST_CELLS = 255;

/**
 * Lets a Conv2D layer do the work of the MaxPooling2D layer that follows it, where the one is covered by the fused kernel and the windows of the other do
 * not overlap: the first then gives what the second would, and the second hands it on.
 */
export function fuseConvPool(first: tfl.layers.Layer, second: tfl.layers.Layer, compute: ConvMaxPool): void {
  if (first.getClassName() !== 'Conv2D' || second.getClassName() !== 'MaxPooling2D') return;
  const conv = fusedConvOf(first);
  const pool = second as unknown as PoolInternals;
  const { poolSize, strides } = pool;
  const isPlain = pool.dataFormat === 'channelsLast' && pool.padding === 'valid' && poolSize[0] * poolSize[1] <= MOST_CELLS;
  if (!conv || !isPlain || strides[0] < poolSize[0] || strides[1] < poolSize[1]) return;
  const attrs = { ...conv.attrs, poolSize, poolStrides: strides };
  conv.layer.call = (inputs, kwargs) => compute(conv.inputs(inputs), attrs, (kwargs as { training?: boolean }).training === true);
  // tf.js makes another tensor of an output that is the input.
  pool.call = (inputs) => inputs;
}
