/**
 * The losses of one row of an output and their gradients, by the definitions of Keras 3 (keras/src/backend/tensorflow/nn.py, keras/src/losses/losses.py).
 * Arithmetic is in double precision on float32 values.
 *
 * From probabilities Keras clips to [epsilon, 1 − epsilon]; what lies outside has no gradient, as in TensorFlow's clip_by_value. Training takes probabilities of a softmax or
 * sigmoid back to their logits where it can (logits-before.ts). The sparse crossentropy
 * normalises what was clipped (it takes the softmax of its logarithms); the categorical one normalises before it clips.
 *
 * An output that is no number makes its loss one, and so the round ends as `gradient.nonFinite` says.
 */
import type { LossName, LossOptions } from '@paceline/spec';

/**
 * Scores one row and, if wanted, writes d(loss)/d(row).
 * @param label the class; −1 where the target is the values `targets[targetsAt ...]`
 */
export type RowLoss = (
  outputs: Float32Array,
  at: number,
  width: number,
  label: number,
  targets: Float32Array,
  targetsAt: number,
  gradient: Float32Array | undefined,
) => number;

/** Element c of the target of a row. */
export const targetOf = (label: number, width: number, targets: Float32Array, targetsAt: number, c: number): number =>
  label < 0 ? targets[targetsAt + c]! : width === 1 ? label : c === label ? 1 : 0;

export const EPSILON = Math.fround(1e-7);
/** 1 − epsilon, in float32. */
export const CEILING = Math.fround(1 - 1e-7);
const clipped = (p: number): number => (p < EPSILON ? EPSILON : p > CEILING ? CEILING : p);
const isInside = (p: number): boolean => p >= EPSILON && p <= CEILING;

/** Softmax cross-entropy from logits: Σ t · (log Σ exp(z) − z); its gradient is softmax(z) · Σ t − t. */
const crossEntropy: RowLoss = (z, at, width, label, targets, targetsAt, gradient) => {
  let max = z[at]!;
  for (let c = 1; c < width; c++) if (z[at + c]! > max) max = z[at + c]!;
  let sum = 0;
  for (let c = 0; c < width; c++) sum += Math.exp(z[at + c]! - max);
  if (label >= 0) {
    if (gradient) for (let c = 0; c < width; c++) gradient[at + c] = Math.exp(z[at + c]! - max) / sum - (c === label ? 1 : 0);
    return Math.log(sum) + max - z[at + label]!;
  }
  const logSum = Math.log(sum) + max;
  let [total, loss] = [0, 0];
  for (let c = 0; c < width; c++) {
    const target = targets[targetsAt + c]!;
    total += target;
    if (target !== 0) loss += target * (logSum - z[at + c]!);
  }
  if (gradient) for (let c = 0; c < width; c++) gradient[at + c] = (Math.exp(z[at + c]! - max) / sum) * total - targets[targetsAt + c]!;
  return loss;
};

const sparseOfProbabilities: RowLoss = (p, at, width, label, targets, targetsAt, gradient) => {
  let [sum, total, loss] = [0, 0, 0];
  for (let c = 0; c < width; c++) sum += clipped(p[at + c]!);
  for (let c = 0; c < width; c++) {
    const target = targetOf(label, width, targets, targetsAt, c);
    if (target === 0) continue;
    total += target;
    loss += target * (Math.log(sum) - Math.log(clipped(p[at + c]!)));
  }
  if (gradient) {
    for (let c = 0; c < width; c++) {
      const value = p[at + c]!;
      gradient[at + c] = isInside(value) ? total / sum - targetOf(label, width, targets, targetsAt, c) / value : 0;
    }
  }
  return loss;
};

const categoricalOfProbabilities: RowLoss = (p, at, width, label, targets, targetsAt, gradient) => {
  let sum = 0;
  for (let c = 0; c < width; c++) sum += p[at + c]!;
  let [loss, weighted] = [0, 0];
  for (let c = 0; c < width; c++) {
    const target = targetOf(label, width, targets, targetsAt, c);
    if (target === 0) continue;
    const share = p[at + c]! / sum;
    loss -= target * Math.log(clipped(share));
    if (isInside(share)) weighted -= target; // d(loss)/d(share) · share
  }
  if (gradient) {
    for (let c = 0; c < width; c++) {
      const share = p[at + c]! / sum;
      const slope = isInside(share) ? -targetOf(label, width, targets, targetsAt, c) / share : 0;
      gradient[at + c] = (slope - weighted) / sum;
    }
  }
  return loss;
};

