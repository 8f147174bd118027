/** PowerSGD at the replica: what a low rank is decoded to, over chunks that cut matrices anywhere. */
import { Arena } from '@paceline/kernels';
import { expect, test } from 'vitest';
import { codecOf } from './codecs.js';
import { GradientEncoder } from './gradient-encoder.js';
import { codecKey } from './codec.js';
import type { Shapes } from './low-rank.js';

/** A matrix of 90 x 40 whose chunks begin in the middle of rows, its bias, and a matrix that is too small. */
const CHUNK = 1000;
const VARIABLES = [
  { shape: [9, 10, 40], offset: 0, length: 3600 },
  { shape: [40], offset: 3600, length: 40 },
  { shape: [3, 4], offset: 3640, length: 12 },
];
const LENGTH = 3652;
const chunks = [0, 1, 2, 3].map((index) => ({
  index,
  offset: index * CHUNK,
  length: Math.min(CHUNK, LENGTH - index * CHUNK),
  isEncoded: true,
}));
const SHAPES: Shapes = { variables: VARIABLES, chunks };

/** Sums of outer products, and numbers of their own where there is no matrix. */
function gradientOf(ranks: number, seed = 0): Float32Array {
  return Float32Array.from({ length: LENGTH }, (_, i) => {
    if (i >= 3600) return Math.sin(i + seed);
    const [row, column] = [Math.floor(i / 40), i % 40];
    let sum = 0;
    for (let k = 1; k <= ranks; k++) sum += (Math.sin(row * k + seed) * Math.cos(column * 1.3 * k)) / k ** 2;
    return sum;
  });
}

const norm = (x: Iterable<number>): number => Math.sqrt([...x].reduce((sum, value) => sum + value * value, 0));

function setUp(rank: number) {
  const spec = { kind: 'power-sgd', rank, errorFeedback: false } as const;
  const codec = codecOf(spec, SHAPES)!;
  const arena = Arena.create({ initialBytes: 1 << 20, maximumBytes: 1 << 20 });
  const encoder = new GradientEncoder(codec, arena, chunks, 3, spec, 2, () => 64);
  const gradient = arena.alloc(4 * LENGTH);
  const out = arena.alloc(4 * LENGTH);
  /** What the server has of a round. */
  const round = (k: number, values: Float32Array, replica = 0): { got: Float32Array; bytes: number; sent: Uint8Array } => {
    arena.f32(gradient, LENGTH).set(values);
    const { pointer, offsets, lengths } = encoder.encode(k, replica, gradient);
    const sent: number[] = [];
    for (const [i, { index, offset, length }] of chunks.entries()) {
      const own = codec.of!(index);
      expect(own.isLength(length, lengths[i]!)).toBe(true);
      expect(own.isLength(length, lengths[i]! - 1)).toBe(false);
      sent.push(...arena.bytes(pointer + offsets[i]!, lengths[i]!));
      const key = codecKey(3, k, replica, index);
      expect(own.decode(arena, pointer + offsets[i]!, lengths[i]!, out + 4 * offset, length, key)).toBe(true);
    }
    arena.free(pointer);
    return { got: arena.f32(out, LENGTH).slice(), bytes: sent.length, sent: Uint8Array.from(sent) };
  };
  return { round, arena, encoder };
}

test('a gradient of that rank comes back but for its rounding; vectors and small matrices as they are', () => {
  for (const rank of [1, 2]) {
    const { round } = setUp(rank);
    const values = gradientOf(rank);
    round(0, values);
    const { got, bytes } = round(1, values);
    // What round 0 has left comes with round 1.
    expect(norm(got.map((x, i) => (i < 3600 ? x - values[i]! : 0)))).toBeLessThan(0.05 * norm(values.subarray(0, 3600)));
    expect([...got.subarray(3600)]).toEqual([...values.subarray(3600)]);
    // 3 chunks of 26 rows and one of 15 or 16, of 40 columns each, 8 bits of an element and what rounds up.
    expect(bytes).toBeLessThan(rank * 4 * (32 + 48 + 8) + 4 * 52);
  }
});

test('nothing is lost: the sum of what is decoded follows the sum of the gradients', () => {
  const { round } = setUp(1);
  const ROUNDS = 30;
  const sum = new Float64Array(LENGTH);
  const wanted = new Float64Array(LENGTH);
  for (let k = 0; k < ROUNDS; k++) {
    const values = gradientOf(6, k * 0.01);
    const { got } = round(k, values);
    got.forEach((x, i) => (sum[i]! += x));
    values.forEach((x, i) => (wanted[i]! += x));
  }
  expect(norm(sum.map((x, i) => x - wanted[i]!))).toBeLessThan(0.2 * norm(wanted));
});

test('it begins with what the round before has found, so that a power iteration goes on', () => {
  const N = 64 * 64;
  // Two directions that are nearly as long, and orthogonal: one step from a random start finds a mixture.
  const values = Float32Array.from({ length: N }, (_, i) => {
    const [row, column] = [Math.floor(i / 64), i % 64];
    return (column % 2) * (row % 2) + 0.7 * ((column + 1) % 2) * ((row + 1) % 2);
  });
  const codec = codecOf({ kind: 'power-sgd', errorFeedback: false })!;
  const arena = Arena.create({ initialBytes: 1 << 20, maximumBytes: 1 << 20 });
  const [from, to, back] = [0, 0, 0].map(() => arena.alloc(4 * N)) as [number, number, number];
  const warm = [0, 0].map(() => arena.alloc(4 * codec.warmFloats!(N))) as [number, number];
  arena.f32(from, N).set(values);
  const errorAfter = (isWarm: boolean): number => {
    const STEPS = 12;
    for (let k = 0; k < STEPS; k++) {
      const before = isWarm && k > 0 ? warm[(k + 1) % 2] : undefined;
      const bytes = codec.encode(arena, from, to, N, k, 1, { before, after: warm[k % 2]! });
      codec.decode(arena, to, bytes, back, N, k);
    }
    return norm(arena.f32(back, N).map((x, i) => x - values[i]!));
  };
  const best = 0.7 * 32;
  expect(errorAfter(true)).toBeLessThan(1.03 * best);
  expect(errorAfter(false)).toBeGreaterThan(1.05 * best);
});

test('a round that is computed again is encoded the same, and no memory is kept', () => {
  const { round, arena } = setUp(2);
  round(0, gradientOf(4));
  const first = round(1, gradientOf(4, 1));
  const used = arena.bytesInUse;
  expect(round(1, gradientOf(4, 1)).sent).toEqual(first.sent);
  for (let k = 2; k < 6; k++) round(k, gradientOf(4, k));
  expect(arena.bytesInUse).toBe(used);
});

test('what is not finite stays so, and nothing of it is kept', () => {
  const { round } = setUp(1);
  const bad = gradientOf(1);
  bad[1500] = Infinity;
  expect(
    round(0, bad)
      .got.subarray(1000, 2000)
      .some((x) => !Number.isFinite(x)),
  ).toBe(true);
  expect(round(1, gradientOf(1)).got.every((x) => Number.isFinite(x))).toBe(true);
});
