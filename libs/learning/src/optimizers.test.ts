import { readFileSync } from 'node:fs';
import { Arena } from '@paceline/kernels';
import type { OptimizerSpec } from '@paceline/spec';
import { describe, expect, it } from 'vitest';
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
      expect(difference([Float32Array.from(golden.initial)], [steps[24]!])).toBeGreaterThan(0.05);
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