/** Mean over the outputs of the sigmoid cross-entropy from logits: max(z, 0) − z · t + log(1 + exp(−|z|)). */
const binaryOfLogits: RowLoss = (z, at, width, label, targets, targetsAt, gradient) => {
  let loss = 0;
  for (let c = 0; c < width; c++) {
    const value = z[at + c]!;
    const target = targetOf(label, width, targets, targetsAt, c);
    loss += Math.max(value, 0) - value * target + Math.log1p(Math.exp(-Math.abs(value)));
    if (gradient) gradient[at + c] = (1 / (1 + Math.exp(-value)) - target) / width;
  }
  return loss / width;
};

const binaryOfProbabilities: RowLoss = (p, at, width, label, targets, targetsAt, gradient) => {
  let loss = 0;
  for (let c = 0; c < width; c++) {
    const value = clipped(p[at + c]!);
    const target = targetOf(label, width, targets, targetsAt, c);
    loss -= target * Math.log(value) + (1 - target) * Math.log(1 - value);
    if (gradient) gradient[at + c] = isInside(p[at + c]!) ? ((1 - target) / (1 - value) - target / value) / width : 0;
  }
  return loss / width;
};

/** The mean over the outputs of what one of them costs, which also gives its slope. */
function meanOf(cost: (output: number, target: number, isSloped: boolean) => number): RowLoss {
  return (outputs, at, width, label, targets, targetsAt, gradient) => {
    let sum = 0;
    for (let c = 0; c < width; c++) {
      const target = targetOf(label, width, targets, targetsAt, c);
      sum += cost(outputs[at + c]!, target, false);
      if (gradient) gradient[at + c] = cost(outputs[at + c]!, target, true) / width;
    }
    return sum / width;
  };
}

const squaredError = meanOf((x, t, isSloped) => (isSloped ? 2 * (x - t) : (x - t) * (x - t)));
/** Without a slope where the two are equal. */
const absoluteError = meanOf((x, t, isSloped) => (isSloped ? Math.sign(x - t) : Math.abs(x - t)));

/** Targets are taken for at least epsilon. */
const absolutePercentageError = meanOf((x, t, isSloped) => {
  const share = 100 / Math.max(Math.abs(t), EPSILON);
  return share * (isSloped ? Math.sign(x - t) : Math.abs(x - t));
});

/** Both are taken for at least epsilon. Below it, and at it, an output has no slope. */
const squaredLogarithmicError = meanOf((x, t, isSloped) => {
  const difference = Math.log1p(Math.max(x, EPSILON)) - Math.log1p(Math.max(t, EPSILON));
  if (!isSloped) return difference * difference;
  return x <= EPSILON ? 0 : (2 * difference) / (1 + x);
});

const huberOf = (delta: number): RowLoss =>
  meanOf((x, t, isSloped) => {
    const error = x - t;
    const size = Math.abs(error);
    if (isSloped) return size <= delta ? error : delta * Math.sign(error);
    return size <= delta ? (error * error) / 2 : delta * size - (delta * delta) / 2;
  });

/** log cosh x = |x| + log(1 + exp(−2 |x|)) − log 2, which does not overflow. */
const logCosh = meanOf((x, t, isSloped) => {
  const size = Math.abs(x - t);
  return isSloped ? Math.tanh(x - t) : size + Math.log1p(Math.exp(-2 * size)) - Math.LN2;
});

/** Targets are −1 and 1; 0 and 1 are taken for them, as Keras does. */
const side = (target: number): number => (target === 0 ? -1 : target);
const hinge = meanOf((x, t, isSloped) => {
  const missing = 1 - side(t) * x;
  return isSloped ? (missing > 0 ? -side(t) : 0) : missing < 0 ? 0 : missing;
});
const squaredHinge = meanOf((x, t, isSloped) => {
  const missing = 1 - side(t) * x;
  return isSloped ? (missing > 0 ? -2 * side(t) * missing : 0) : missing < 0 ? 0 : missing * missing;
});

