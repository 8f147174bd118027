/**
 * Encodings of every codec with mistakes in them: each is refused by its length, refused by its decoder, or decoded into the chunk and nowhere else. A million
 * with PACELINE_SOAK=1.
 */
import { expect, test } from 'vitest';
import { Arena, references } from '@paceline/kernels';
import { CODECS, type CodecSpec } from '@paceline/spec';
import type { Codec } from './codec.js';
import { codecOf } from './codecs.js';
import { mutated, randomOf } from './mutated.fixture.js';

const KINDS = CODECS.filter((kind) => kind !== 'none' && kind !== 'auto');
const PAYLOADS = process.env['PACELINE_SOAK'] === '1' ? Math.ceil(1_000_000 / KINDS.length) : 3_000;
const GUARD_BYTES = 64;
const MOST = 700;
const arena = Arena.create({ initialBytes: 1 << 18, maximumBytes: 1 << 18 });
const source = arena.alloc(4 * MOST);
const encoded = arena.alloc(16 * MOST);
const decoded = arena.alloc(4 * MOST + 2 * GUARD_BYTES);

const OPTIONS: Partial<Record<CodecSpec['kind'], Partial<CodecSpec>>> = {
  'top-k': { density: 0.1 },
  'random-k': { density: 0.1 },
  threshold: { threshold: 0.9 },
  dgc: { density: 0.1 },
  'power-sgd': { rank: 2 },
};
/** One vector, and a matrix that ends in the second chunk. */
const SHAPES = {
  variables: [
    { shape: [20], offset: 0, length: 20 },
    { shape: [30, 28], offset: 20, length: 840 },
  ],
  chunks: [
    { offset: 0, length: 512 },
    { offset: 512, length: 348 },
  ],
};

/** A chunk and its codec; with shapes the length is that of the chunk. */
function chunkOf(codec: Codec, random: (below: number) => number): { own: Codec; n: number } {
  const index = random(2);
  if (codec.of) return { own: codec.of(index), n: SHAPES.chunks[index]!.length };
  return { own: codec, n: 1 + random(random(4) === 0 ? MOST : 40) };
}

const GRADIENTS: readonly ((i: number, random: (below: number) => number) => number)[] = [
  (_, random) => (random(2001) - 1000) / 1000,
  () => 0.25,
  () => 0,
  (i) => (i % 9 === 0 ? 1e30 : 1e-30),
  (i) => (i === 3 ? NaN : 1),
];

/** Whether the plain TypeScript takes the bytes, of codecs where it says so. */
function referenceTakes(kind: CodecSpec['kind'], bytes: Uint8Array, n: number): boolean | undefined {
  if (kind === 'int8' || kind === 'int4' || kind === 'int2') return references.isQuantized(bytes, n, Number(kind.slice(3)));
  if (kind === 'sign') return references.isSigns(bytes, n);
  if (kind === 'threshold') return references.scatter(bytes, n) !== undefined;
  return undefined;
}

test.each(KINDS)(`%s: ${PAYLOADS} payloads with mistakes are refused, or change the chunk alone`, { timeout: 3_600_000 }, (kind) => {
  const random = randomOf(KINDS.indexOf(kind) + 1);
  const codec = codecOf({ kind, errorFeedback: false, ...OPTIONS[kind] }, kind === 'power-sgd' ? SHAPES : undefined)!;
  const outcomes = { length: 0, refused: 0, taken: 0 };
  const inUse = arena.bytesInUse;
  const chunk = arena.bytes(decoded, 4 * MOST + 2 * GUARD_BYTES);
  for (let i = 0; i < PAYLOADS; i++) {
    const { own, n } = chunkOf(codec, random);
    const gradient = GRADIENTS[random(GRADIENTS.length)]!;
    arena.f32(source, n).forEach((_, at, values) => (values[at] = gradient(at, random)));
    const length = own.encode(arena, source, encoded, n, i, 1);
    if (length === 0) continue;
    const bytes = mutated(arena.bytes(encoded, length), random);
    if (!own.isLength(n, bytes.length)) {
      outcomes.length++;
      continue;
    }
    arena.bytes(encoded, bytes.length).set(bytes);
    chunk.fill(0xa5);
    const isTaken = own.decode(arena, encoded, bytes.length, decoded + GUARD_BYTES, n, i);
    outcomes[isTaken ? 'taken' : 'refused']++;
    if (own.takes(arena, encoded, bytes.length, n) !== isTaken)
      throw new Error(`payload ${i} of ${kind} is decoded and not taken, or taken and not decoded`);
    if (chunk.subarray(0, GUARD_BYTES).some((x) => x !== 0xa5) || chunk.subarray(GUARD_BYTES + 4 * n).some((x) => x !== 0xa5))
      throw new Error(`payload ${i} of ${kind} was written beyond its chunk of ${n}`);
    if (arena.bytesInUse !== inUse) throw new Error(`payload ${i} of ${kind} has left memory behind`);
    if (i % 4 === 0) expect([i, referenceTakes(kind, bytes, n) ?? isTaken]).toEqual([i, isTaken]);
    if (!isTaken) continue;
    // Whatever was taken has been decoded: the chunk is a function of the bytes.
    const first = chunk.slice(GUARD_BYTES, GUARD_BYTES + 4 * n);
    own.decode(arena, encoded, bytes.length, decoded + GUARD_BYTES, n, i);
    if (Buffer.compare(first, chunk.subarray(GUARD_BYTES, GUARD_BYTES + 4 * n)) !== 0)
      throw new Error(`payload ${i} of ${kind} is decoded in two ways`);
  }
  // It is known to reach what it is for. Every payload of the right length is one that bf16 and random-k may write.
  expect(outcomes.length).toBeGreaterThan(PAYLOADS / 20);
  expect(outcomes.taken).toBeGreaterThan(PAYLOADS / 100);
  if (kind !== 'bf16' && kind !== 'random-k') expect(outcomes.refused).toBeGreaterThan(PAYLOADS / 20);
});

