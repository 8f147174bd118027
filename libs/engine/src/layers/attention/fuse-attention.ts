/** Lets attention run as one kernel on the wasm backend. */
import * as tf from '@tensorflow/tfjs-core';
import type * as tfl from '@tensorflow/tfjs-layers';
import { DENSE_KERNEL } from '../dense/dense-wasm.js';
import { attendInKernel } from './attention-wasm.js';
import type { MultiHeadAttention } from './attention.js';

export function fuseAttention(layer: tfl.layers.Layer): void {
  const attention = layer as MultiHeadAttention;
  attention.attend = attendInKernel;
  attention.project = (x, w, bias) => {
    const inputs: tf.NamedTensorMap = bias ? { x, w, bias } : { x, w };
    return tf.engine().runKernel(DENSE_KERNEL, inputs, { activation: 'linear' });
  };
}
