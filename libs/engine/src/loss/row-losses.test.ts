import { CROSSENTROPIES, LOSSES, type LossName, type LossOptions } from '@paceline/spec';
import * as tf from '@tensorflow/tfjs-core';
import '@tensorflow/tfjs-backend-cpu';
import { beforeAll, describe, expect, it } from 'vitest';
import { FORMULAE, LOGIT_FORMULAE, sum } from './loss-formulae.fixture.js';
import { rowLossOf } from './row-losses.js';
import { gradientOf } from '../backends/webgpu/loss-operations.js';

interface Row {
  readonly x: readonly number[];
  /** A class, or values. */
  readonly t: number | readonly number[];
}
const ROWS: readonly Row[] = [
  { x: [0.2, 0.5, 0.3], t: 1 },
  { x: [0.9, 0.04, 0.06], t: 2 },
  { x: [0.6, 0.8, 0.15], t: 0 },
  { x: [0.25, 0.7], t: [0.125, 0.875] },
  { x: [0.3, 0.31, 0.9, 0.2], t: [0, 1, 1, 0] },
  { x: [1.75, 0.35, 2.5], t: [1, 3, 0.5] },
  { x: [3.5, 0.01, 0.5], t: [0.5, 4, 0.75] },
  { x: [0.1, 0.2], t: [-1, 1] },
  { x: [0.1, 0.2], t: [0, 0] },
  { x: [2e-8, 0.4], t: [0, 1] },
];
const oneHot = ({ x, t }: Row): number[] => (typeof t === 'number' ? x.map((_, c) => Number(c === t)) : [...t]);

const MINUS: readonly Row[] = [
  { x: [-0.4, 2.5, -3], t: [1.5, -2, -3.25] },
  { x: [-2.25, 0.5], t: [-1, 1] },
  { x: [-0.75, -1.5, 0.25], t: 1 },
];
/** Losses of counts and shares: no target or output is below 0. */
const POSITIVE: readonly LossName[] = ['poisson', 'kullbackLeiblerDivergence'];
const OF_PROBABILITIES = (x: readonly number[]): boolean => x.every((v) => v > 1e-6 && v < 1);

const CASES = LOSSES.flatMap((loss) => {
  const options: LossOptions[] = CROSSENTROPIES.includes(loss)
    ? [{}, { labelSmoothing: 0.1 }]
    : loss === 'huber'
      ? [{}, { delta: 0.25 }, { delta: 5 }]
      : [{}];
  const forms = CROSSENTROPIES.includes(loss) ? (['logits', 'probabilities'] as const) : (['probabilities'] as const);
  return options.flatMap((given) => forms.map((form) => ({ loss, options: given, form })));
});

beforeAll(async () => {
  await tf.setBackend('cpu');
});

describe.each(CASES)('$loss $options of $form', ({ loss, options, form }) => {
  const formula = form === 'logits' ? LOGIT_FORMULAE[loss]! : FORMULAE[loss];
  const isCrossentropy = CROSSENTROPIES.includes(loss);
  const rows = [...ROWS, ...MINUS].filter(
    ({ x, t }) =>
      !(POSITIVE.includes(loss) && (x.some((v) => v < 0) || (typeof t !== 'number' && t.some((v) => v < 0)))) &&
      !(isCrossentropy && typeof t !== 'number' && t.some((v) => v < 0 || v > 1)) &&
      !(loss === 'sparseCategoricalCrossentropy' && typeof t !== 'number') &&
      // Divided by epsilon, it is far beyond what differences show.
      !(loss === 'meanAbsolutePercentageError' && oneHot({ x, t }).includes(0)) &&
      !(isCrossentropy && form === 'probabilities' && !OF_PROBABILITIES(x)),
  );
  const score = ({ x, t }: Row, gradient?: Float32Array): number =>
    rowLossOf(loss, options, form)(
      Float32Array.from(x),
      0,
      x.length,
      typeof t === 'number' ? t : -1,
      Float32Array.from(oneHot({ x, t })),
      0,
      gradient,
    );

  it('has the value of the formula, and its slope', () => {
    expect(rows.length).toBeGreaterThan(2);
    for (const row of rows) {
      const x = [...Float32Array.from(row.x)];
      const t = [...Float32Array.from(oneHot(row))];
      const gradient = new Float32Array(x.length);
      const value = score(row, gradient);
      expect(Math.abs(value - formula(x, t, options))).toBeLessThan(2e-6 * Math.max(1, Math.abs(value)));
      expect(score(row)).toBe(value);
      gradient.forEach((slope, c) => {
        const h = 1e-6 * Math.max(Math.abs(x[c]!), 0.01);
        const at = (by: number): number => formula(x.map((v, i) => (i === c ? v + by : v)), t, options); // oxfmt-ignore
        const numeric = (at(h) - at(-h)) / (2 * h);
        expect(Math.abs(slope - numeric), `${JSON.stringify(row)} ${c}: ${slope}, not ${numeric}`).toBeLessThan(
          1e-5 * Math.max(1, Math.abs(numeric)),
        );
      });
    }
  });

  it('has the same gradient as operations of tf.js', () => {
    for (const row of rows) {
      const gradient = new Float32Array(row.x.length);
      score(row, gradient);
      const operations = tf.tidy(() =>
        gradientOf(loss, options, form)(tf.tensor2d([...row.x], [1, row.x.length]), tf.tensor2d(oneHot(row), [1, row.x.length])).dataSync(),
      );
      gradient.forEach((slope, c) =>
        expect(Math.abs(operations[c]! - slope), JSON.stringify(row)).toBeLessThan(1e-5 * Math.max(1, Math.abs(slope))),
      );
    }
  });

  it('is no number where an output is none, and finite at the ends', () => {
    const gradient = new Float32Array(3);
    expect(Number.isNaN(score({ x: [0.5, Number.NaN, 0.2], t: 1 }, gradient))).toBe(true);
    for (const x of [
      [0, 0, 0],
      [0, 1, 0],
      [1, 0, 0],
      [1e6, 0, 1e6],
    ]) {
      if (form === 'probabilities' && isCrossentropy && sum(x) === 0) continue;
      expect(Number.isFinite(score({ x, t: 1 }, gradient)), String(x)).toBe(true);
      expect(gradient.every(Number.isFinite), `${String(x)}: ${String(gradient)}`).toBe(true);
    }
  });
});