const float = new Float32Array(1);
const bitsOf = (value: number): Uint8Array => new Uint8Array(Float32Array.of(value).buffer);

test.each([
  ['int8', 8],
  ['int4', 4],
] as const)('%s: a step of which the largest number would be infinite is none that an encoder writes', (kind, bits) => {
  const codec = codecOf({ kind, errorFeedback: false })!;
  const most = 2 ** (bits - 1) - 1;
  const takes = (step: number): boolean => {
    arena.f32(source, 16).fill(1);
    const length = codec.encode(arena, source, encoded, 16, 1, 1);
    arena.bytes(encoded, 4).set(bitsOf(step));
    return codec.decode(arena, encoded, length, decoded, 16, 1);
  };
  expect([takes(1e38), takes(3.4e38), takes(1e36), takes(-1)]).toEqual([false, false, true, false]);
  // The largest gradient that there is.
  float[0] = 3.4028234663852886e38;
  arena.f32(source, 16).fill(float[0]);
  const length = codec.encode(arena, source, encoded, 16, 1, 1);
  expect(codec.decode(arena, encoded, length, decoded, 16, 1)).toBe(true);
  expect(arena.f32(decoded, 16)[0]! / float[0]).toBeGreaterThan(1 - 1 / most);
});

test('what is not finite is decoded as such only where the payload says so: a step, a magnitude or an element of its own', () => {
  const n = 600;
  for (const kind of ['int8', 'int4', 'int2', 'sign'] as const) {
    const codec = codecOf({ kind, errorFeedback: false })!;
    arena.f32(source, n).forEach((_, i, values) => (values[i] = i === 550 ? NaN : 1));
    const length = codec.encode(arena, source, encoded, n, 1, 1);
    expect(codec.decode(arena, encoded, length, decoded, n, 1)).toBe(true);
    const values = arena.f32(decoded, n);
    expect(values.subarray(0, 512).every(Number.isFinite)).toBe(true);
    expect(values.subarray(512).every(Number.isNaN)).toBe(true);
  }
});

test('a tiny payload that claims a huge chunk takes no memory', () => {
  for (const kind of ['top-k', 'threshold', 'dgc'] as const) {
    const codec = codecOf({ kind, errorFeedback: false, ...OPTIONS[kind] })!;
    for (const count of [601, 0x7fffffff, 0xffffffff]) {
      const bytes = new Uint8Array(40);
      new DataView(bytes.buffer).setUint32(0, count, true);
      arena.bytes(encoded, 40).set(bytes);
      const pages = arena.memory.buffer.byteLength;
      if (codec.isLength(600, 40)) expect(codec.decode(arena, encoded, 40, decoded, 600, 1)).toBe(false);
      expect(arena.memory.buffer.byteLength).toBe(pages);
    }
  }
});

test('dgc takes as many elements as a round of its warm-up may send, and no more', () => {
  const n = 600;
  const decodes = (spec: Partial<CodecSpec>, density: number): boolean => {
    const sender = codecOf({ kind: 'dgc', errorFeedback: false, density })!;
    const length = sender.encode(arena, source, encoded, n, 1, 1);
    const codec = codecOf({ kind: 'dgc', errorFeedback: false, ...spec })!;
    return codec.isLength(n, length) && codec.decode(arena, encoded, length, decoded, n, 1);
  };
  arena.f32(source, n).forEach((_, i, values) => (values[i] = Math.sin(i)));
  expect(decodes({ density: 0.1 }, 0.1)).toBe(true);
  expect(decodes({ density: 0.1 }, 0.2)).toBe(false);
  // A warm-up begins with a quarter.
  expect(decodes({ density: 0.01, warmupRounds: 5 }, 0.25)).toBe(true);
  expect(decodes({ density: 0.01, warmupRounds: 5 }, 0.01)).toBe(true);
});
