/**
 * The losses for a backend that is not read while it computes: their gradients as operations of tf.js. Definitions and their source stand in
 * ../row-losses.ts; values and metrics come from the outputs once they are read (`evaluateLoss`).
 */
import * as tf from '@tensorflow/tfjs-core';
import type { LossName, LossOptions } from '@paceline/spec';
import { maskOfRows, type Scoring } from '../../loss/loss.js';
import { CEILING, EPSILON, HUBER_DELTA } from '../../loss/row-losses.js';

/** d(loss of a row)/d(row): outputs and targets [rows, width]. */
export type Gradient = (outputs: tf.Tensor2D, targets: tf.Tensor2D) => tf.Tensor;

const clipped = (p: tf.Tensor): tf.Tensor => tf.clipByValue(p, EPSILON, CEILING);
const inside = (p: tf.Tensor): tf.Tensor => tf.cast(tf.logicalAnd(tf.greaterEqual(p, EPSILON), tf.lessEqual(p, CEILING)), 'float32');
const widthOf = (x: tf.Tensor2D): number => x.shape[1];

const ofDistribution: Gradient = (z, t) => tf.sub(tf.mul(tf.softmax(z), tf.sum(t, 1, true)), t);
const sparseOfProbabilities: Gradient = (p, t) => {
  const near = clipped(p);
  return tf.mul(inside(p), tf.sub(tf.div(tf.sum(t, 1, true), tf.sum(near, 1, true)), tf.div(t, near)));
};
const categoricalOfProbabilities: Gradient = (p, t) => {
  const sum = tf.sum(p, 1, true);
  const share = tf.div(p, sum);
  const slope = tf.neg(tf.div(tf.mul(inside(share), t), clipped(share)));
  return tf.div(tf.sub(slope, tf.sum(tf.mul(slope, share), 1, true)), sum);
};
const binaryOfLogits: Gradient = (z, t) => tf.div(tf.sub(tf.sigmoid(z), t), widthOf(z));
const binaryOfProbabilities: Gradient = (p, t) => {
  const near = clipped(p);
  const slope = tf.sub(tf.div(tf.sub(1, t), tf.sub(1, near)), tf.div(t, near));
  return tf.div(tf.mul(inside(p), slope), widthOf(p));
};
const squaredError: Gradient = (x, t) => tf.mul(tf.sub(x, t), 2 / widthOf(x));
const absoluteError: Gradient = (x, t) => tf.div(tf.sign(tf.sub(x, t)), widthOf(x));
const absolutePercentageError: Gradient = (x, t) => tf.div(tf.mul(tf.sign(tf.sub(x, t)), 100 / widthOf(x)), tf.maximum(tf.abs(t), EPSILON));
const flag = (is: tf.Tensor): tf.Tensor => tf.cast(is, 'float32');
const squaredLogarithmicError: Gradient = (x, t) => {
  const near = tf.maximum(x, EPSILON);
  const difference = tf.sub(tf.log1p(near), tf.log1p(tf.maximum(t, EPSILON)));
  return tf.mul(flag(tf.greater(x, EPSILON)), tf.div(tf.mul(difference, 2 / widthOf(x)), tf.add(near, 1)));
};
const huberOf =
  (delta: number): Gradient =>
  (x, t) =>
    tf.div(tf.clipByValue(tf.sub(x, t), -delta, delta), widthOf(x));
const logCosh: Gradient = (x, t) => tf.div(tf.tanh(tf.sub(x, t)), widthOf(x));
/** −1 where the target is 0. */
const side = (t: tf.Tensor): tf.Tensor => tf.sub(t, flag(tf.equal(t, 0)));
const hinge: Gradient = (x, t) => {
  const sides = side(t);
  return tf.mul(flag(tf.less(tf.mul(sides, x), 1)), tf.div(sides, -widthOf(x)));
};
const squaredHinge: Gradient = (x, t) => {
  const sides = side(t);
  return tf.mul(tf.relu(tf.sub(1, tf.mul(sides, x))), tf.div(sides, -widthOf(x) / 2));
};
const categoricalHinge: Gradient = (x, t) => {
  const others = tf.mul(tf.sub(1, t), x);
  const isWrong = flag(tf.greater(tf.sub(tf.add(tf.max(others, 1, true), 1), tf.sum(tf.mul(t, x), 1, true)), 0));
  const first = tf.oneHot(tf.argMax(others, 1) as tf.Tensor1D, widthOf(x), 1, 0, 'float32');
  return tf.mul(isWrong, tf.sub(tf.mul(first, tf.sub(1, t)), t));
};
const poisson: Gradient = (x, t) => tf.div(tf.sub(1, tf.div(t, tf.add(x, EPSILON))), widthOf(x));
const cosineSimilarity: Gradient = (x, t) => {
  const lengthOf = (of: tf.Tensor): tf.Tensor => tf.sqrt(tf.sum(tf.square(of), 1, true));
  const length = tf.maximum(lengthOf(x), EPSILON);
  const toTarget = tf.div(t, tf.maximum(lengthOf(t), EPSILON));
  const direction = tf.div(x, length);
  const similarity = tf.mul(tf.sum(tf.mul(toTarget, direction), 1, true), flag(tf.greater(lengthOf(x), EPSILON)));
  return tf.div(tf.sub(tf.mul(similarity, direction), toTarget), length);
};
const divergence: Gradient = (p, t) => {
  const isInside = flag(tf.logicalAnd(tf.greaterEqual(p, EPSILON), tf.lessEqual(p, 1)));
  return tf.neg(tf.mul(isInside, tf.div(tf.clipByValue(t, EPSILON, 1), tf.clipByValue(p, EPSILON, 1))));
};

