/**
 * Losses and metrics of the last layer's output [n, classes] against labels, as SUMS over the examples: the servers divide
 * once by the examples of the round. Value, gradient and correct count come from one pass in plain JavaScript over the
 * values where they lie: at 64 × 10 that is 10 µs, where tf.losses with its autodiff takes eleven kernels.
 */
import * as tf from '@tensorflow/tfjs-core';
import type { RunSpec } from '@paceline/spec';
import type { TensorMemory } from './tensor-memory.js';

/** A type, not an interface: tf.tidy takes only what has an index signature. */
export type Scored = {
  /** Sum of the examples' losses, accumulated in double precision. */
  readonly lossSum: number;
  /** Examples whose largest output is at the label; the first of equals counts. */
  readonly correct: number;
};

/** Scores one row and, if wanted, writes d(loss)/d(row). */
type RowLoss = (outputs: Float32Array, at: number, classes: number, label: number, gradient: Float32Array | undefined) => number;

/** Softmax cross-entropy from logits: log Σ exp(z) − z[label]; its gradient is softmax(z) − onehot. */
const crossEntropy: RowLoss = (z, at, classes, label, gradient) => {
  let max = z[at]!;
  for (let c = 1; c < classes; c++) if (z[at + c]! > max) max = z[at + c]!;
  let sum = 0;
  for (let c = 0; c < classes; c++) sum += Math.exp(z[at + c]! - max);
  if (gradient) {
    for (let c = 0; c < classes; c++) gradient[at + c] = Math.exp(z[at + c]! - max) / sum - (c === label ? 1 : 0);
  }
  return Math.log(sum) + max - z[at + label]!;
};

/** Mean over the outputs of (output − onehot)², as Keras has it. */
const squaredError: RowLoss = (outputs, at, classes, label, gradient) => {
  let sum = 0;
  for (let c = 0; c < classes; c++) {
    const difference = outputs[at + c]! - (c === label ? 1 : 0);
    sum += difference * difference;
    if (gradient) gradient[at + c] = (2 * difference) / classes;
  }
  return sum / classes;
};

const ROW_LOSSES: Readonly<Record<RunSpec['loss'], RowLoss>> = {
  sparseCategoricalCrossentropy: crossEntropy,
  // The same numbers: labels are class indices here, their one-hot form is never built.
  categoricalCrossentropy: crossEntropy,
  meanSquaredError: squaredError,
};

function score(rowLoss: RowLoss, outputs: Float32Array, labels: Int32Array, classes: number, gradient?: Float32Array): Scored {
  const count = outputs.length / classes;
  let lossSum = 0;
  let correct = 0;
  for (let row = 0; row < count; row++) {
    const at = row * classes;
    const label = labels[row]!;
    lossSum += rowLoss(outputs, at, classes, label, gradient);
    let best = 0;
    for (let c = 1; c < classes; c++) if (outputs[at + c]! > outputs[at + best]!) best = c;
    if (best === label) correct++;
  }
  return { lossSum, correct };
}

/** Scores without a gradient. `outputs` [n, classes] float32, `labels` at least n class indices, checked by the caller. */
export function evaluateLoss(
  loss: RunSpec['loss'],
  memory: Pick<TensorMemory, 'values'>,
  outputs: tf.TensorInfo,
  labels: Int32Array,
): Scored {
  return score(ROW_LOSSES[loss], memory.values(outputs), labels, outputs.shape[1]!);
}

/**
 * For a backend that is not read while it computes: a scalar on the tape with the gradient of the loss, made from operations. Its value is 0;
 * loss and correct count come from the outputs, once they are read (`evaluateLoss`).
 */
export function lossInOperations(loss: RunSpec['loss'], outputs: tf.Tensor, labels: Int32Array): tf.Scalar {
  const op = tf.customGrad((x, save) => {
    const [count, classes] = (x as tf.Tensor2D).shape;
    const targets = tf.oneHot(tf.tensor1d(labels.subarray(0, count), 'int32'), classes, 1, 0, 'float32');
    const gradient =
      loss === 'meanSquaredError' ? tf.mul(tf.sub(x as tf.Tensor, targets), 2 / classes) : tf.sub(tf.softmax(x as tf.Tensor), targets);
    (save as tf.GradSaveFunc)([gradient]);
    return { value: tf.scalar(0), gradFunc: (_, saved) => saved[0]!.clone() };
  });
  return op(outputs) as tf.Scalar;
}

/**
 * The loss as a differentiable scalar on the tape, for d(sum of losses)/d(variables).
 * @param onScored is called once, in the forward pass
 */
export function differentiableLoss(
  loss: RunSpec['loss'],
  memory: TensorMemory,
  outputs: tf.Tensor,
  labels: Int32Array,
  onScored: (scored: Scored) => void,
): tf.Scalar {
  const op = tf.customGrad((x, save) => {
    const outputsOf = x as tf.Tensor;
    const gradient = new Float32Array(outputsOf.size);
    const scored = score(ROW_LOSSES[loss], memory.values(outputsOf), labels, outputsOf.shape[1]!, gradient);
    onScored(scored);
    (save as tf.GradSaveFunc)([tf.tensor(gradient, outputsOf.shape)]);
    // The factor is 1: nothing but this loss and the regularisation are added up to the value.
    return { value: tf.scalar(scored.lossSum), gradFunc: (_, saved) => saved[0]!.clone() };
  });
  return op(outputs) as tf.Scalar;
}
