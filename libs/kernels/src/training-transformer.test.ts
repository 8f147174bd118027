/** Softmax of scores, layer normalisation and GELU against their definitions in double precision, over sizes that end within a vector; guards around each result. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { fusesMultiplyAdd, instantiateTrainingKernels, type TrainingKernels } from './training.js';
import type { PlainMemory } from './webassembly.js';

const { Memory } = (globalThis as unknown as { WebAssembly: { Memory: new (size: { initial: number }) => PlainMemory } }).WebAssembly;
const memory = new Memory({ initial: 64 });
const heap = new Float32Array(memory.buffer);
const GUARD = 1234.5;
const wave = (i: number, seed: number): number => Math.fround(Math.sin(i * 12.9898 + seed * 78.233) * 3);

/** Places in the memory, each between two guards. */
class Places {
  private top = 256;
  private readonly guards: number[] = [];

  take(floats: number, seed?: number): number {
    heap[this.top] = GUARD;
    const at = this.top + 1;
    for (let i = 0; i < floats; i++) heap[at + i] = seed === undefined ? 0 : wave(i, seed);
    heap[at + floats] = GUARD;
    this.guards.push(this.top, at + floats);
    this.top = at + floats + 1;
    return at * 4;
  }

  check(): void {
    for (const guard of this.guards) expect(heap[guard]).toBe(GUARD);
  }
}
const read = (address: number, floats: number): number[] => [...heap.slice(address / 4, address / 4 + floats)];

function close(got: readonly number[], want: readonly number[], bound = 2e-5): void {
  expect(got).toHaveLength(want.length);
  const wrong = got.findIndex((value, i) => !(Math.abs(value - want[i]!) < bound * Math.max(1, Math.abs(want[i]!))));
  if (wrong !== -1) expect.fail(`number ${wrong}: ${got[wrong]} for ${want[wrong]}`);
}

const sizes = fc.record({
  rows: fc.integer({ min: 1, max: 9 }),
  columns: fc.integer({ min: 1, max: 21 }),
  seed: fc.nat(99),
  causal: fc.boolean(),
});
const sum = (values: readonly number[]): number => values.reduce((a, b) => a + b, 0);
const rowsOf = (values: readonly number[], width: number): number[][] =>
  Array.from({ length: values.length / width }, (_, r) => values.slice(r * width, (r + 1) * width));

/** As in tf.js: Abramowitz & Stegun 7.1.26. */
function erf(x: number): number {
  const t = 1 / (1 + 0.3275911 * Math.abs(x));
  const p = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t;
  return Math.sign(x) * (1 - p * Math.exp(-x * x));
}

describe.each(['plain', 'relaxed'] as const)('the %s kernels of transformers', (variant) => {
  const test = it.skipIf(variant === 'relaxed' && !fusesMultiplyAdd());
  const kernels = (): TrainingKernels => instantiateTrainingKernels(memory, variant);

  test('softmax of what each row may see, and its gradient', () => {
    fc.assert(
      fc.property(sizes, ({ rows, columns, seed, causal }) => {
        const places = new Places();
        const [x, dp] = [places.take(rows * columns, seed), places.take(rows * columns, seed + 1)];
        const [given, back] = [rowsOf(read(x, rows * columns), columns), rowsOf(read(dp, rows * columns), columns)];
        const scale = Math.fround(0.7);
        const seen = (r: number): number => (causal ? Math.min(columns, r + 1) : columns);
        const p = given.map((row, r) => {
          const powers = row.map((value, c) => (c < seen(r) ? Math.exp(value * scale) : 0));
          return powers.map((power) => power / sum(powers));
        });
        kernels().softmaxRows(x, rows, columns, scale, causal ? 1 : 0);
        close(read(x, rows * columns), p.flat());
        kernels().softmaxRowsGradient(x, dp, rows, columns, scale, causal ? 1 : 0);
        const dx = p.map((row, r) =>
          row.map((share, c) => scale * share * (back[r]![c]! - sum(row.map((each, i) => each * back[r]![i]!)))),
        );
        close(read(dp, rows * columns), dx.flat());
        places.check();
      }),
      { numRuns: 60 },
    );
  });

  test('layer normalisation and its gradient', () => {
    fc.assert(
      fc.property(sizes, fc.constantFrom(1, 70), ({ rows: few, columns, seed }, times) => {
        const rows = few * times;
        const places = new Places();
        const [x, dy] = [places.take(rows * columns, seed), places.take(rows * columns, seed + 1)];
        const [gamma, beta] = [places.take(columns, seed + 2), places.take(columns, seed + 3)];
        const [y, dx, moments] = [places.take(rows * columns), places.take(rows * columns), places.take(rows * 2)];
        const [dGamma, dBeta, run] = [places.take(columns), places.take(columns), places.take(columns)];
        const epsilon = 0.25;
        kernels().layerNorm(x, y, rows, columns, gamma, beta, epsilon, moments);
        kernels().layerNormGradient(x, dy, dx, rows, columns, gamma, moments, dGamma, dBeta, run);
        const [g, b] = [read(gamma, columns), read(beta, columns)];
        const back = rowsOf(read(dy, rows * columns), columns);
        const mean = (values: readonly number[]): number => sum(values) / columns;
        const hats = rowsOf(read(x, rows * columns), columns).map((row) => {
          const centre = mean(row);
          const deviation = Math.sqrt(mean(row.map((value) => (value - centre) ** 2)) + epsilon);
          return { deviation, hat: row.map((value) => (value - centre) / deviation) };
        });
        close(
          read(y, rows * columns),
          hats.flatMap(({ hat }) => hat.map((value, c) => value * g[c]! + b[c]!)),
        );
        const want = hats.flatMap(({ hat, deviation }, r) => {
          const slopes = back[r]!.map((value, c) => value * g[c]!);
          const tilt = mean(slopes.map((slope, c) => slope * hat[c]!));
          return slopes.map((slope, c) => (slope - mean(slopes) - hat[c]! * tilt) / deviation);
        });
        close(read(dx, rows * columns), want, 1e-4);
        close(
          read(dBeta, columns),
          g.map((_, c) => sum(back.map((row) => row[c]!))),
          2e-3,
        );
        close(
          read(dGamma, columns),
          g.map((_, c) => sum(back.map((row, r) => row[c]! * hats[r]!.hat[c]!))),
          2e-3,
        );
        places.check();
      }),
      { numRuns: 40 },
    );
  });

  test('GELU and its slope', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 30 }), fc.nat(99), (n, seed) => {
        const places = new Places();
        const [x, dy, y, dx] = [places.take(n, seed), places.take(n, seed + 1), places.take(n), places.take(n)];
        const [given, back] = [read(x, n), read(dy, n)];
        kernels().gelu(x, y, n);
        kernels().geluGradient(x, dy, dx, n);
        const share = (value: number): number => (1 + erf(value / Math.SQRT2)) / 2;
        close(
          read(y, n),
          given.map((value) => value * share(value)),
        );
        const slope = (value: number): number => share(value) + (value * Math.exp((-value * value) / 2)) / Math.sqrt(2 * Math.PI);
        close(
          read(dx, n),
          given.map((value, i) => back[i]! * slope(value)),
        );
        places.check();
      }),
      { numRuns: 60 },
    );
  });
});
