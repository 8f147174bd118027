/** Dropout and noise from counter-based streams. A seed in the layer's config is part of the run's seed only by name: it is ignored. */
import * as tf from '@tensorflow/tfjs-core';
import type * as tfl from '@tensorflow/tfjs-layers';
import type { Randomness } from '../training/randomness.js';

interface RandomLayer {
  rate: number;
  stddev: number;
  getNoiseShape?(input: tf.Tensor): number[] | null | undefined;
  call(inputs: tf.Tensor | tf.Tensor[], kwargs: { training?: boolean }): tf.Tensor | tf.Tensor[];
}

type Noise = (input: tf.Tensor, layer: RandomLayer, randomness: Randomness) => tf.Tensor;

/** Keeps each unit with probability 1 − rate, scaled by 1 / (1 − rate) (Srivastava et al. 2014). */
const dropout: Noise = (input, layer, randomness) => {
  if (layer.rate <= 0) return input;
  const shape = layer.getNoiseShape?.(input) ?? input.shape;
  const mask = new Float32Array(tf.util.sizeFromShape(shape));
  if (layer.rate < 1) {
    const stream = randomness.stream();
    const scale = 1 / (1 - layer.rate);
    for (let i = 0; i < mask.length; i++) mask[i] = stream.nextFloat() < layer.rate ? 0 : scale;
  }
  return tf.mul(input, tf.tensor(mask, shape));
};

const normal = (shape: number[], mean: number, deviation: number, randomness: Randomness): tf.Tensor => {
  const values = new Float32Array(tf.util.sizeFromShape(shape));
  const stream = randomness.stream();
  for (let i = 0; i < values.length; i++) values[i] = mean + deviation * stream.nextNormal();
  return tf.tensor(values, shape);
};

const gaussianNoise: Noise = (input, layer, randomness) => tf.add(input, normal(input.shape, 0, layer.stddev, randomness));

const gaussianDropout: Noise = (input, layer, randomness) => {
  if (layer.rate <= 0 || layer.rate >= 1) return input;
  return tf.mul(input, normal(input.shape, 1, Math.sqrt(layer.rate / (1 - layer.rate)), randomness));
};

const NOISE: Readonly<Record<string, Noise>> = {
  Dropout: dropout,
  SpatialDropout1D: dropout,
  SpatialDropout2D: dropout,
  GaussianNoise: gaussianNoise,
  GaussianDropout: gaussianDropout,
};

/** Replaces the call of a dropout or noise layer; other layers are left alone. */
export function drawFromStreams(layer: tfl.layers.Layer, randomness: Randomness): void {
  const noise = NOISE[layer.getClassName()];
  if (!noise) return;
  const random = layer as unknown as RandomLayer;
  random.call = (inputs, kwargs) => {
    const input = Array.isArray(inputs) ? inputs[0]! : inputs;
    return kwargs.training === true ? tf.tidy(() => noise(input, random, randomness)) : input;
  };
}
