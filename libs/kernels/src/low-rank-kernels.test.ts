/** Products with thin factors give the bits of their references, whatever rows are cut, and write nowhere else. */
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { Arena } from './arena.js';
import { lowRankScratchBytes } from './low-rank-kernels.js';
import type { LowRankShape } from './low-rank-references.js';
import { expectSameBits } from './kernels.fixture.js';
import * as references from './references.js';

const GUARD_FLOATS = 16;
const MOST = 6000;
const arena = Arena.create({ initialBytes: 1 << 18, maximumBytes: 1 << 18 });
const { kernels } = arena;
const [matrixAt, pAt, qAt, outAt] = [0, 0, 0, 0].map(() => arena.alloc(4 * (MOST + 2 * GUARD_FLOATS))) as [number, number, number, number];
const scratch = arena.alloc(lowRankScratchBytes(70, 5));

/** Small and large numbers of both signs, both zeros and denormals; rarely NaN and infinity, which may make a NaN of any bits. */
const elements: readonly ((i: number) => number)[] = [
  (i) => Math.sin(i * 1.7) * ((i % 13) - 6),
  (i) => [0, -0, 1e-40, -1e-40, 1e30, -3e38, 1e-20, 2][(i * i + (i >> 3)) % 8]!,
  () => 0,
  (i) => (i % 97 === 5 ? Infinity : 1),
  (i) => (i % 11 === 0 ? -0 : -1e-23),
];

const shapes = fc
  .record({ columns: fc.integer({ min: 2, max: 70 }), whole: fc.integer({ min: 0, max: 40 }), rank: fc.integer({ min: 1, max: 5 }) })
  .chain(({ columns, whole, rank }) =>
    fc.record({ head: fc.integer({ min: 0, max: columns - 1 }), last: fc.integer({ min: 1, max: columns }) }).map(({ head, last }) => {
      const length = whole * columns + last;
      return { rows: Math.ceil((head + length) / columns), columns, rank, head, length };
    }),
  );

/** Writes elements at `at`, between guards. */
function put(at: number, n: number, element: (i: number) => number): { readonly at: number; readonly values: Float32Array } {
  const whole = arena.f32(at, n + 2 * GUARD_FLOATS).fill(7);
  const values = whole.subarray(GUARD_FLOATS, GUARD_FLOATS + n);
  for (let i = 0; i < n; i++) values[i] = element(i);
  return { at: at + 4 * GUARD_FLOATS, values };
}

function expectGuards(at: number, n: number): void {
  const whole = arena.f32(at, n + 2 * GUARD_FLOATS);
  for (let i = 0; i < GUARD_FLOATS; i++) expect([whole[i], whole[GUARD_FLOATS + n + i]]).toEqual([7, 7]);
}

it('products with thin factors', () => {
  const kinds = fc.constantFrom(...elements);
  fc.assert(
    fc.property(shapes, kinds, kinds, (shape: LowRankShape, ofMatrix, ofFactor) => {
      const { rows, columns, rank, head, length } = shape;
      const matrix = put(matrixAt, length, ofMatrix);
      const q = put(qAt, columns * rank, (i) => ofFactor(i + 3));
      const p = put(pAt, rows * rank, () => 5);
      const wantedP = new Float32Array(rows * rank);
      references.lowRankTimes(matrix.values, shape, q.values, wantedP);
      kernels.lowRankTimes(matrix.at, q.at, p.at, rows, columns, rank, head, length, scratch);
      expectSameBits(p.values, wantedP);
      expectGuards(pAt, rows * rank);

      p.values.set(Array.from({ length: rows * rank }, (_, i) => (i % 5 === 2 ? 0 : ofFactor(i))));
      const wantedQ = new Float32Array(columns * rank);
      references.lowRankTransposedTimes(matrix.values, shape, p.values, wantedQ);
      kernels.lowRankTransposedTimes(matrix.at, p.at, q.at, rows, columns, rank, head, length, scratch);
      expectSameBits(q.values, wantedQ);
      expectGuards(qAt, columns * rank);

      const out = put(outAt, length, ofMatrix);
      const wanted = Float32Array.from(out.values);
      references.addLowRankProduct(shape, p.values, q.values, wanted);
      kernels.addLowRankProduct(p.at, q.at, out.at, rows, columns, rank, head, length, scratch);
      expectSameBits(out.values, wanted);
      references.lowRankProduct(shape, p.values, q.values, wanted);
      kernels.lowRankProduct(p.at, q.at, out.at, rows, columns, rank, head, length, scratch);
      expectSameBits(out.values, wanted);
      expectGuards(outAt, length);
    }),
    { numRuns: 400 },
  );
});