/** max(0, 1 + max((1 − t) · x) − Σ t · x). Of equal outputs the first has the slope. */
const categoricalHinge: RowLoss = (x, at, width, label, targets, targetsAt, gradient) => {
  let [own, best, other] = [0, -1, -Infinity];
  for (let c = 0; c < width; c++) {
    const target = targetOf(label, width, targets, targetsAt, c);
    own += target * x[at + c]!;
    const value = (1 - target) * x[at + c]!;
    if (value > other || Number.isNaN(value)) [best, other] = [c, value];
  }
  const loss = 1 + other - own;
  if (gradient) {
    for (let c = 0; c < width; c++) {
      const target = targetOf(label, width, targets, targetsAt, c);
      gradient[at + c] = loss > 0 ? (c === best ? 1 - target : 0) - target : 0;
    }
  }
  return loss < 0 ? 0 : loss;
};

/** The loss of counts: x − t · log(x + epsilon). */
const poisson = meanOf((x, t, isSloped) => (isSloped ? 1 - t / (x + EPSILON) : x - t * Math.log(x + EPSILON)));

/** −Σ t · x / (‖t‖ · ‖x‖). A length is at least epsilon, as in Keras; below it the output is divided by a constant. */
const cosineSimilarity: RowLoss = (x, at, width, label, targets, targetsAt, gradient) => {
  let [product, ofTarget, ofRow] = [0, 0, 0];
  for (let c = 0; c < width; c++) {
    const [target, value] = [targetOf(label, width, targets, targetsAt, c), x[at + c]!];
    product += target * value;
    ofTarget += target * target;
    ofRow += value * value;
  }
  const [targetLength, length] = [Math.max(Math.sqrt(ofTarget), EPSILON), Math.max(Math.sqrt(ofRow), EPSILON)];
  const similarity = product / (targetLength * length);
  if (gradient) {
    for (let c = 0; c < width; c++) {
      const target = targetOf(label, width, targets, targetsAt, c);
      const turn = ofRow > EPSILON * EPSILON ? (similarity * x[at + c]!) / (length * length) : 0;
      gradient[at + c] = turn - target / (targetLength * length);
    }
  }
  return -similarity;
};

/** Σ t · log(t / p), both kept within epsilon and 1. What is outside has no slope. */
const divergence: RowLoss = (p, at, width, label, targets, targetsAt, gradient) => {
  let loss = 0;
  for (let c = 0; c < width; c++) {
    const value = p[at + c]!;
    const target = within(targetOf(label, width, targets, targetsAt, c));
    loss += target * Math.log(target / within(value));
    if (gradient) gradient[at + c] = value >= EPSILON && value <= 1 ? -target / value : 0;
  }
  return loss;
};
const within = (p: number): number => (p < EPSILON ? EPSILON : p > 1 ? 1 : p);

type Forms = Readonly<Record<'logits' | 'probabilities', RowLoss>>;
const both = (of: RowLoss): Forms => ({ logits: of, probabilities: of });

const ROW_LOSSES: Readonly<Record<Exclude<LossName, 'huber'>, Forms>> = {
  sparseCategoricalCrossentropy: { logits: crossEntropy, probabilities: sparseOfProbabilities },
  categoricalCrossentropy: { logits: crossEntropy, probabilities: categoricalOfProbabilities },
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

export const HUBER_DELTA = 1;

/** Takes the share `smoothing` from each target and spreads it evenly: over the classes, or over yes and no. */
function smoothed(of: RowLoss, smoothing: number, isBinary: boolean): RowLoss {
  let row = new Float32Array(0);
  return (outputs, at, width, label, targets, targetsAt, gradient) => {
    if (row.length !== width) row = new Float32Array(width);
    const base = isBinary ? smoothing / 2 : smoothing / width;
    for (let c = 0; c < width; c++) row[c] = targetOf(label, width, targets, targetsAt, c) * (1 - smoothing) + base;
    return of(outputs, at, width, -1, row, 0, gradient);
  };
}

export function rowLossOf(loss: LossName, { labelSmoothing = 0, delta = HUBER_DELTA }: LossOptions, form: keyof Forms): RowLoss {
  if (loss === 'huber') return huberOf(delta);
  const of = ROW_LOSSES[loss][form];
  return labelSmoothing > 0 ? smoothed(of, labelSmoothing, loss === 'binaryCrossentropy') : of;
}
