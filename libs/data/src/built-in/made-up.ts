/** Made-up data, the same on every machine: integers, + − × ÷ and rounding to float32 alone. */
import type { TableColumn } from './memory-table.js';

/** Uniform numbers in [0, 1): mulberry32 of T. Ettinger. */
function uniformFrom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

const REGRESSION_COLUMNS = 8;

/** y = x1 − 2 x2 + 3 x3 · x4 + 0.5 x5² + noise of deviation 0.1; x6 to x8 say nothing. All x are uniform in [−1, 1). */
export function regressionColumns(rows: number): TableColumn[] {
  const uniform = uniformFrom(1);
  const signed = (): number => Math.fround(2 * uniform() - 1);
  const names = Array.from({ length: REGRESSION_COLUMNS }, (_, i) => `x${i + 1}`);
  const table = Array.from({ length: rows }, () => {
    const [a = 0, b = 0, c = 0, d = 0, e = 0, ...rest] = names.map(signed);
    // The sum of twelve uniform numbers has the variance 1.
    const noise = Array.from({ length: 12 }, uniform).reduce((sum, each) => sum + each, -6) / 10;
    return { x: [a, b, c, d, e, ...rest], y: a - 2 * b + 3 * c * d + 0.5 * e * e + noise };
  });
  return [
    ...names.map((name, i): TableColumn => ({ name, kind: 'number', values: table.map(({ x }) => x[i]!) })),
    { name: 'y', kind: 'number', values: table.map(({ y }) => y) },
  ];
}

/** Walks of 12 to 20 steps that rise or fall by 0.15 a step beneath noise in [−0.5, 0.5): the trend is the label. */
export function sequenceColumns(rows: number): TableColumn[] {
  const uniform = uniformFrom(2);
  const table = Array.from({ length: rows }, () => {
    const trend = uniform() < 0.5 ? 'falls' : 'rises';
    const length = 12 + Math.floor(uniform() * 9);
    const start = uniform() - 0.5;
    const slope = trend === 'rises' ? 0.15 : -0.15;
    return { trend, walk: Array.from({ length }, (_, i) => start + i * slope + uniform() - 0.5) };
  });
  return [
    { name: 'walk', kind: 'sequence', size: 1, values: table.map(({ walk }) => walk) },
    { name: 'trend', kind: 'category', values: table.map(({ trend }) => trend) },
  ];
}
