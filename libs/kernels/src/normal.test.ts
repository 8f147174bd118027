/** Slots whose gradient stays 0 end at 0, in lanes and in the tail: numbers below 2^-126 would make each step a hundred times as long. */
import { expect, it } from 'vitest';
import { Arena } from './arena.js';

const N = 7;
const STEPS = 3_000;

type Run = (arena: Arena, param: number, slots: readonly number[], grad: number) => void;

/** Slots, and a step. Betas are small, so that a slot gets there in these steps. */
const OPTIMIZERS: Readonly<Record<string, readonly [number, Run]>> = {
  momentum: [1, ({ kernels }, w, [v], g) => kernels.momentum(w, w, v!, g, N, 0.1, 0.9, true, 1)],
  adam: [2, ({ kernels }, w, [m, v], g) => kernels.adam(w, w, m!, v!, g, N, 0.1, 0.9, 0.95, 1e-7, 1)],
  adamax: [2, ({ kernels }, w, [m, u], g) => kernels.adamax(w, w, m!, u!, g, N, 0.1, 0.5, 0.9, 0.95, 1e-7, 1)],
  adadelta: [2, ({ kernels }, w, [s, d], g) => kernels.adadelta(w, w, s!, d!, g, N, 0.1, 0.95, 1e-6, 1)],
  rmsprop: [3, ({ kernels }, w, [s, a, v], g) => kernels.rmsprop(w, w, s!, a!, v!, g, N, 0.1, 0.9, 0.8, 1e-7, true, 1)],
  lion: [1, ({ kernels }, w, [m], g) => kernels.lion(w, w, m!, g, N, 0.1, 0.9, 0.95, 1)],
  lars: [1, ({ kernels }, w, [v], g) => kernels.lars(w, w, v!, g, N, 0.1, 0.9, 0, 1)],
  lamb: [2, ({ kernels }, w, [m, v], g) => kernels.lamb(w, w, m!, v!, g, N, 0.1, 0.5, 0.5, 0.9, 0.95, 1e-6, 1)],
};

it.each(Object.entries(OPTIMIZERS))('%s', (_, [count, run]) => {
  const arena = Arena.create({ initialBytes: 1 << 16, maximumBytes: 1 << 16 });
  const place = (value: number): number => {
    const pointer = arena.alloc(N * 4);
    arena.f32(pointer, N).forEach((__, i, all) => (all[i] = i % 2 === 0 ? value : -value));
    return pointer;
  };
  const [param, grad] = [place(0.5), place(0)];
  const slots = Array.from({ length: count }, () => place(1e-3));
  for (const slot of slots) arena.f32(slot, N).forEach((value, i, all) => (all[i] = Math.abs(value)));
  for (let step = 0; step < STEPS; step++) run(arena, param, slots, grad);
  for (const slot of slots) expect([...arena.f32(slot, N)]).toEqual(Array.from({ length: N }, () => 0));
});
