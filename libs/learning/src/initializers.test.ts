import type { ModelDescription, VariableSpec } from '@paceline/spec';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { LearningError } from './errors.js';
import { INITIALIZERS, computeFans, createInitialValues, initialValues } from './initializers.js';

type Config = Record<string, unknown>;
const variable = (shape: number[], className: string, config: Config = {}, path = 'dense/kernel'): VariableSpec => ({
  path,
  shape,
  section: 'trainable',
  initializer: { className, config },
});
function values(shape: number[], className: string, config: Config = {}, seed = 42, path?: string): Float32Array {
  const out = new Float32Array(shape.reduce((p, d) => p * d, 1));
  initialValues(variable(shape, className, config, path), seed, 0, out.length, out);
  return out;
}
function stats(list: Float32Array) {
  const mean = list.reduce((sum, x) => sum + x, 0) / list.length;
  const deviation = Math.sqrt(list.reduce((sum, x) => sum + (x - mean) ** 2, 0) / list.length);
  return { mean, deviation, least: list.reduce((a, b) => Math.min(a, b)), most: list.reduce((a, b) => Math.max(a, b)) };
}
function errorOf(run: () => unknown): LearningError {
  try {
    run();
  } catch (error) {
    if (error instanceof LearningError) return error;
    throw error;
  }
  throw new Error('nothing was refused');
}

const SHAPE = [300, 200];
const COUNT = 60_000;
/** Deviation of a normal cut at ±2: tf.js does not correct for it. */
const CUT = 0.8796256610342398;

describe('a value', () => {
  const examples: [string, number[], Config][] = [
    ['GlorotUniform', [30, 20], {}],
    ['TruncatedNormal', [600], {}],
    ['RandomNormal', [5, 5, 24], {}],
    ['Orthogonal', [24, 25], {}],
    ['Identity', [25, 25], {}],
    ['UnitForgetBias', [600], { initializer: { className: 'RandomUniform', config: {} } }],
  ];

  it.each(examples)('of %s is a function of seed, path and index alone', (className, shape, config) => {
    const whole = values(shape, className, config);
    fc.assert(
      fc.property(fc.nat(whole.length), fc.nat(whole.length), (a, b) => {
        const [from, to] = [Math.min(a, b), Math.max(a, b)];
        const part = new Float32Array(to - from + 2).fill(7);
        initialValues(variable(shape, className, config), 42, from, to, part);
        expect([...part]).toEqual([...whole.slice(from, to), 7, 7]);
      }),
      { numRuns: 30 },
    );
  });

  it('differs between seeds, paths and seeds of the configuration', () => {
    const base = values([50], 'RandomNormal');
    for (const other of [
      values([50], 'RandomNormal', {}, 43),
      values([50], 'RandomNormal', {}, 42, 'other/kernel'),
      values([50], 'RandomNormal', { seed: 1 }),
      values([50], 'RandomNormal', { seed: 0 }),
    ]) {
      expect(other.filter((x, i) => x === base[i])).toHaveLength(0);
    }
    expect(values([50], 'RandomNormal', { seed: null })).toEqual(base);
  });

  it('is the same for ever: these are part of what a seed means', () => {
    expect([...values([4], 'RandomUniform')]).toEqual([
      0.01324952207505703, 0.04441504180431366, 0.03697880730032921, 0.022272804751992226,
    ]);
    expect([...values([4], 'TruncatedNormal')]).toEqual([
      0.016125477850437164, 0.0716046690940857, 0.05246122553944588, 0.028048917651176453,
    ]);
  });
});

