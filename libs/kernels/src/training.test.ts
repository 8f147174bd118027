import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  EDGE_BYTES,
  fusesMultiplyAdd,
  instantiateTrainingKernels,
  LISTED_ROW_BYTES,
  ProductMode,
  readTrainingModule,
  TILE_BYTES_PER_K,
  type TrainingVariant,
} from './training.js';
import type { PlainMemory } from './webassembly.js';

/**
 * The products against sums in double precision, over shapes that cross every tile, panel and block; guards around the result
 * catch a kernel that writes one element too many. What layers make of the kernels is tested in libs/engine.
 */
const { Memory } = (globalThis as unknown as { WebAssembly: { Memory: new (size: { initial: number }) => PlainMemory } }).WebAssembly;
const memory = new Memory({ initial: 256 });
const heap = new Float32Array(memory.buffer);
const GUARD = 1234.5;

/** Hands out the memory from the start, 64 bytes apart. */
function places(): (floats: number) => number {
  let top = 1024;
  return (floats) => {
    const at = top;
    top += floats * 4 + 64 + (64 - ((floats * 4) % 64));
    return at;
  };
}

const wave = (i: number, seed: number): number => Math.fround(Math.sin(i * 12.9898 + seed * 78.233) * 0.7);

interface Shape {
  readonly m: number;
  readonly n: number;
  readonly k: number;
  readonly transposeA: boolean;
  readonly transposeB: boolean;
  readonly withBias: boolean;
  readonly accumulate: boolean;
  readonly relu: boolean;
}

function multiply(variant: TrainingVariant, shape: Shape): { got: Float32Array; want: Float64Array; guards: number[] } {
  const { m, n, k, transposeA, transposeB, withBias, accumulate, relu } = shape;
  const kernels = instantiateTrainingKernels(memory, variant);
  const take = places();
  const [a, b, c, bias] = [m * k, k * n, m * n, n].map((floats) => take(floats)) as [number, number, number, number];
  const [table, packed] = [take(Math.max(m, k)), take((k + 1) * 8 * Math.ceil(n / 8))];
  const [edge, tile] = [take(EDGE_BYTES / 4), take((TILE_BYTES_PER_K / 4) * k)];
  for (const [at, floats, seed] of [
    [a, m * k, 1],
    [b, k * n, 2],
    [c, m * n, 3],
    [bias, n, 4],
  ] as const)
    // oxfmt-ignore
    for (let i = 0; i < floats; i++) heap[at / 4 + i] = wave(i, seed);
  const guards = [c / 4 - 1, c / 4 + m * n];
  for (const at of guards) heap[at] = GUARD;
  const want = new Float64Array(m * n);
  for (let r = 0; r < m; r++) {
    for (let j = 0; j < n; j++) {
      let sum = accumulate ? wave(r * n + j, 3) : withBias ? wave(j, 4) : 0;
      for (let i = 0; i < k; i++) sum += wave(transposeA ? i * m + r : r * k + i, 1) * wave(transposeB ? j * k + i : i * n + j, 2);
      want[r * n + j] = relu ? Math.max(0, sum) : sum;
    }
  }
  const panel = (k + 1) * 32;
  kernels.packBias(withBias ? bias : 0, n, packed, panel);
  if (transposeB) kernels.packTransposed(b, k * 4, k, n, packed + 32, panel);
  else kernels.packPlain(b, n * 4, k, n, packed + 32, panel);
  kernels.tabulate(table, a, (transposeA ? m : k) * 4, transposeA ? k : m);
  const mode = accumulate ? ProductMode.Add : ProductMode.Bias;
  if (!transposeA) kernels.multiplyRows(table, m, 0, k, packed, n, c, n * 4, mode, edge);
  else kernels.multiplyColumns(table, k, 0, m, packed, n, c, n * 4, mode, tile, edge);
  if (relu) kernels.relu(c, c, m * n);
  return { got: heap.slice(c / 4, c / 4 + m * n), want, guards: guards.map((at) => heap[at]!) };
}

