/** Lets attention and layer normalisation run as one kernel each on the wasm backend. */
import * as tf from '@tensorflow/tfjs-core';
import type * as tfl from '@tensorflow/tfjs-layers';
import { DENSE_KERNEL } from '../wasm/dense-kernel.js';
import { attendInKernel, layerNorm } from '../wasm/transformer-kernels.js';
import type { MultiHeadAttention } from './attention.js';

export function fuseAttention(layer: tfl.layers.Layer): void {
  const attention = layer as MultiHeadAttention;
  attention.attend = attendInKernel;
  attention.project = (x, w, bias) => {
    const inputs: tf.NamedTensorMap = bias ? { x, w, bias } : { x, w };
    return tf.engine().runKernel(DENSE_KERNEL, inputs, { activation: 'linear' });
  };
}

export interface LayerNormInternals {
  readonly axis: readonly number[];
  readonly epsilon: number;
  readonly gamma?: tfl.LayerVariable;
  readonly beta?: tfl.LayerVariable;
  call(inputs: tf.Tensor | tf.Tensor[], kwargs: object): tf.Tensor | tf.Tensor[];
}

/** Over the last axis alone; other axes stay with tf.js. */
export function fuseLayerNorm(layer: tfl.layers.Layer): void {
  const norm = layer as unknown as LayerNormInternals;
  const stock = norm.call.bind(norm);
  norm.call = (inputs, kwargs) => {
    const x = Array.isArray(inputs) ? inputs[0]! : inputs;
    const [axis, ...others] = norm.axis;
    if (others.length > 0 || axis !== x.rank - 1) return stock(inputs, kwargs);
    const width = [x.shape.at(-1)!];
    return tf.tidy(() => layerNorm(x, norm.gamma?.read() ?? tf.ones(width), norm.beta?.read() ?? tf.zeros(width), norm.epsilon));
  };
}
