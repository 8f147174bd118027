/** Adds a block of rows to the sums of a metric (metric-table.ts), row by row in their order, in double precision. */
import type { MeasuredName } from '@paceline/spec';
import { bucketOf } from './area-under-curve.js';
import {
  AUC_THRESHOLDS,
  FALSE_NEGATIVES,
  FALSE_POSITIVES,
  R2_SUMS,
  THRESHOLD,
  TOP_K,
  TRUE_POSITIVES,
  type MetricOptions,
} from './metric-table.js';

/** One output of a block: rows are its examples, or their steps where the output has several. */
export interface MetricBlock {
  readonly rows: number;
  /** Numbers of a row of `predictions`. */
  readonly width: number;
  readonly predictions: Float32Array;
  /** Turns predictions into probabilities; absent if they are probabilities already, or values. */
  readonly activation?: 'softmax' | 'sigmoid' | undefined;
  /** The loss is a hinge: errors compare outputs with targets of values as they are. */
  readonly isMargin?: boolean;
  /** Classes of the target; 0 for values. Two classes may have a single output. */
  readonly classes: number;
  /** The class of each row; of a target of values `width` numbers a row. */
  readonly targets: Float32Array;
  /** Weight of each row, 1 by default. A row of weight 0 does not count, whatever it holds. */
  readonly weights?: Float32Array | undefined;
  /** r2Score: columns of a row of the target, where an example of it is laid out otherwise than the output. */
  readonly columns?: number | undefined;
}

type AddRow = (block: MetricBlock, row: number, weight: number, sums: Float64Array, at: number, options: MetricOptions) => void;

const targetAt = ({ targets, classes, width }: MetricBlock, row: number, c: number): number =>
  classes === 0 ? targets[row * width + c]! : width === 1 ? targets[row]! : c === targets[row] ? 1 : 0;

/** What Keras divides by and takes logarithms of at least. */
const FLOOR = 1e-7;

/** The first of the largest. */
function largest(values: Float32Array, at: number, width: number): number {
  let best = 0;
  for (let c = 1; c < width; c++) if (values[at + c]! > values[at + best]!) best = c;
  return best;
}

/** The class of a row: of its target, or the largest of its numbers. */
const wanted = ({ targets, classes, width }: MetricBlock, row: number): number =>
  classes > 0 ? targets[row]! : width === 1 ? (targets[row]! > THRESHOLD ? 1 : 0) : largest(targets, row * width, width);

/** The logarithm of what the exponentials of a row add up to; 0 where no softmax is taken. A row has it once, and many classes. */
const logTotal = ({ predictions, activation, width }: MetricBlock, row: number): number =>
  activation === 'softmax' ? logSum(predictions, row * width, width) : 0;

/** @param total `logTotal` of the row */
function probability({ predictions, activation, width }: MetricBlock, row: number, c: number, total: number): number {
  const value = predictions[row * width + c]!;
  if (activation === 'sigmoid') return 1 / (1 + Math.exp(-value));
  return activation === 'softmax' ? Math.exp(value - total) : value;
}

function logSum(values: Float32Array, at: number, width: number): number {
  const max = values[at + largest(values, at, width)]!;
  let sum = 0;
  for (let c = 0; c < width; c++) sum += Math.exp(values[at + c]! - max);
  return max + Math.log(sum);
}

/** Outputs are float32, so the threshold is, like that of Keras: an output that equals it is not above it. */
const isAbove = (probability: number, threshold: number): boolean => probability > Math.fround(threshold);

/** The class that a row is taken for. What is no number is taken for none: −1. */
function taken(block: MetricBlock, row: number, threshold: number): number {
  const { predictions, width } = block;
  if (width === 1) {
    const p = probability(block, row, 0, logTotal(block, row));
    return Number.isNaN(p) ? -1 : isAbove(p, threshold) ? 1 : 0;
  }
  const best = largest(predictions, row * width, width);
  return Number.isNaN(predictions[row * width + best]!) ? -1 : best;
}

