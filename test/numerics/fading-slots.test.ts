/** Slots of parameters whose gradient stays 0, until they have become 0: the kernels and the independent reference have the same bits all the way. */
import { Arena } from '@paceline/kernels';
import { createOptimizer } from '@paceline/learning';
import type { RunSpec } from '@paceline/spec';
import { expect, it } from 'vitest';
import { updateOf } from './reference.js';

const N = 9;
/** 0.9^1000 is below the smallest number of float32. */
const STEPS = 1_000;

const OPTIMIZERS: readonly RunSpec['optimizer'][] = [
  { name: 'momentum', learningRate: 0.05, momentum: 0.9, nesterov: false },
  { name: 'momentum', learningRate: 0.05, momentum: 0.9, nesterov: true },
  { name: 'adam', learningRate: 0.001, beta1: 0.9, beta2: 0.9, epsilon: 1e-7 },
];

it.each(OPTIMIZERS)('%j', (optimizer) => {
  const arena = Arena.create({ initialBytes: 1 << 16, maximumBytes: 1 << 16 });
  const pointers = Array.from({ length: 4 }, () => arena.alloc(N * 4));
  const [params, grad, ...slots] = pointers.map((pointer) => arena.f32(pointer, N).fill(0)) as [
    Float32Array,
    Float32Array,
    ...Float32Array[],
  ];
  params.forEach((_, i) => (params[i] = Math.sin(i)));
  const expected = params.slice();
  const kept: [Float32Array, Float32Array] = [new Float32Array(N), new Float32Array(N)];
  const applied = createOptimizer(optimizer);
  const first = Float32Array.from({ length: N }, (_, i) => Math.cos(i) * 10 ** -i);
  for (let step = 1; step <= STEPS; step++) {
    grad.set(step === 1 ? first : new Float32Array(N));
    const [at, of, ...kernelSlots] = pointers as [number, number, ...number[]];
    applied.apply(arena.kernels, { paramIn: at, paramOut: at, grad: of, slots: kernelSlots, count: N, step, gradScale: 1 });
    const update = updateOf(optimizer, step, kept);
    expected.forEach((weight, i) => (expected[i] = update(weight, step === 1 ? first[i]! : 0, i)));
    expect(params).toEqual(expected);
    for (const [s, slot] of slots.entries()) expect(slot).toEqual(kept[s]);
  }
  for (const slot of slots) expect(slot).toEqual(new Float32Array(N));
});
