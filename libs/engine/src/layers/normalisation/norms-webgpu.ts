/**
 * Batch normalisation while training (Ioffe & Szegedy 2015) and layer normalisation (Ba, Kiros & Hinton 2016) in operations of tf.js, for a backend
 * whose values cannot be looked at while it computes. tf.js's batch normalisation fails without scale or centre. Its layer normalisation repeats the
 * moments by `tile`, whose gradient adds up one slice per repetition: some 800 kernels for one layer of a transformer with 128 units and 64 steps.
 */
import * as tf from '@tensorflow/tfjs-core';
import type * as tfl from '@tensorflow/tfjs-layers';
import { replaceTraining, type BatchNormInternals } from './batch-norm.js';
import type { LayerNormInternals } from './fuse-layer-norm.js';

export function normaliseInOperations(layer: tfl.layers.Layer): void {
  if (layer.getClassName() === 'BatchNormalization') replaceTraining(layer, batchNorm);
  if (layer.getClassName() !== 'LayerNormalization') return;
  const norm = layer as unknown as LayerNormInternals;
  norm.call = (inputs) => tf.tidy(() => layerNorm(Array.isArray(inputs) ? inputs[0]! : inputs, norm));
}

function batchNorm(x: tf.Tensor, norm: BatchNormInternals): tf.Tensor {
  const axis = norm.axis >= 0 ? norm.axis : norm.axis + x.rank;
  const others = x.shape.map((_, i) => i).filter((i) => i !== axis);
  const normalised = standardised(x, others, norm.epsilon, (mean, variance) => {
    moveAverage(norm.movingMean, mean, norm.momentum);
    moveAverage(norm.movingVariance, variance, norm.momentum);
  });
  return scaledAndShifted(normalised, norm, [axis]);
}

const layerNorm = (x: tf.Tensor, norm: LayerNormInternals): tf.Tensor =>
  scaledAndShifted(standardised(x, norm.axis, norm.epsilon), norm, norm.axis);

/** x̂ = (x − μ) / √(σ² + ε), with mean and variance over the axes; its gradient is (dx̂ − mean dx̂ − x̂ · mean(dx̂ · x̂)) / √(σ² + ε). */
function standardised(
  x: tf.Tensor,
  axes: readonly number[],
  epsilon: number,
  withMoments?: (mean: tf.Tensor, variance: tf.Tensor) => void,
): tf.Tensor {
  const meanOf = (values: tf.Tensor): tf.Tensor => tf.mean(values, [...axes], true);
  const op = tf.customGrad((input, save) => {
    const mean = meanOf(input as tf.Tensor);
    const centred = tf.sub(input as tf.Tensor, mean);
    const variance = meanOf(tf.square(centred));
    withMoments?.(mean, variance);
    const inverseDeviation = tf.rsqrt(tf.add(variance, epsilon));
    const value = tf.mul(centred, inverseDeviation);
    (save as tf.GradSaveFunc)([value, inverseDeviation]);
    const gradFunc = (dy: tf.Tensor, saved: tf.Tensor[]): tf.Tensor => {
      const [xHat, factor] = saved as [tf.Tensor, tf.Tensor];
      return tf.mul(factor, tf.sub(tf.sub(dy, meanOf(dy)), tf.mul(xHat, meanOf(tf.mul(dy, xHat)))));
    };
    return { value, gradFunc };
  });
  return op(x);
}

/** γ · x̂ + β, as far as the layer has them, along the axes. */
function scaledAndShifted(
  xHat: tf.Tensor,
  { gamma, beta }: Pick<LayerNormInternals, 'gamma' | 'beta'>,
  axes: readonly number[],
): tf.Tensor {
  const broadcast = (variable: tfl.LayerVariable): tf.Tensor =>
    tf.reshape(
      variable.read(),
      xHat.shape.map((size, i) => (axes.includes(i) ? size : 1)),
    );
  const scaled = gamma ? tf.mul(xHat, broadcast(gamma)) : xHat;
  return beta ? tf.add(scaled, broadcast(beta)) : scaled;
}

/** average ← average · momentum + batch · (1 − momentum). */
function moveAverage(variable: tfl.LayerVariable, batch: tf.Tensor, momentum: number): void {
  const average = variable.read() as tf.Variable;
  average.assign(tf.add(tf.mul(average, momentum), tf.mul(tf.reshape(batch, average.shape), 1 - momentum)));
}
