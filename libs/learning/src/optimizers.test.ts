import { readFileSync } from 'node:fs';
import { Arena } from '@paceline/kernels';
import { optimizerSchema, optimizerSlots, type OptimizerSpec } from '@paceline/spec';
import fc from 'fast-check';
import { describe, expect, it, test } from 'vitest';
import { adamStepSize, createOptimizer } from './optimizers.js';

interface Golden {
  initial: number[];
  gradients: number[][];
  cases: Record<string, { trajectory: number[][] }>;
}
const golden = JSON.parse(readFileSync(new URL('../../testkit/golden/optimizers.json', import.meta.url), 'utf8')) as Golden;

const SPECS: Record<string, OptimizerSpec> = {
  sgd: { name: 'sgd', learningRate: 0.05 },
  momentum: { name: 'momentum', learningRate: 0.05, momentum: 0.9, nesterov: false },
  nesterov: { name: 'momentum', learningRate: 0.05, momentum: 0.9, nesterov: true },
  adam: { name: 'adam', learningRate: 0.01, beta1: 0.9, beta2: 0.999, epsilon: 1e-7 },
  rmsprop: { name: 'rmsprop', learningRate: 0.01, rho: 0.9, momentum: 0, epsilon: 1e-7, centered: false },
  rmsprop_momentum: { name: 'rmsprop', learningRate: 0.01, rho: 0.9, momentum: 0.9, epsilon: 1e-7, centered: false },
  rmsprop_centered: { name: 'rmsprop', learningRate: 0.01, rho: 0.9, momentum: 0.9, epsilon: 1e-7, centered: true },
  adagrad: { name: 'adagrad', learningRate: 0.05, initialAccumulator: 0.1, epsilon: 1e-7 },
  adadelta: { name: 'adadelta', learningRate: 1, rho: 0.95, epsilon: 1e-6 },
  adam_amsgrad: { name: 'amsgrad', learningRate: 0.01, beta1: 0.9, beta2: 0.999, epsilon: 1e-7 },
  adamax: { name: 'adamax', learningRate: 0.01, beta1: 0.9, beta2: 0.999, epsilon: 1e-7 },
  nadam: { name: 'nadam', learningRate: 0.01, beta1: 0.9, beta2: 0.999, epsilon: 1e-7 },
  ftrl: { name: 'ftrl', learningRate: 0.05, initialAccumulator: 0.1, l1: 0.01, l2: 0.01, l2Shrinkage: 0, beta: 0 },
  lion: { name: 'lion', learningRate: 0.01, beta1: 0.9, beta2: 0.99 },
};

/** Weights after every step; gradients are handed over as sums over `examples` examples. */
function trajectory(spec: OptimizerSpec, inPlace: boolean, examples = 1): Float32Array[] {
  const count = golden.initial.length;
  const arena = Arena.create({ initialBytes: 65_536, maximumBytes: 65_536 });
  const optimizer = createOptimizer(spec);
  let current = arena.alloc(count * 4);
  let next = inPlace ? current : arena.alloc(count * 4);
  const grad = arena.alloc(count * 4);
  arena.f32(current, count).set(golden.initial);
  const slots = optimizer.slots.map(({ initialValue }) => {
    const pointer = arena.alloc(count * 4);
    arena.kernels.fill(pointer, count, initialValue);
    return pointer;
  });
  return golden.gradients.map((gradient, i) => {
    arena.f32(grad, count).set(gradient.map((g) => g * examples));
    optimizer.apply(arena.kernels, { paramIn: current, paramOut: next, grad, slots, count, step: i + 1, gradScale: 1 / examples });
    [current, next] = [next, current];
    return arena.f32(current, count).slice();
  });
}

/** Largest difference relative to the largest weight of the step. */
function difference(got: Float32Array[], wanted: number[][]): number {
  expect(got.length).toBe(wanted.length);
  return Math.max(
    ...got.map(
      (weights, step) => Math.max(...weights.map((w, i) => Math.abs(w - wanted[step]![i]!))) / Math.max(...wanted[step]!.map(Math.abs)),
    ),
  );
}

describe('optimizers follow Keras 3', () => {
  it('over trajectories that move', () => {
    expect(golden.gradients).toHaveLength(25);
    for (const { trajectory: steps } of Object.values(golden.cases))
      expect(difference([Float32Array.from(golden.initial)], [steps[24]!])).toBeGreaterThan(0.01);
  });

  it.each(Object.keys(SPECS))('%s, step by step', (name) => {
    const wanted = golden.cases[name]!.trajectory;
    expect(difference(trajectory(SPECS[name]!, false), wanted)).toBeLessThan(1e-6);
    expect(trajectory(SPECS[name]!, true)).toEqual(trajectory(SPECS[name]!, false));
  });

  it.each(Object.keys(SPECS))('%s, from sums over examples scaled once', (name) => {
    expect(difference(trajectory(SPECS[name]!, false, 256), golden.cases[name]!.trajectory)).toBeLessThan(1e-6);
    expect(difference(trajectory(SPECS[name]!, false, 60), golden.cases[name]!.trajectory)).toBeLessThan(1e-5);
  });

  it('and not one another', () => {
    expect(difference(trajectory(SPECS['momentum']!, false), golden.cases['nesterov']!.trajectory)).toBeGreaterThan(1e-3);
  });
});

