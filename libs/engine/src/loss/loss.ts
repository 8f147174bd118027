/**
 * Losses and metrics of the outputs of a model, as SUMS over the examples: the servers divide once by the examples of the round. Value, gradient and
 * metrics come from one pass in plain JavaScript over the values where they lie: at 64 × 10 that is 10 µs, where tf.losses with its
 * autodiff takes eleven kernels.
 *
 * Each loss is that of Keras 3 (keras.losses). An output [n, ..., width] counts as its mean over all axes between the first and the last. The weight of an
 * example multiplies its loss, as sample_weight does with the reduction sum_over_batch_size: what is divided by stays the count of examples, not the
 * sum of the weights. Metrics are not weighted. Rows that a mask leaves out count nowhere.
 *
 * Where the target is classes it stands for its one-hot form, which is never built; at an output of width 1 it is 0 or 1 itself.
 */
import { addMetricSums, type MetricPlan } from '@paceline/learning';
import { CROSSENTROPIES, HINGES } from '@paceline/spec';
import * as tf from '@tensorflow/tfjs-core';
import type { BoundOutput } from '../model/ends.js';
import { rowLossOf } from './row-losses.js';
import type { TensorMemory } from '../backends/tensor-memory.js';

/** What an output is scored against: `targets` and `weights` of a batch, at least so long as it needs, checked by the caller. */
export interface Scoring {
  readonly output: BoundOutput;
  readonly targets: Float32Array;
  readonly weights: Float32Array | undefined;
  /** The mask of the output (output-masks.ts): one number for each row, or for several rows together; 0 where they do not count. */
  readonly mask?: Float32Array | undefined;
}

/**
 * Which rows count, as 1 or 0; undefined where all do.
 * @param rows of the batch
 */
export function maskOfRows({ output, targets, mask }: Scoring, rows: number): Float32Array | undefined {
  const { target, width, name } = output;
  const isPadded = target.isPadded === true;
  if (!isPadded && !mask) return undefined;
  const perMask = mask ? rows / mask.length : 1;
  if (!Number.isInteger(perMask))
    throw new RangeError(`a mask of ${mask?.length} steps does not fit the ${rows} rows of the output ${name}`);
  const stride = target.kind === 'classes' ? 1 : width;
  return Float32Array.from({ length: rows }, (_, row) =>
    (mask && mask[Math.floor(row / perMask)] === 0) || (isPadded && Number.isNaN(targets[row * stride]!)) ? 0 : 1,
  );
}

/** Logits are what a crossentropy takes for some: the output of a squared error is compared as it is. */
export const halfOf = ({ fromLogits, loss }: Pick<BoundOutput, 'fromLogits' | 'loss'>): number =>
  (fromLogits && CROSSENTROPIES.includes(loss)) || HINGES.includes(loss) ? 0 : 0.5;

/**
 * What the loss of a row is divided by in the sum over the examples. Without a mask an example is the mean of its rows. With one the mean is that of all rows that
 * count, as Keras 3 takes it over a batch (`reduce_weighted_values`), times the examples. Where none counts, nothing is divided.
 */
export function divisorOfRow(rows: number, positions: number, mask: Float32Array | undefined): number {
  return mask ? mask.reduce((sum, counts) => sum + counts, 0) / (rows / positions) : positions;
}

/**
 * Adds to `sums`: the loss over the examples, the sums of the metrics, and, of one output of several, its own loss before its factor.
 * @param logits that the outputs, probabilities, were made of: the loss and its gradient are of these then
 */
function score(
  scoring: Scoring,
  metrics: MetricPlan,
  outputs: Float32Array,
  sums: Float64Array,
  gradient?: Float32Array,
  logits?: Float32Array,
): void {
  const { output, targets, weights } = scoring;
  const { target, loss, lossOptions, fromLogits, width, positions, weight } = output;
  const rows = outputs.length / width;
  const rowLoss = rowLossOf(loss, lossOptions, fromLogits || logits ? 'logits' : 'probabilities');
  const scored = logits ?? outputs;
  const isClasses = target.kind === 'classes';
  const mask = maskOfRows(scoring, rows);
  const divisor = divisorOfRow(rows, positions, mask);
  const own = metrics.losses.find((each) => each.output === output.index)?.at;
  let [lossSum, ownSum] = [0, 0];
  for (let row = 0; row < rows; row++) {
    const ofExample = weights?.[Math.floor(row / positions)] ?? 1;
    const factor = (weight * ofExample) / divisor;
    // What does not count is not looked at: it may hold anything. An output without weight has a loss of its own, and no gradient.
    if ((own === undefined ? factor : ofExample) === 0 || mask?.[row] === 0) continue;
    const at = row * width;
    const value = rowLoss(scored, at, width, isClasses ? targets[row]! : -1, targets, at, factor === 0 ? undefined : gradient);
    if (own !== undefined) ownSum += (ofExample / divisor) * value;
    if (factor === 0) continue;
    lossSum += factor === 1 ? value : factor * value;
    if (gradient && factor !== 1) for (let c = at; c < at + width; c++) gradient[c]! *= factor;
  }
  sums[0]! += lossSum;
  if (own !== undefined) sums[own]! += ownSum;
  addMetrics(scoring, metrics, outputs, mask, sums);
}

