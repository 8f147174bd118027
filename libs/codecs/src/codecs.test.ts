/** One suite for all codecs: what every codec promises, whatever it does to a gradient. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { Arena } from '@paceline/kernels';
import { CODECS, VALUE_KINDS, type CodecSpec } from '@paceline/spec';
import { codecKey } from './codec.js';
import { codecOf } from './codecs.js';

/** `Codec.rows` of libs/protocol. */
const ROWS = 255;
const MAX = 1500;
const GUARD_BYTES = 64;
const arena = Arena.create({ initialBytes: 1 << 18, maximumBytes: 1 << 18 });
const [source, encoded, decoded] = [0, 0, 0].map(() => arena.alloc(MAX * 12 + 2 * GUARD_BYTES)) as [number, number, number];

/** auto is none of its own. */
const KINDS = CODECS.filter((kind) => kind !== 'auto');

const VALUES: readonly CodecSpec[] = VALUE_KINDS.filter((values) => values !== 'float32').flatMap((values) => [
  { kind: 'top-k', density: 0.01, values, errorFeedback: false },
  { kind: 'top-k', density: 0.3, values, errorFeedback: false },
  { kind: 'random-k', density: 0.3, values, errorFeedback: false },
  { kind: 'threshold', threshold: 5e-4, values, errorFeedback: false },
  { kind: 'threshold', threshold: 9e-4, values, errorFeedback: false },
]);
const PLAIN: readonly CodecSpec[] = KINDS.filter((kind) => kind !== 'none').flatMap((kind): CodecSpec[] => {
  const plain = { kind, errorFeedback: false };
  if (kind === 'threshold') return [{ ...plain, threshold: 5e-4 }];
  if (kind === 'dgc') return [0.01, 0.2].map((density) => Object.assign({ density, warmupRounds: density > 0.1 ? 10 : 0 }, plain));
  if (kind === 'power-sgd') return [1, 3].map((rank) => Object.assign({ rank }, plain));
  return kind === 'top-k' || kind === 'random-k'
    ? [0.01, 0.3, kind === 'top-k' ? 0.5 : 1].map((density) => ({ ...plain, density }))
    : [plain];
});
const named = [...PLAIN, ...VALUES].map((spec) => ({
  name: [spec.kind, spec.density ?? spec.threshold ?? spec.rank, spec.values].filter(Boolean).join(' '),
  codec: codecOf(spec)!,
  spec,
}));

const gradients = fc
  .integer({ min: 1, max: MAX })
  .chain((n) => fc.array(fc.double({ min: -1e-3, max: 1e-3, noNaN: true }), { minLength: n, maxLength: n }));

function put(values: readonly number[]): Float32Array {
  const view = arena.f32(source, values.length);
  view.set(values);
  return Float32Array.from(view);
}

/** Encodes and decodes; what lies around the bytes and the chunk must stay. Undefined when the chunk has to be sent as it is. */
function through(codec: (typeof named)[0]['codec'], n: number, key: number): { bytes: Uint8Array; back: Float32Array } | undefined {
  const most = codec.maxBytes(n);
  const [out, chunk] = [arena.bytes(encoded, most + 2 * GUARD_BYTES), arena.bytes(decoded, 4 * n + 2 * GUARD_BYTES)];
  out.fill(0xa5);
  chunk.fill(0xa5);
  const length = codec.encode(arena, source, encoded + GUARD_BYTES, n, key, 1);
  expect(out.subarray(0, GUARD_BYTES).every((x) => x === 0xa5)).toBe(true);
  expect(out.subarray(GUARD_BYTES + most).every((x) => x === 0xa5)).toBe(true);
  if (length === 0) return undefined;
  expect(length).toBeLessThanOrEqual(most);
  expect(codec.isLength(n, length)).toBe(true);
  expect(codec.decode(arena, encoded + GUARD_BYTES, length, decoded + GUARD_BYTES, n, key)).toBe(true);
  expect(chunk.subarray(0, GUARD_BYTES).every((x) => x === 0xa5)).toBe(true);
  expect(chunk.subarray(GUARD_BYTES + 4 * n).every((x) => x === 0xa5)).toBe(true);
  expect(codec.takes(arena, encoded + GUARD_BYTES, length, n)).toBe(true);
  return { bytes: out.slice(GUARD_BYTES, GUARD_BYTES + length), back: arena.f32(decoded + GUARD_BYTES, n).slice() };
}

test('every codec has a number of its own, and 0 is the chunk as it is', () => {
  const numbers = new Set(KINDS.map((kind) => codecOf({ kind, threshold: 1, errorFeedback: false })?.number ?? 0));
  expect([numbers.size, numbers.has(0), codecOf(undefined)]).toEqual([KINDS.length, true, undefined]);
  // Frames of rows have another bound than chunks: no codec may be taken for them.
  expect(Math.max(...numbers)).toBeLessThan(ROWS);
});