describe('distributions', () => {
  it('constants', () => {
    expect([...values([3], 'Zeros')]).toEqual([0, 0, 0]);
    expect([...values([2], 'Ones')]).toEqual([1, 1]);
    expect([...values([2], 'Constant', { value: 0.25 })]).toEqual([0.25, 0.25]);
    expect([...values([3, 3], 'Identity', { gain: 2 })]).toEqual([2, 0, 0, 0, 2, 0, 0, 0, 2]);
    expect(values([], 'Ones')).toHaveLength(1);
  });

  it.each<[string, Config, number, number]>([
    ['RandomUniform', {}, -0.05, 0.05],
    ['RandomUniform', { minval: 0, maxval: 3 }, 0, 3],
    ['GlorotUniform', {}, -Math.sqrt(6 / 500), Math.sqrt(6 / 500)],
    ['HeUniform', {}, -Math.sqrt(6 / 300), Math.sqrt(6 / 300)],
    ['LeCunUniform', {}, -Math.sqrt(3 / 300), Math.sqrt(3 / 300)],
    ['VarianceScaling', { scale: 2, mode: 'fanOut', distribution: 'uniform' }, -Math.sqrt(6 / 200), Math.sqrt(6 / 200)],
  ])('%s %o is uniform over its interval', (className, config, low, high) => {
    const { mean, deviation, least, most } = stats(values(SHAPE, className, config));
    const width = high - low;
    expect(least >= Math.fround(low) && most <= Math.fround(high)).toBe(true);
    expect(least - low).toBeLessThan(width * 0.001);
    expect(high - most).toBeLessThan(width * 0.001);
    expect(Math.abs(mean - (low + high) / 2)).toBeLessThan((4 * width) / Math.sqrt(12 * COUNT));
    expect(deviation / (width / Math.sqrt(12))).toBeCloseTo(1, 1.9);
  });

  it.each<[string, Config, number]>([
    ['TruncatedNormal', {}, 0.05],
    ['GlorotNormal', {}, Math.sqrt(2 / 500)],
    ['HeNormal', {}, Math.sqrt(2 / 300)],
    ['LeCunNormal', {}, Math.sqrt(1 / 300)],
    ['VarianceScaling', {}, Math.sqrt(1 / 300)],
    ['VarianceScaling', { scale: 3, mode: 'fan_avg', distribution: 'truncated_normal' }, Math.sqrt(3 / 250)],
  ])('%s %o is normal, cut at two deviations and not corrected, as in tf.js', (className, config, sigma) => {
    const { mean, deviation, least, most } = stats(values(SHAPE, className, config));
    expect(Math.max(-least, most)).toBeLessThanOrEqual(Math.fround(2 * sigma));
    expect(Math.min(-least, most)).toBeGreaterThan(1.99 * sigma);
    expect(Math.abs(mean)).toBeLessThan((4 * sigma) / Math.sqrt(COUNT));
    expect(Math.abs(deviation / (CUT * sigma) - 1)).toBeLessThan(0.01);
  });

  it('RandomNormal has its mean and deviation, and tails', () => {
    const { mean, deviation, most } = stats(values(SHAPE, 'RandomNormal', { mean: 1, stddev: 0.5 }));
    expect(Math.abs(mean - 1)).toBeLessThan((4 * 0.5) / Math.sqrt(COUNT));
    expect(Math.abs(deviation / 0.5 - 1)).toBeLessThan(0.012);
    expect(most).toBeGreaterThan(1 + 3.5 * 0.5);
    expect(stats(values(SHAPE, 'VarianceScaling', { distribution: 'untruncated_normal' })).most).toBeGreaterThan(3.5 * Math.sqrt(1 / 300));
  });

  it.each([[[6, 4]], [[4, 6]], [[5, 5]], [[3, 3, 2, 8]], [[1, 2, 3, 24]], [[2, 2, 3, 4, 5]], [[40, 160]]])(
    'Orthogonal %o has orthonormal rows or columns',
    (shape) => {
      const cols = shape.at(-1)!;
      const q = values(shape, 'Orthogonal', { gain: 2 });
      const rows = q.length / cols;
      const [count, along, at] =
        rows >= cols ? [cols, rows, (v: number, i: number) => q[i * cols + v]!] : [rows, cols, (v: number, i: number) => q[v * cols + i]!];
      for (let a = 0; a < count; a++) {
        for (let b = 0; b <= a; b++) {
          let dot = 0;
          for (let i = 0; i < along; i++) dot += at(a, i) * at(b, i);
          expect(dot).toBeCloseTo(a === b ? 4 : 0, 5);
        }
      }
    },
  );

  it('UnitForgetBias puts ones where an LSTM of tf.js has its forget gate', () => {
    const inner = { className: 'Zeros', config: {} };
    expect([...values([8], 'UnitForgetBias', { initializer: inner })]).toEqual([0, 0, 1, 1, 0, 0, 0, 0]);
  });
});