/** Metrics count rows alike, but for those that are asked for by the weights of examples. */
function addMetrics(
  { output, targets, weights }: Scoring,
  { planned }: MetricPlan,
  predictions: Float32Array,
  mask: Float32Array | undefined,
  sums: Float64Array,
): void {
  const { target, width, positions } = output;
  const rows = predictions.length / width;
  const classes = target.kind === 'classes' ? target.classes : 0;
  const [activation, isMargin] = [activationOf(output), HINGES.includes(output.loss)];
  for (const { metric, options, target: measured, at, output: of } of planned) {
    if (of !== output.index) continue;
    const byExample = options.weighted === true ? weights : undefined;
    const ofRows = byExample
      ? Float32Array.from({ length: rows }, (_, row) => byExample[Math.floor(row / positions)]! * (mask?.[row] ?? 1))
      : mask;
    const block = { rows, width, predictions, activation, isMargin, classes, targets, weights: ofRows, columns: measured.width };
    addMetricSums(metric, block, sums, at, options);
  }
}

/** What makes probabilities of an output. A hinge tells by the sign, as a logit does; other losses take the output as it is. */
function activationOf({ loss, fromLogits, width }: BoundOutput): 'softmax' | 'sigmoid' | undefined {
  if (!(fromLogits && CROSSENTROPIES.includes(loss)) && !HINGES.includes(loss)) return undefined;
  return width === 1 || loss === 'binaryCrossentropy' || loss === 'hinge' || loss === 'squaredHinge' ? 'sigmoid' : 'softmax';
}

/** Adds the scores of an output [n, ...] float32 to `sums`, without a gradient. */
export function evaluateLoss(
  scoring: Scoring,
  metrics: MetricPlan,
  memory: Pick<TensorMemory, 'values'>,
  outputs: tf.TensorInfo,
  sums: Float64Array,
  logits?: tf.TensorInfo,
): void {
  score(scoring, metrics, memory.values(outputs), sums, undefined, logits && memory.values(logits));
}

/** The same of values that lie in memory already. */
export const addScores = (scoring: Scoring, metrics: MetricPlan, outputs: Float32Array, sums: Float64Array): void =>
  score(scoring, metrics, outputs, sums);

/** Writes the gradient of an output's loss, and adds its scores to `sums`: what differentiableLoss does in the forward pass. */
export function scoreWithGradient(
  scoring: Scoring,
  metrics: MetricPlan,
  outputs: Float32Array,
  logits: Float32Array | undefined,
  gradient: Float32Array,
  sums: Float64Array,
): void {
  gradient.fill(0);
  score(scoring, metrics, outputs, sums, gradient, logits);
}

/**
 * The loss of an output as a differentiable scalar on the tape, for d(sum of losses)/d(variables). Its scores are added to `sums` in the forward pass.
 * @param logits see LogitsBefore: the gradient goes there
 * @param noted hears where the gradient lies
 */
export function differentiableLoss(
  scoring: Scoring,
  metrics: MetricPlan,
  memory: Pick<TensorMemory, 'values'>,
  outputs: tf.Tensor,
  sums: Float64Array,
  logits?: tf.Tensor,
  noted?: (gradient: tf.TensorInfo) => void,
): tf.Scalar {
  const op = tf.customGrad((x, save) => {
    const scored = x as tf.Tensor;
    const gradient = new Float32Array(scored.size);
    score(scoring, metrics, memory.values(outputs), sums, gradient, logits && memory.values(scored));
    const slope = tf.tensor(gradient, scored.shape);
    noted?.(slope);
    (save as tf.GradSaveFunc)([slope]);
    // The factor is 1: nothing but losses and the regularisation are added up to the value, which nobody reads.
    return { value: tf.scalar(0), gradFunc: (_, saved) => saved[0]!.clone() };
  });
  return op(logits ?? outputs) as tf.Scalar;
}