type Forms = Readonly<Record<'logits' | 'probabilities', Gradient>>;
const both = (of: Gradient): Forms => ({ logits: of, probabilities: of });

const GRADIENTS: Readonly<Record<Exclude<LossName, 'huber'>, Forms>> = {
  sparseCategoricalCrossentropy: { logits: (z, t) => tf.sub(tf.softmax(z), t), probabilities: sparseOfProbabilities },
  categoricalCrossentropy: { logits: ofDistribution, probabilities: categoricalOfProbabilities },
  binaryCrossentropy: { logits: binaryOfLogits, probabilities: binaryOfProbabilities },
  meanSquaredError: both(squaredError),
  meanAbsoluteError: both(absoluteError),
  meanAbsolutePercentageError: both(absolutePercentageError),
  meanSquaredLogarithmicError: both(squaredLogarithmicError),
  logCosh: both(logCosh),
  hinge: both(hinge),
  squaredHinge: both(squaredHinge),
  categoricalHinge: both(categoricalHinge),
  poisson: both(poisson),
  cosineSimilarity: both(cosineSimilarity),
  kullbackLeiblerDivergence: both(divergence),
};

/** d(loss)/d(rows) of rows [rows, width]. */
export function gradientOf(loss: LossName, { labelSmoothing = 0, delta = HUBER_DELTA }: LossOptions, form: keyof Forms): Gradient {
  if (loss === 'huber') return huberOf(delta);
  const of = GRADIENTS[loss][form];
  if (labelSmoothing === 0) return of;
  return (x, t) =>
    of(x, tf.add(tf.mul(t, 1 - labelSmoothing), labelSmoothing / (loss === 'binaryCrossentropy' ? 2 : widthOf(x))) as tf.Tensor2D);
}

/**
 * A scalar on the tape with the gradient of the loss of an output. Its value is 0.
 * @param logits see LogitsBefore: the gradient goes there
 * @param mask see MaskRecorder
 */
export function lossInOperations(scoring: Scoring, outputs: tf.Tensor, logits?: tf.Tensor, mask?: tf.Tensor): tf.Scalar {
  const { loss, lossOptions, fromLogits, width } = scoring.output;
  const op = tf.customGrad((x, save) => {
    const of = x as tf.Tensor;
    const rows = tf.reshape(of, [-1, width]) as tf.Tensor2D;
    const form = fromLogits || logits ? 'logits' : 'probabilities';
    const gradient = gradientOf(loss, lossOptions, form)(rows, targetsOf(scoring, rows.shape[0]));
    (save as tf.GradSaveFunc)([tf.reshape(weighted(scoring, gradient, mask), of.shape)]);
    return { value: tf.scalar(0), gradFunc: (_, saved) => saved[0]!.clone() };
  });
  return op(logits ?? outputs) as tf.Scalar;
}

/** [rows, width] */
function targetsOf({ output: { target, width }, targets }: Scoring, rows: number): tf.Tensor2D {
  if (target.kind === 'values' || width === 1) return tf.tensor2d(targets.subarray(0, rows * width), [rows, width]);
  return tf.oneHot(tf.tensor1d(Int32Array.from(targets.subarray(0, rows)), 'int32'), width, 1, 0, 'float32') as tf.Tensor2D;
}

/** Times the factors of the output and of the examples; rows that do not count have none, whatever their gradient is. */
function weighted(scoring: Scoring, gradient: tf.Tensor, mask: tf.Tensor | undefined): tf.Tensor {
  const { output, weights } = scoring;
  const { weight, positions } = output;
  const rows = gradient.shape[0]!;
  const padding = maskOfRows(scoring, rows);
  const column = (values: Float32Array): tf.Tensor2D => tf.tensor2d(values, [rows, 1]);
  const ofExamples = weights && column(Float32Array.from({ length: rows }, (_, row) => weights[Math.floor(row / positions)]!));
  if (!padding && !mask) {
    const factor = weight / positions;
    const scaled = factor === 1 ? gradient : tf.mul(gradient, factor);
    return ofExamples ? onlyWhere(ofExamples, tf.mul(scaled, ofExamples)) : scaled;
  }
  const counts = tf.mul(mask ? ofRows(mask, rows, output.name) : 1, padding ? column(padding) : 1);
  const factor = tf.div((weight * rows) / positions, tf.maximum(tf.sum(counts), 1));
  const factors = ofExamples ? tf.mul(counts, ofExamples) : counts;
  return onlyWhere(factors, tf.mul(tf.mul(gradient, factor), factors));
}

const onlyWhere = (factors: tf.Tensor, gradient: tf.Tensor): tf.Tensor =>
  tf.where(tf.broadcastTo(tf.notEqual(factors, 0), gradient.shape as [number, number]), gradient, tf.zerosLike(gradient));

/** [rows, 1]: what counts for several rows is repeated. */
function ofRows(mask: tf.Tensor, rows: number, output: string): tf.Tensor {
  if (rows % mask.size !== 0) throw new RangeError(`a mask of ${mask.size} steps does not fit the ${rows} rows of the output ${output}`);
  return tf.reshape(tf.tile(tf.reshape(mask, [-1, 1]), [1, rows / mask.size]), [rows, 1]);
}
