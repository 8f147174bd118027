/** Lets layer normalisation over the last axis run as one kernel on the wasm backend. Other axes stay with tf.js. */
import * as tf from '@tensorflow/tfjs-core';
import type * as tfl from '@tensorflow/tfjs-layers';
import { layerNorm } from './layer-norm-wasm.js';

export interface LayerNormInternals {
  readonly axis: readonly number[];
  readonly epsilon: number;
  readonly gamma?: tfl.LayerVariable;
  readonly beta?: tfl.LayerVariable;
  call(inputs: tf.Tensor | tf.Tensor[], kwargs: object): tf.Tensor | tf.Tensor[];
}

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