describe.each(named)('$name', ({ codec, spec }) => {
  test('writes the same bytes for the same elements and key, within the length that it says', () => {
    fc.assert(
      fc.property(gradients, fc.integer({ min: 0, max: 0xffffffff }), (values, key) => {
        const x = put(values);
        const first = through(codec, x.length, key);
        if (first) expect(through(codec, x.length, key)!.bytes).toEqual(first.bytes);
        expect(arena.f32(source, x.length)).toEqual(x);
      }),
      { numRuns: 15 },
    );
  });

  test('adds what it decodes, bit for bit, to zeros of both signs and to others', () => {
    const values = Array.from({ length: 700 }, (_, i) => [0, -0, 1e-3, -5e-4, 1e-40][(i * i) % 5]! * (1 + (i % 17)));
    for (const some of [
      values,
      values.slice(0, 5),
      values.map((x, i) => (i === 3 ? NaN : x)),
      values.map((x, i) => (i % 90 === 0 ? x : -0)),
    ]) {
      const x = put(some);
      const sent = through(codec, x.length, 3);
      if (!sent) continue;
      const { bytes, back } = sent;
      const chunk = arena.bytes(decoded, 4 * x.length + 2 * GUARD_BYTES).fill(0xa5);
      const sum = arena.f32(decoded + GUARD_BYTES, x.length);
      sum.forEach((_, i) => (sum[i] = [-0, 0, 1e-3, -1e30, -1e-3][i % 5]!));
      const wanted = sum.map((before, i) => before + back[i]!);
      codec.add(arena, encoded + GUARD_BYTES, bytes.length, decoded + GUARD_BYTES, x.length, 3);
      expect(sum.findIndex((got, i) => !Object.is(got, wanted[i]))).toBe(-1);
      expect(chunk.subarray(0, GUARD_BYTES).every((each) => each === 0xa5)).toBe(true);
      expect(chunk.subarray(GUARD_BYTES + 4 * x.length).every((each) => each === 0xa5)).toBe(true);
    }
  });

  test('brings back zeros, equal elements, denormals, and a sign of what is not finite', () => {
    for (const values of [[0], Array<number>(700).fill(0), Array<number>(700).fill(-1e-40)]) {
      const x = put(values);
      for (const value of through(codec, x.length, 3)?.back ?? x) expect(Math.abs(value)).toBeLessThanOrEqual(1e-39 * x.length);
    }
    for (const bad of [NaN, Infinity, -Infinity]) {
      const x = put(Array.from({ length: 700 }, (_, i) => (i === 699 ? bad : 0.5)));
      const back = through(codec, x.length, 3)?.back ?? x;
      expect(back.some((value) => !Number.isFinite(value))).toBe(true);
    }
  });

  test('brings back a constant chunk as that constant, or as 0 where an element is not sent', () => {
    for (const constant of [0.5, -3e-5, 1e30, -1e-30]) {
      const x = put(Array<number>(700).fill(constant));
      const back = through(codec, x.length, 3)?.back ?? x;
      // Elements that are drawn stand for those that are not: the sum stays what it was.
      const sent = back.filter((value) => value !== 0);
      const isDrawn = spec.kind === 'random-k';
      const standsFor = isDrawn ? x.length / sent.length : 1;
      // As many as are as large as the threshold: none of the smaller ones.
      expect(sent.length > 0).toBe(spec.kind !== 'threshold' || Math.abs(constant) >= spec.threshold!);
      for (const value of sent)
        expect(Math.abs(value / constant / standsFor - 1)).toBeLessThan(isDrawn ? 0.5 : spec.kind === 'power-sgd' ? 0.06 : 0.02);
      // In fewer bits each is rounded to a step: of 4 bits, the sum of 210 has a standard error of half a percent.
      const tolerance = spec.values && spec.values !== 'float32' ? 0.02 : 1e-4;
      if (isDrawn) expect(Math.abs(sent.reduce((sum, value) => sum + value, 0) / constant / x.length - 1)).toBeLessThan(tolerance);
    }
  });

  test('takes bytes of anybody without writing beyond the chunk', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 300 }), fc.uint8Array({ maxLength: 400 }), (n, bytes) => {
        if (!codec.isLength(n, bytes.length)) return;
        arena.bytes(encoded, bytes.length).set(bytes);
        const chunk = arena.bytes(decoded, 4 * n + 2 * GUARD_BYTES).fill(0xa5);
        expect(codec.decode(arena, encoded, bytes.length, decoded + GUARD_BYTES, n, 1)).toBe(codec.takes(arena, encoded, bytes.length, n));
        expect(chunk.filter((_, i) => i < GUARD_BYTES || i >= GUARD_BYTES + 4 * n).every((x) => x === 0xa5)).toBe(true);
      }),
      { numRuns: 60 },
    );
  });

  test('keeps its memory', () => {
    const before = arena.bytesInUse;
    put(Array.from({ length: 700 }, (_, i) => i));
    through(codec, 700, 1);
    expect(arena.bytesInUse).toBe(before);
  });
});

