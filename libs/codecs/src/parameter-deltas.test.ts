/** Differences of parameters: what the server says that workers have is what they have, and nothing is lost. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { Arena } from '@paceline/kernels';
import type { CodecSpec } from '@paceline/spec';
import { parameterDeltasOf } from './parameter-deltas.js';

const KINDS = ['delta-int4', 'delta-int2', 'delta-top-k'] as const;
const arena = Arena.create({ initialBytes: 1 << 18, maximumBytes: 1 << 18 });
const specOf = (parameters: CodecSpec['parameters']): CodecSpec => ({ kind: 'none', errorFeedback: false, parameters });

/** A server and a worker, generation by generation; what both have must stay the same bits. @returns what workers have in the end, and bytes */
function follow(kind: (typeof KINDS)[number], generations: readonly Float32Array[]): { held: Float32Array; bytes: number[] } {
  const deltas = parameterDeltasOf(specOf(kind), 3)!;
  const n = generations[0]!.length;
  const [values, held, got] = [0, 0, 0].map(() => arena.alloc(4 * n)) as [number, number, number];
  const worker = generations[0]!.slice();
  arena.f32(held, n).set(worker);
  const sizes: number[] = [];
  for (const [generation, exact] of generations.entries()) {
    if (generation === 0) continue;
    arena.f32(values, n).set(exact);
    const advanced = deltas.advance(arena, values, held, n, generation, 2);
    if (!advanced) {
      arena.f32(held, n).set(exact);
      worker.set(exact);
      continue;
    }
    const { pointer, length, bytes } = advanced.difference;
    expect(bytes).toBeLessThanOrEqual(4 * length);
    expect(deltas.isLength(n, bytes)).toBe(true);
    expect(deltas.decode(arena, pointer, bytes, got, n, generation, 2)).toBe(true);
    for (const [i, d] of arena.f32(got, n).entries()) worker[i]! += d;
    arena.f32(held, n).set(arena.f32(advanced.reference, n));
    expect(new Uint32Array(worker.buffer)).toEqual(new Uint32Array(arena.f32(held, n).slice().buffer));
    sizes.push(bytes);
    arena.free(pointer);
    arena.free(advanced.reference);
  }
  for (const block of [values, held, got]) arena.free(block);
  expect(arena.bytesInUse).toBe(0);
  return { held: worker, bytes: sizes };
}

const distance = (a: Float32Array, b: Float32Array): number => Math.sqrt(a.reduce((sum, x, i) => sum + (x - b[i]!) ** 2, 0));

test.each(KINDS)('%s: server and worker have the same bits, whatever the values are', (kind) => {
  const value = fc.oneof(fc.double({ min: -1, max: 1, noNaN: true }), fc.constantFrom(0, -0, 1e-40, 3e38, 1));
  const vectors = fc
    .integer({ min: 1, max: 1300 })
    .chain((n) => fc.array(fc.array(value, { minLength: n, maxLength: n }), { minLength: 3, maxLength: 4 }));
  fc.assert(
    fc.property(
      vectors,
      (generations) =>
        void follow(
          kind,
          generations.map((each) => Float32Array.from(each)),
        ),
    ),
    { numRuns: 25 },
  );
});

test.each([
  ['delta-int4', 0.52],
  ['delta-int2', 0.27],
  ['delta-top-k', 0.1],
] as const)('%s: parameters that stay are reached, in %f bytes an element', (kind, bytesPerElement) => {
  const n = 1300;
  const start = new Float32Array(n);
  const end = Float32Array.from({ length: n }, (_, i) => Math.sin(i * i));
  const far = distance(start, end);
  const after = (rounds: number) => follow(kind, [start, ...Array.from({ length: rounds }, () => end)]);
  const [once, often] = [after(1), after(60)];
  expect(distance(once.held, end)).toBeLessThan(far);
  expect(distance(often.held, end)).toBeLessThan(0.02 * far);
  for (const bytes of often.bytes) expect(bytes).toBeLessThanOrEqual(n * bytesPerElement + 24);
});

test.each(KINDS)('%s: values that are not finite travel as they are, and so do those after them', (kind) => {
  const finite = Float32Array.from({ length: 600 }, (_, i) => i);
  const broken = finite.map((x, i) => (i === 7 ? NaN : x));
  expect(follow(kind, [finite, broken]).held).toEqual(broken);
  expect(follow(kind, [finite, broken, finite]).held).toEqual(finite);
});

test('bytes that nobody has encoded are refused, and nothing is written beyond the chunk', () => {
  const n = 40;
  const from = arena.alloc(256);
  const to = arena.alloc(4 * n + 64);
  fc.assert(
    fc.property(fc.constantFrom(...KINDS), fc.uint8Array({ maxLength: 200 }), (kind, bytes) => {
      const deltas = parameterDeltasOf(specOf(kind), 3)!;
      if (!deltas.isLength(n, bytes.length)) return;
      arena.bytes(from, bytes.length).set(bytes);
      const chunk = arena.bytes(to, 4 * n + 64).fill(0xa5);
      deltas.decode(arena, from, bytes.length, to, n, 1, 0);
      expect(chunk.subarray(4 * n).every((x) => x === 0xa5)).toBe(true);
    }),
    { numRuns: 300 },
  );
  arena.free(from);
  arena.free(to);
});

test('parameters that travel whole have no differences', () => {
  expect([parameterDeltasOf(undefined, 1), parameterDeltasOf(specOf('int8'), 1)]).toEqual([undefined, undefined]);
});