/** Parameters and slots after some steps of gradients that both ways get; with `isOverGradient` the new parameters lie where the gradient was. */
function afterSteps(spec: OptimizerSpec, gradients: readonly Float32Array[], isOverGradient: boolean): Uint8Array[] {
  const count = gradients[0]!.length;
  const arena = Arena.create({ initialBytes: 65_536, maximumBytes: 65_536 * 8 });
  const optimizer = createOptimizer(spec);
  const filled = (value: number): number => {
    const pointer = arena.alloc(count * 4);
    arena.kernels.fill(pointer, count, value);
    return pointer;
  };
  const slots = optimizer.slots.map(({ initialValue }) => filled(initialValue));
  let paramIn = filled(0.5);
  for (const [i, gradient] of gradients.entries()) {
    const grad = filled(0);
    arena.f32(grad, count).set(gradient);
    const paramOut = isOverGradient ? grad : filled(7);
    optimizer.apply(arena.kernels, { paramIn, paramOut, grad, slots, count, step: i + 1, gradScale: 1 / 3, rateFactor: i === 1 ? 0 : 1 });
    if (!isOverGradient) expect(arena.f32(grad, count)).toEqual(gradient);
    paramIn = paramOut;
  }
  return [paramIn, ...slots].map((pointer) => arena.bytes(pointer, count * 4).slice());
}

const everyOptimizer: OptimizerSpec[] = [
  ...Object.values(SPECS),
  optimizerSchema.parse({ name: 'adamw' }),
  optimizerSchema.parse({ name: 'lamb' }),
  optimizerSchema.parse({ name: 'lars', learningRate: 0.1 }),
  optimizerSchema.parse({ name: 'ftrl', l2Shrinkage: 0.1, beta: 0.1 }),
];

test.each(everyOptimizer.map((spec) => [spec.name, spec] as const))(
  '%s gives the same bits where the new parameters go over the gradient (%o)',
  (_, spec) => {
    const element = fc.float({ noNaN: true, min: -1e6, max: 1e6 });
    const gradientOf = (length: number) =>
      fc.array(element, { minLength: length, maxLength: length }).map((values) => Float32Array.from(values));
    const gradients = fc.integer({ min: 1, max: 70 }).chain((length) => fc.array(gradientOf(length), { minLength: 1, maxLength: 4 }));
    const isSame = (given: Float32Array[]): void => expect(afterSteps(spec, given, true)).toEqual(afterSteps(spec, given, false));
    fc.assert(
      fc.property(gradients, (given) => void isSame(given)),
      { numRuns: 40 },
    );
  },
);

describe("Adam's step size", () => {
  it('is a function of the step: the bias correction is there at first and gone later', () => {
    const rates = { learningRate: 0.01, beta1: 0.9, beta2: 0.999 };
    expect(adamStepSize(rates, 1)).toBeCloseTo((0.01 * Math.sqrt(0.001)) / 0.1, 7);
    for (const step of [10, 1000, 12_345]) {
      const exact = (0.01 * Math.sqrt(1 - 0.999 ** step)) / (1 - 0.9 ** step);
      expect(Math.abs(adamStepSize(rates, step) / exact - 1)).toBeLessThan(1e-5);
    }
    expect(adamStepSize(rates, 1e8)).toBe(Math.fround(0.01));
    for (const step of [0, -1, 1.5]) expect(() => adamStepSize(rates, step)).toThrow(RangeError);
  });
});

it.each([
  { name: 'sgd' },
  { name: 'momentum' },
  { name: 'adam' },
  { name: 'adamw' },
  { name: 'amsgrad' },
  { name: 'adamax' },
  { name: 'nadam' },
  { name: 'rmsprop' },
  { name: 'rmsprop', centered: true },
  { name: 'rmsprop', momentum: 0.9 },
  { name: 'rmsprop', centered: true, momentum: 0.9 },
  { name: 'adagrad' },
  { name: 'adadelta' },
  { name: 'ftrl' },
  { name: 'lion' },
])('the slots of %o are those that specs are compared by', (given) => {
  const spec = optimizerSchema.parse(given);
  expect(createOptimizer(spec).slots.map(({ name }) => name)).toEqual(optimizerSlots(spec));
});

it.each([0.1, 0])('ftrl stays as it is at a rate of 0 (beta %d)', (beta) => {
  const arena = Arena.create({ initialBytes: 65_536, maximumBytes: 65_536 });
  const optimizer = createOptimizer(optimizerSchema.parse({ name: 'ftrl', beta, l2Shrinkage: 0.1 }));
  const floatsAt = (pointer: number): Float32Array => arena.f32(pointer, 2);
  const place = (...values: number[]): number => {
    const pointer = arena.alloc(values.length * 4);
    floatsAt(pointer).set(values);
    return pointer;
  };
  const [paramIn, paramOut, grad, squares, linear] = [place(1, -2), place(9, 9), place(3, 4), place(0.1, 0.2), place(5, 6)];
  const update = { paramIn, grad, slots: [squares, linear], count: 2, step: 1, gradScale: 1 };
  optimizer.apply(arena.kernels, Object.assign({ paramOut, rateFactor: 0 }, update));
  const read = (pointer: number): number[] => [...floatsAt(pointer)];
  expect(read(paramOut)).toEqual([1, -2]);
  expect([read(squares), read(linear)]).toEqual([[0.1, 0.2].map(Math.fround), [5, 6]]);
  optimizer.apply(arena.kernels, Object.assign({ paramOut: paramIn, rateFactor: 1 }, update));
  expect(read(paramIn).every(Number.isFinite)).toBe(true);
});