describe('names', () => {
  it.each(INITIALIZERS.filter((name) => name !== 'UnitForgetBias'))('%s is also known in snake case', (name) => {
    const snake = name
      .replaceAll(/(?<=[a-z])(?=[A-Z])/g, '_')
      .toLowerCase()
      .replace('le_cun', 'lecun');
    const config = { value: 3 };
    expect(values([4, 4], snake, config)).toEqual(values([4, 4], name, config));
  });

  it('of the six scaled ones are the VarianceScaling that tf.js serialises them as', () => {
    for (const [name, scale, mode, distribution] of [
      ['GlorotUniform', 1, 'fanAvg', 'uniform'],
      ['HeNormal', 2, 'fanIn', 'normal'],
      ['LeCunUniform', 1, 'fanIn', 'uniform'],
    ] as const) {
      expect(values([9, 7], 'VarianceScaling', { scale, mode, distribution, seed: null })).toEqual(values([9, 7], name));
    }
  });

  it.each(['Lambda', '', '__proto__', 'constructor', 'toString', 'CustomInit'])(
    '%j is refused with the list of those that are known',
    (className) => {
      const error = errorOf(() => values([2], className));
      expect(error.code).toBe('INITIALIZER_UNKNOWN');
      expect(error.field).toBe('variables["dense/kernel"].initializer.className');
      expect(error.message).toContain('GlorotUniform');
    },
  );

  it.each<[string, number[], Config, string]>([
    ['Constant', [2], {}, '.config.value'],
    ['Constant', [2], { value: 'x' }, '.config.value'],
    ['RandomNormal', [2], { stddev: -1 }, '.config.stddev'],
    ['RandomNormal', [2], { seed: 'abc' }, '.config.seed'],
    ['RandomUniform', [2], { maxval: Infinity }, '.config.maxval'],
    ['VarianceScaling', [2], { mode: 'toString' }, '.config.mode'],
    ['VarianceScaling', [2], { distribution: 'cauchy' }, '.config.distribution'],
    ['VarianceScaling', [2], { scale: 0 }, '.config.scale'],
    ['Identity', [2, 3], {}, ''],
    ['Orthogonal', [4], {}, ''],
    ['Orthogonal', [16_384, 16_384], {}, ''],
    ['UnitForgetBias', [8], {}, '.config.initializer'],
    ['UnitForgetBias', [8], { initializer: { className: 'UnitForgetBias', config: {} } }, '.config.initializer'],
    ['UnitForgetBias', [9], { initializer: { className: 'Zeros', config: {} } }, ''],
  ])('%s over %o with %o is refused, naming the field', (className, shape, config, field) => {
    const error = errorOf(() => initialValues(variable(shape, className, config), 1, 0, 1, new Float32Array(1)));
    expect(error.code).toBe('INITIALIZER_CONFIG');
    expect(error.field).toBe(`variables["dense/kernel"].initializer${field}`);
  });
});

describe('fans', () => {
  it('are those of tf.js', () => {
    expect(computeFans([784, 256])).toEqual([784, 256]);
    expect(computeFans([3, 3, 16, 32])).toEqual([144, 288]);
    expect(computeFans([5, 16, 32])).toEqual([80, 160]);
    expect(computeFans([2, 3, 4, 16, 32])).toEqual([384, 768]);
    expect(computeFans([64])).toEqual([8, 8]);
    expect(computeFans([])).toEqual([1, 1]);
  });
});

describe('the initial vector of a model', () => {
  const variables: VariableSpec[] = [
    variable([30, 20], 'GlorotUniform', {}, 'a/kernel'),
    variable([20], 'Zeros', {}, 'a/bias'),
    variable([20, 20], 'Orthogonal', {}, 'b/kernel'),
    { ...variable([20], 'Ones', {}, 'n/moving_variance'), section: 'state' },
  ];
  const description: ModelDescription = { variables, inputs: [], outputs: [], parameterCount: 1020, stateCount: 20 };

  it('is that of its variables, however it is cut', () => {
    const wanted = variables.flatMap((v) => [...values([...v.shape], v.initializer.className, {}, 9, v.path)]);
    const initial = createInitialValues(description, 9);
    fc.assert(
      fc.property(fc.uniqueArray(fc.integer({ min: 1, max: 1039 }), { maxLength: 6 }), (cuts) => {
        const ends = [0, ...cuts.sort((a, b) => a - b), 1040];
        const parts = ends.slice(1).map((end, i) => {
          const out = new Float32Array(end - ends[i]!);
          initial.fill(ends[i]!, out);
          return [...out];
        });
        expect(parts.flat()).toEqual(wanted);
      }),
      { numRuns: 30 },
    );
    expect(() => initial.fill(1039, new Float32Array(2))).toThrow(RangeError);
  });

  it('is refused before anything is computed when an initializer is unknown', () => {
    const bad = {
      ...description,
      variables: [...variables.slice(0, 3), { ...variables[3]!, initializer: { className: 'Nope', config: {} } }],
    };
    expect(errorOf(() => createInitialValues(bad, 9)).code).toBe('INITIALIZER_UNKNOWN');
  });
});