/** A of which the given share is zero, both ways; the product by lists begins from the same as the dense one, and has room for its lists alone. */
function multiplyBothWays(variant: TrainingVariant, { m, n, k, transposeA, withBias, accumulate, first, zeros, odd }: ListedShape) {
  const kernels = instantiateTrainingKernels(memory, variant);
  const take = places();
  const [a, b, bias, dense, listed] = [m * k, k * n, n, m * n, m * n].map((floats) => take(floats)) as [
    number,
    number,
    number,
    number,
    number,
  ];
  const [table, packed] = [take(Math.max(m, k)), take((k + 1) * 8 * Math.ceil(n / 8))];
  const [edge, tile, rows] = [take(EDGE_BYTES / 4), take((TILE_BYTES_PER_K / 4) * k), take(k)];
  const [starts, panel, begin] = [take(m + 2), take((LISTED_ROW_BYTES / 4) * k), take(n)];
  for (let i = 0; i < m * k; i++) heap[a / 4 + i] = (wave(i, 5) + 0.7) / 1.4 < zeros ? 0 : wave(i, 1);
  heap[a / 4 + ((m * k) >> 1)] = odd;
  const set = heap.subarray(a / 4, a / 4 + m * k).reduce((count, x) => count + (x === 0 ? 0 : 1), 0);
  const entries = take(2 * (set + m));
  for (let i = 0; i < k * n; i++) heap[b / 4 + i] = wave(i, 2);
  for (let i = 0; i < n; i++) heap[bias / 4 + i] = wave(i, 4);
  for (let i = 0; i < m * n; i++) heap[dense / 4 + i] = heap[listed / 4 + i] = wave(i, 3);
  if (first !== undefined) heap[bias / 4] = heap[dense / 4] = heap[listed / 4] = first;
  const guards = [
    listed / 4 - 1,
    listed / 4 + m * n,
    entries / 4 - 1,
    entries / 4 + 2 * (set + m),
    starts / 4 - 1,
    starts / 4 + m + 2,
    panel / 4 + (LISTED_ROW_BYTES / 4) * k,
  ];
  for (const at of guards) heap[at] = GUARD;

  const panelBytes = (k + 1) * 32;
  kernels.packBias(withBias ? bias : 0, n, packed, panelBytes);
  kernels.packPlain(b, n * 4, k, n, packed + 32, panelBytes);
  kernels.tabulate(table, a, (transposeA ? m : k) * 4, transposeA ? k : m);
  const mode = accumulate ? ProductMode.Add : ProductMode.Bias;
  if (transposeA) kernels.multiplyColumns(table, k, 0, m, packed, n, dense, n * 4, mode, tile, edge);
  else kernels.multiplyRows(table, m, 0, k, packed, n, dense, n * 4, mode, edge);

  if (transposeA) {
    kernels.tabulate(rows, 0, LISTED_ROW_BYTES, k);
    kernels.listColumns(table, 0, k, m, rows, entries, starts);
  } else kernels.listRows(a, k * 4, m, k, LISTED_ROW_BYTES, entries, starts);
  kernels.fillZero(begin, n * 4);
  kernels.multiplyListedPanels(starts, m, b, n * 4, k, n, panel, accumulate ? 0 : withBias ? bias : begin, listed, n * 4);
  return {
    dense: heap.slice(dense / 4, dense / 4 + m * n),
    listed: heap.slice(listed / 4, listed / 4 + m * n),
    guards: guards.map((at) => heap[at]!),
    counted: kernels.countNonZero(a, m * k) - set,
  };
}

interface ListedShape extends Omit<Shape, 'relu' | 'transposeB'> {
  /** What the sums of the first column begin from, or the first sum that is added to. */
  readonly first: number | undefined;
  /** Share of A. */
  readonly zeros: number;
  /** An element of A. */
  readonly odd: number;
}

const listedShapes = fc.record({
  m: fc.integer({ min: 1, max: 45 }),
  n: fc.integer({ min: 1, max: 5 }).map((eights) => 8 * eights),
  k: fc.integer({ min: 1, max: 70 }),
  transposeA: fc.boolean(),
  withBias: fc.boolean(),
  accumulate: fc.boolean(),
  first: fc.constantFrom(undefined, -0),
  zeros: fc.constantFrom(0, 0.5, 0.8, 0.97, 2),
  odd: fc.constantFrom(0, -0, 1.5, 2e-45, -Infinity, NaN),
});

const shapes = fc
  .record({
    m: fc.integer({ min: 1, max: 45 }),
    n: fc.integer({ min: 1, max: 35 }),
    k: fc.integer({ min: 1, max: 70 }),
    transposeA: fc.boolean(),
    transposeB: fc.boolean(),
    withBias: fc.boolean(),
    accumulate: fc.boolean(),
    relu: fc.boolean(),
  })
  .map((shape) => ({ ...shape, relu: shape.relu && !shape.accumulate }));

const variants: TrainingVariant[] = fusesMultiplyAdd() ? ['plain', 'relaxed'] : ['plain'];

