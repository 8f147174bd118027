/**
 * Batch normalisation while training (Ioffe & Szegedy 2015) in operations of tf.js, for a backend whose values cannot be looked at while it
 * computes; batch-norm.ts does it in passes over the values. tf.js's own call fails without scale or centre.
 */
import * as tf from '@tensorflow/tfjs-core';
import type * as tfl from '@tensorflow/tfjs-layers';
import { replaceTraining, type BatchNormInternals } from './batch-norm.js';

/** Gives a BatchNormalization layer a training call of ours. */
export const normaliseInOperations = (layer: tfl.layers.Layer): void => replaceTraining(layer, train);

/** y = γ · x̂ + β with x̂ = (x − μ) / √(σ² + ε); its gradients are dβ = Σ dy, dγ = Σ dy · x̂, dx = γ / √(σ² + ε) · (dy − mean dy − x̂ · mean(dy · x̂)). */
function train(x: tf.Tensor, norm: BatchNormInternals): tf.Tensor {
  const axis = norm.axis >= 0 ? norm.axis : norm.axis + x.rank;
  const others = x.shape.map((_, i) => i).filter((i) => i !== axis);
  const channels = x.shape[axis]!;
  const broadcast = x.shape.map((_, i) => (i === axis ? channels : 1));
  const perChannel = (values: tf.Tensor): tf.Tensor => tf.reshape(values, broadcast);
  const op = tf.customGrad((input, gamma, beta, save) => {
    const mean = tf.mean(input as tf.Tensor, others, true);
    const centred = tf.sub(input as tf.Tensor, mean);
    const variance = tf.mean(tf.square(centred), others, true);
    moveAverage(norm.movingMean, mean, norm.momentum);
    moveAverage(norm.movingVariance, variance, norm.momentum);
    const inverseDeviation = tf.rsqrt(tf.add(variance, norm.epsilon));
    const normalised = tf.mul(centred, inverseDeviation);
    const scale = perChannel(gamma as tf.Tensor);
    const value = tf.add(tf.mul(normalised, scale), perChannel(beta as tf.Tensor));
    (save as tf.GradSaveFunc)([normalised, tf.mul(scale, inverseDeviation)]);
    const gradFunc = (dy: tf.Tensor, saved: tf.Tensor[]): tf.Tensor[] => {
      const [xHat, factor] = saved as [tf.Tensor, tf.Tensor];
      const dyTimesX = tf.mul(dy, xHat);
      const centredDy = tf.sub(dy, tf.mean(dy, others, true));
      const dx = tf.mul(factor, tf.sub(centredDy, tf.mul(xHat, tf.mean(dyTimesX, others, true))));
      return [dx, tf.sum(dyTimesX, others), tf.sum(dy, others)];
    };
    return { value, gradFunc };
  });
  return op(x, norm.gamma?.read() ?? tf.ones([channels]), norm.beta?.read() ?? tf.zeros([channels]));
}

/** average ← average · momentum + batch · (1 − momentum). */
function moveAverage(variable: tfl.LayerVariable, batch: tf.Tensor, momentum: number): void {
  const average = variable.read() as tf.Variable;
  average.assign(tf.add(tf.mul(average, momentum), tf.mul(tf.reshape(batch, average.shape), 1 - momentum)));
}