const meanOf =
  (value: (block: MetricBlock, row: number, options: MetricOptions) => number): AddRow =>
  (block, row, weight, sums, at, options) => {
    sums[at]! += weight * value(block, row, options);
    sums[at + 1]! += weight;
  };

/** What errors of a row compare with its target: the probabilities of classes, or the values. */
function comparedIn(block: MetricBlock, row: number): (c: number) => number {
  const { predictions, width, classes, activation, isMargin } = block;
  if (activation === undefined || (isMargin === true && classes === 0)) return (c) => predictions[row * width + c]!;
  const total = logTotal(block, row);
  return (c) => probability(block, row, c, total);
}

const overColumns =
  (of: (difference: number, target: number) => number) =>
  (block: MetricBlock, row: number): number => {
    const { width } = block;
    const compared = comparedIn(block, row);
    let sum = 0;
    for (let c = 0; c < width; c++) {
      const target = targetAt(block, row, c);
      sum += of(compared(c) - target, target);
    }
    return sum / width;
  };
const squared = meanOf(overColumns((difference) => difference * difference));
/** In percent of the target, of which at least `FLOOR` counts. */
const percentage = meanOf(overColumns((difference, target) => (100 * Math.abs(difference)) / Math.max(Math.abs(target), FLOOR)));

/** The share of the numbers of a row that are on the side of the threshold where their targets are. */
function saidRight(block: MetricBlock, row: number, { threshold = THRESHOLD }: MetricOptions): number {
  const { width } = block;
  const total = logTotal(block, row);
  let right = 0;
  for (let c = 0; c < width; c++) {
    const p = probability(block, row, c, total);
    if (!Number.isNaN(p) && isAbove(p, threshold) === targetAt(block, row, c) > THRESHOLD) right++;
  }
  return right / width;
}

const addTopK = meanOf((block, row, { k = TOP_K }) => {
  const { predictions, width } = block;
  const own = width === 1 ? Number.NaN : predictions[row * width + wanted(block, row)]!;
  if (width === 1) return taken(block, row, THRESHOLD) === wanted(block, row) ? 1 : 0;
  let above = 0;
  for (let c = 0; c < width; c++) if (predictions[row * width + c]! > own) above++;
  return above < k && !Number.isNaN(own) ? 1 : 0;
});

const otherOfTwo = (classes: number, is: number, said: number): number => (said < 0 && classes === 2 ? 1 - is : said);

/** Counts true positives, false positives and false negatives: per class, or of all elements together for a target of values. */
const addCounters: AddRow = (block, row, weight, sums, at, { threshold = THRESHOLD }) => {
  const { classes, width } = block;
  if (classes > 0) {
    const is = wanted(block, row);
    // What is no number is taken for none, which of two classes is the other one.
    const said = otherOfTwo(classes, is, taken(block, row, threshold));
    if (is === said) sums[at + 3 * is + TRUE_POSITIVES]! += weight;
    else {
      sums[at + 3 * is + FALSE_NEGATIVES]! += weight;
      if (said >= 0) sums[at + 3 * said + FALSE_POSITIVES]! += weight;
    }
    return;
  }
  const total = logTotal(block, row);
  for (let c = 0; c < width; c++) {
    const [is, p] = [targetAt(block, row, c) > THRESHOLD, probability(block, row, c, total)];
    const said = Number.isNaN(p) ? !is : isAbove(p, threshold);
    if (is && said) sums[at + TRUE_POSITIVES]! += weight;
    else if (said) sums[at + FALSE_POSITIVES]! += weight;
    else if (is) sums[at + FALSE_NEGATIVES]! += weight;
  }
};

/**
 * Two classes: the scores of the second. More, and values: all elements together, each class against the others. The score of a negative that is no number
 * is above every threshold, that of a positive above none.
 */
const addScores: AddRow = (block, row, weight, sums, at, { thresholds = AUC_THRESHOLDS }) => {
  const { classes, width } = block;
  const total = logTotal(block, row);
  for (let c = classes === 2 && width === 2 ? 1 : 0; c < width; c++) {
    const [is, p] = [targetAt(block, row, c) > THRESHOLD, probability(block, row, c, total)];
    const bucket = bucketOf(Number.isNaN(p) && !is ? 1 : p, thresholds);
    sums[at + (is ? 0 : thresholds) + bucket]! += weight;
  }
};

