/** The losses of Keras 3 on one row, written out in the plainest way (keras/src/losses/losses.py): what tests hold the engines to. */
import type { LossName, LossOptions } from '@paceline/spec';

export const EPSILON = 1e-7;
export const sum = (values: readonly number[]): number => values.reduce((a, b) => a + b, 0);
export const mean = (values: readonly number[]): number => sum(values) / values.length;
export const clip = (p: number): number => Math.min(Math.max(p, EPSILON), 1 - EPSILON);
const atMostOne = (p: number): number => Math.min(Math.max(p, EPSILON), 1);
export const sigmoid = (z: number): number => 1 / (1 + Math.exp(-z));
export const softmax = (z: readonly number[]): number[] => {
  const e = z.map((value) => Math.exp(value - Math.max(...z)));
  return e.map((value) => value / sum(e));
};
const length = (v: readonly number[]): number => Math.max(Math.sqrt(sum(v.map((x) => x * x))), EPSILON);
const sides = (t: readonly number[]): number[] => (t.every((v) => v === 0 || v === 1) ? t.map((v) => 2 * v - 1) : [...t]);

export type Formula = (x: readonly number[], t: readonly number[], options: LossOptions) => number;
const errors =
  (of: (x: number, t: number) => number): Formula =>
  (x, t) =>
    mean(t.map((target, c) => of(x[c]!, target)));
const smooth = (t: readonly number[], s = 0, ways = t.length): number[] => t.map((v) => v * (1 - s) + s / ways);
const entropy = (p: readonly number[], t: readonly number[]): number => -sum(t.map((v, c) => v * Math.log(p[c]!)));

/** Crossentropies: of probabilities. */
export const FORMULAE: Readonly<Record<LossName, Formula>> = {
  sparseCategoricalCrossentropy: (p, t, { labelSmoothing }) => entropy(softmax(p.map((v) => Math.log(clip(v)))), smooth(t, labelSmoothing)),
  categoricalCrossentropy: (p, t, { labelSmoothing }) => entropy(p.map((v) => clip(v / sum(p))), smooth(t, labelSmoothing)), // oxfmt-ignore
  binaryCrossentropy: (p, t, { labelSmoothing }) =>
    mean(smooth(t, labelSmoothing, 2).map((v, c) => -(v * Math.log(clip(p[c]!)) + (1 - v) * Math.log(1 - clip(p[c]!))))),
  meanSquaredError: errors((x, t) => (x - t) ** 2),
  meanAbsoluteError: errors((x, t) => Math.abs(x - t)),
  meanAbsolutePercentageError: errors((x, t) => (100 * Math.abs(x - t)) / Math.max(Math.abs(t), EPSILON)),
  meanSquaredLogarithmicError: errors((x, t) => (Math.log(Math.max(x, EPSILON) + 1) - Math.log(Math.max(t, EPSILON) + 1)) ** 2),
  huber: (x, t, { delta = 1 }) =>
    errors((a, b) => (Math.abs(a - b) <= delta ? 0.5 * (a - b) ** 2 : delta * (Math.abs(a - b) - 0.5 * delta)))(x, t, {}),
  logCosh: errors((x, t) => Math.log(Math.cosh(x - t))),
  hinge: (x, t) => mean(sides(t).map((v, c) => Math.max(1 - v * x[c]!, 0))),
  squaredHinge: (x, t) => mean(sides(t).map((v, c) => Math.max(1 - v * x[c]!, 0) ** 2)),
  categoricalHinge: (x, t) => Math.max(Math.max(...t.map((v, c) => (1 - v) * x[c]!)) - sum(t.map((v, c) => v * x[c]!)) + 1, 0),
  poisson: errors((x, t) => x - t * Math.log(x + EPSILON)),
  cosineSimilarity: (x, t) => -sum(t.map((v, c) => (v / length(t)) * (x[c]! / length(x)))),
  kullbackLeiblerDivergence: (p, t) => sum(t.map((v, c) => atMostOne(v) * Math.log(atMostOne(v) / atMostOne(p[c]!)))),
};

export const LOGIT_FORMULAE: Partial<Record<LossName, Formula>> = {
  sparseCategoricalCrossentropy: (z, t, { labelSmoothing }) => entropy(softmax(z), smooth(t, labelSmoothing)),
  categoricalCrossentropy: (z, t, { labelSmoothing }) => entropy(softmax(z), smooth(t, labelSmoothing)),
  binaryCrossentropy: (z, t, options) => FORMULAE.binaryCrossentropy(z.map(sigmoid), t, options), // oxfmt-ignore
};