/** The largest error of an element, of the largest element. */
const WORST: readonly [CodecSpec['kind'], number][] = [
  ['fp16', 2 ** -11],
  ['bf16', 2 ** -8],
  ['int8', 1 / 127],
  ['int4', 1 / 7],
  ['int2', 1],
];
test.each(WORST)('%s is as near as its bits allow, at any scale', (kind, worst) => {
  const codec = codecOf({ kind, errorFeedback: false })!;
  for (const scale of [1e-30, 1e-6, 1, 1e30]) {
    const x = put(Array.from({ length: 512 }, (_, i) => Math.sin(i) * scale));
    const largest = Math.max(...x.map(Math.abs));
    const { back } = through(codec, x.length, 11)!;
    for (const [i, value] of back.entries()) expect(Math.abs(value - x[i]!)).toBeLessThanOrEqual(worst * largest * 1.0001);
  }
});

test.each([
  [100, 0.1],
  [10, 0.7],
])('the mean of what random-k sends of %i elements is the gradient; with error feedback elements are sent as they are', (n, density) => {
  const x = put(Array.from({ length: n }, (_, i) => i + 1));
  const mean = new Float64Array(n);
  const TIMES = 2000;
  const scaled = codecOf({ kind: 'random-k', density, errorFeedback: false })!;
  for (let round = 0; round < TIMES; round++)
    through(scaled, n, codecKey(1, round, 0, 0))!.back.forEach((value, i) => (mean[i]! += value / TIMES));
  // Of one element: its value times the s of its part, one time in s. Its mean has a standard error of √(s - 1) · value / √TIMES.
  const error = 5 * Math.sqrt(Math.ceil(1 / density) - 1);
  for (const [i, value] of x.entries()) expect(Math.abs(mean[i]! - value)).toBeLessThan((error * value) / Math.sqrt(TIMES) + 1e-6);
  const plain = codecOf({ kind: 'random-k', density, errorFeedback: true })!;
  for (const [i, value] of through(plain, n, 7)!.back.entries()) expect([0, x[i]]).toContain(value);
});

test.each([
  ['bf16', 2 ** -8],
  ['int8', 1 / 127],
  ['int4', 1 / 7],
  ['int2', 1],
] as const)(
  'top-k with values in %s sends the same elements as with float32, as near as their bits allow, in fewer bytes',
  (values, worst) => {
    const x = put(Array.from({ length: 1200 }, (_, i) => Math.sin(i * i) * 1e-3));
    const largest = Math.max(...x.map(Math.abs));
    const [plain, coded] = [undefined, values].map((kind) => {
      const spec: CodecSpec = { kind: 'top-k', density: 0.25, errorFeedback: false };
      return through(codecOf(kind ? { ...spec, values: kind } : spec)!, x.length, 11)!;
    }) as [{ bytes: Uint8Array; back: Float32Array }, { bytes: Uint8Array; back: Float32Array }];
    expect(coded.bytes.length).toBeLessThan(plain.bytes.length - (values === 'bf16' ? 599 : 800));
    for (const [i, value] of plain.back.entries()) {
      expect(Math.abs(value - coded.back[i]!)).toBeLessThanOrEqual(worst * largest);
      if (value === 0) expect(coded.back[i]).toBe(0);
    }
    // So few that a step would be longer than what it saves: they are sent as they are.
    put([1, 2, 3, 4]);
    const few = codecOf({ kind: 'top-k', density: 0.25, values, errorFeedback: false })!;
    expect([...through(few, 4, 1)!.back]).toEqual([0, 0, 0, 4]);
  },
);

test('threshold sends what is as large per example, and leaves a chunk as it is that would be longer', () => {
  const codec = codecOf({ kind: 'threshold', threshold: 0.5, errorFeedback: false })!;
  put(Array.from({ length: 100 }, (_, i) => (i < 10 ? 6 : 4)));
  const bytes = codec.encode(arena, source, encoded, 100, 0, 10);
  expect(codec.decode(arena, encoded, bytes, decoded, 100, 0)).toBe(true);
  expect([...arena.f32(decoded, 100)].filter((x) => x === 6)).toHaveLength(10);
  expect(codec.encode(arena, source, encoded, 100, 0, 1)).toBe(0);
});

test('keys of neighbours differ', () => {
  const keys = new Set<number>();
  for (let round = 0; round < 30; round++)
    for (let replica = 0; replica < 30; replica++) for (let chunk = 0; chunk < 30; chunk++) keys.add(codecKey(42, round, replica, chunk));
  // 27,000 of 2^32: by chance 0.08 pairs are equal.
  expect(keys.size).toBeGreaterThan(27_000 - 3);
});