describe.each(variants)('products, %s', (variant) => {
  it('are the sums of the definition, for every shape, and nothing beside them is written', () => {
    fc.assert(
      fc.property(shapes, (shape) => {
        const { got, want, guards } = multiply(variant, shape);
        expect(guards).toEqual([GUARD, GUARD]);
        for (let i = 0; i < want.length; i++)
          if (!(Math.abs(got[i]! - want[i]!) < 1e-5)) expect.fail(`element ${i}: ${got[i]} for ${want[i]}`);
      }),
      { numRuns: 300 },
    );
  });

  it('have the same bits by lists of what is not zero, and nothing beside them is written', () => {
    fc.assert(
      fc.property(listedShapes, (shape) => {
        const { dense, listed, guards, counted } = multiplyBothWays(variant, shape);
        expect(guards.every((guard) => guard === GUARD)).toBe(true);
        expect(counted).toBe(0);
        // Up to the sign of a zero where a sum began at −0, or a fused multiply-add underflows: see assembly/training/sparse.ts.
        const isAnyZero = (i: number): boolean => variant === 'relaxed' || (shape.first !== undefined && i % shape.n === 0);
        for (let i = 0; i < dense.length; i++)
          if (!Object.is(listed[i], dense[i]) && !(listed[i] === dense[i] && isAnyZero(i)))
            expect.fail(`element ${i}: ${listed[i]} for ${dense[i]}`);
      }),
      { numRuns: 300 },
    );
  });

  it('keep a bias of −0 by lists of nothing, where the dense product adds zeros to it', () => {
    const shape = { m: 2, n: 8, k: 3, transposeA: false, withBias: true, accumulate: false, first: -0, zeros: 2, odd: 0 };
    const { dense, listed } = multiplyBothWays(variant, shape);
    expect([listed[0], dense[0]]).toEqual([-0, 0]);
  });

  it('give an element the same bits wherever it stands', () => {
    const shape = { k: 37, transposeA: false, transposeB: false, withBias: true, accumulate: false, relu: false };
    const large = multiply(variant, { ...shape, m: 9, n: 12 }).got;
    const rows = multiply(variant, { ...shape, m: 3, n: 12 }).got;
    expect([...rows]).toEqual([...large.subarray(0, 36)]);
  });
});

it('the plain variant rounds every multiplication and every addition', () => {
  const { got } = multiply('plain', {
    m: 5,
    n: 9,
    k: 23,
    transposeA: false,
    transposeB: false,
    withBias: true,
    accumulate: false,
    relu: false,
  });
  for (let r = 0; r < 5; r++) {
    for (let j = 0; j < 9; j++) {
      let sum = wave(j, 4);
      for (let i = 0; i < 23; i++) sum = Math.fround(sum + Math.fround(wave(r * 23 + i, 1) * wave(i * 9 + j, 2)));
      expect(got[r * 9 + j]).toBe(sum);
    }
  }
});

it.each([
  ['nothing', 0, 1],
  ['the largest number', 3.4028234663852886e38, 1],
  ['an infinity', -Infinity, 0],
  ['something that is not a number', NaN, 0],
])('a vector with %s in it is told from a finite one', (_, value, want) => {
  const kernels = instantiateTrainingKernels(memory);
  for (const length of [1, 3, 4, 7, 15, 16, 17, 24, 31, 40, 64]) {
    for (let at = 0; at < length; at++) {
      heap.fill(1.5, 1024, 1024 + length + 1);
      heap[1024 + length] = NaN; // does not belong to it
      heap[1024 + at] = value;
      expect(kernels.isFinite(4096, length)).toBe(want);
    }
  }
});

it('exp, sigmoid and tanh inside of the gates are within a few units in the last place', () => {
  const kernels = instantiateTrainingKernels(memory);
  const take = places();
  const units = 401;
  const [gates, before, c, h] = [take(units * 4), take(units), take(units), take(units)] as const;
  const inputs = Float32Array.from({ length: units }, (_, i) => (i - 200) / 8);
  heap.fill(0, before / 4, before / 4 + units);
  for (let part = 0; part < 4; part++) heap.set(inputs, gates / 4 + part * units);
  kernels.lstmForward(gates, before, c, h, 1, units, 0);
  for (let i = 0; i < units; i++) {
    const [sigmoid, tanh] = [1 / (1 + Math.exp(-inputs[i]!)), Math.tanh(inputs[i]!)];
    expect(Math.abs(heap[gates / 4 + i]! / sigmoid - 1)).toBeLessThan(4e-7);
    expect(Math.abs(heap[gates / 4 + 2 * units + i]! - tanh)).toBeLessThan(2e-7 * Math.abs(tanh) + 1e-12);
  }
});

/** Where a section of a module begins tells what it is: 11 is data, which would be written over the heap of the backend. */
it.each(['plain', 'relaxed'] as const)('the module has no data of its own, %s', (variant) => {
  const bytes = readTrainingModule(variant);
  const sections: number[] = [];
  let at = 8;
  while (at < bytes.length) {
    sections.push(bytes[at++]!);
    let length = 0;
    for (let shift = 0; ; shift += 7) {
      const byte = bytes[at++]!;
      length |= (byte & 127) << shift;
      if (byte < 128) break;
    }
    at += length;
  }
  expect(sections).toContain(10);
  expect(sections).not.toContain(11);
});