const addSpread: AddRow = (block, row, weight, sums, at) => {
  const { predictions, width, columns = width } = block;
  for (let c = 0; c < width; c++) {
    const target = targetAt(block, row, c);
    const column = at + R2_SUMS * ((row * width + c) % columns);
    sums[column]! += weight;
    sums[column + 1]! += weight * target;
    sums[column + 2]! += weight * target * target;
    sums[column + 3]! += weight * (target - predictions[row * width + c]!) ** 2;
  }
};

const clipped = (p: number): number => (p < FLOOR ? FLOOR : p > 1 - FLOOR ? 1 - FLOOR : p);

/** Crossentropy of the row: a single output answers with yes or no. */
const addSurprise = meanOf((block, row) => {
  const { predictions, activation, width } = block;
  const at = row * width;
  const sum = logTotal(block, row);
  if (width === 1) {
    const [target, p] = [targetAt(block, row, 0), clipped(probability(block, row, 0, sum))];
    return -(target * Math.log(p) + (1 - target) * Math.log(1 - p));
  }
  let total = 0;
  if (activation !== 'softmax') for (let c = 0; c < width; c++) total += probability(block, row, c, sum);
  const surprise = (c: number): number =>
    activation === 'softmax' ? sum - predictions[at + c]! : -Math.log(clipped(probability(block, row, c, sum) / total));
  if (block.classes > 0) return surprise(wanted(block, row));
  let mean = 0;
  for (let c = 0; c < width; c++) if (targetAt(block, row, c) !== 0) mean += targetAt(block, row, c) * surprise(c);
  return mean;
});

const addSimilarity = meanOf((block, row) => {
  const compared = comparedIn(block, row);
  let [product, lengthOfTarget, lengthOfRow] = [0, 0, 0];
  for (let c = 0; c < block.width; c++) {
    const [target, value] = [targetAt(block, row, c), compared(c)];
    product += target * value;
    lengthOfTarget += target * target;
    lengthOfRow += value * value;
  }
  // Keras divides by at least its epsilon, so what has no length is like nothing.
  return product / (Math.max(Math.sqrt(lengthOfTarget), 1e-7) * Math.max(Math.sqrt(lengthOfRow), 1e-7));
});

const addPair: AddRow = (block, row, weight, sums, at, { threshold = THRESHOLD }) => {
  const [is, said] = [wanted(block, row), taken(block, row, threshold)];
  // What is taken for no class is wrong: it counts for the class after its own.
  sums[at + is * block.classes + (said >= 0 ? said : (is + 1) % block.classes)]! += weight;
};

const ADDS: Readonly<Record<MeasuredName, AddRow>> = {
  accuracy: meanOf((block, row) => (taken(block, row, THRESHOLD) === wanted(block, row) ? 1 : 0)),
  binaryAccuracy: meanOf(saidRight),
  topKCategoricalAccuracy: addTopK,
  precision: addCounters,
  recall: addCounters,
  f1Score: addCounters,
  auc: addScores,
  meanAbsoluteError: meanOf(overColumns((difference) => Math.abs(difference))),
  meanSquaredError: squared,
  rootMeanSquaredError: squared,
  meanAbsolutePercentageError: percentage,
  r2Score: addSpread,
  perplexity: addSurprise,
  cosineSimilarity: addSimilarity,
  confusionMatrix: addPair,
};

/** Adds the rows of a block to the sums of a metric, which begin at `at`. The weights count where they are 0, or all of them with `weighted`. */
export function addMetricSums(name: MeasuredName, block: MetricBlock, sums: Float64Array, at = 0, options: MetricOptions = {}): void {
  const add = ADDS[name];
  for (let row = 0; row < block.rows; row++) {
    const weight = block.weights?.[row] ?? 1;
    if (weight !== 0) add(block, row, options.weighted === true ? weight : 1, sums, at, options);
  }
}
