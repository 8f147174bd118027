import { codecOf } from '@paceline/codecs';
import { createLayout } from '@paceline/learning';
import { parseRunSpec, type ModelDescription } from '@paceline/spec';
import { expect, it } from 'vitest';
import { GradientMemory, GradientReader, gradientVectorsOf, partsOf, type Vector } from './gradient-memory.js';

const zeros = { className: 'Zeros', config: {} };
/** Four chunks of 16,384 and one of 14,464, then one of 40 elements of state. */
const LAYOUT = createLayout({
  variables: [
    { path: 'a', shape: [500, 160], section: 'trainable', initializer: zeros },
    { path: 'b', shape: [40], section: 'state', initializer: zeros },
  ] as unknown as ModelDescription['variables'],
  parameterCount: 80_000,
  stateCount: 40,
});
/** Room for two chunks of three vectors, beside the slack. */
const TWO_CHUNKS = (1 << 20) + 3 * (2 * 16_384 * 4 + 64);

const fill = (memory: GradientMemory, vector: Vector, of: (i: number) => number): void => {
  let at = 0;
  for (const piece of memory.pieces(vector)) for (let i = 0; i < piece.length; i++) piece[i] = of(at++);
};
const valuesOf = (memory: GradientMemory, vector: Vector): number[] => memory.pieces(vector).flatMap((piece) => [...piece]);
const readerOf = (memory: GradientMemory): GradientReader => new GradientReader(memory.memories, memory.parts);

it('cuts a vector at chunks, so that each part of all vectors fits into an arena', () => {
  const chunks = (vectors: number, bytes?: number): number[] => partsOf(LAYOUT, vectors, bytes).map((part) => part.chunks);
  expect(chunks(3)).toEqual([6]);
  expect(chunks(3, TWO_CHUNKS)).toEqual([2, 2, 2]);
  expect(chunks(4, TWO_CHUNKS)).toEqual([1, 1, 1, 1, 2]);
  expect(chunks(1000, TWO_CHUNKS), 'one chunk at least').toEqual([1, 1, 1, 1, 1, 1]);
  const parts = partsOf(LAYOUT, 3, TWO_CHUNKS);
  expect(parts.map(({ offset, length }) => [offset, length])).toEqual([
    [0, 32_768],
    [32_768, 32_768],
    [65_536, 14_504],
  ]);
});

it('holds 2^28 elements in arenas of 1 GiB, whatever the number of gradients', () => {
  const chunks = Array.from({ length: 1024 }, (_, index) => ({
    index,
    section: 'trainable' as const,
    offset: index << 18,
    length: 1 << 18,
  }));
  expect(partsOf({ chunks }, 3).map((part) => part.chunks)).toEqual([340, 340, 340, 4]);
  for (const vectors of [3, 11, 64, 1024, 3073]) {
    const parts = partsOf({ chunks }, vectors);
    expect(parts.reduce((sum, { length }) => sum + length, 0)).toBe(2 ** 28);
    for (const { length } of parts) expect(length * 4 * vectors).toBeLessThan(vectors > 1000 ? 2 ** 32 - 2 ** 21 : 2 ** 30);
  }
});

it('plans with the threads that a worker has, where the run does not say how many', () => {
  const parsed = parseRunSpec({ globalBatch: 256, replicas: 64, strategy: { kind: 'hybrid' } });
  if (!parsed.ok) throw new Error('the spec is wrong');
  // Replicas of a thread: 64, 32, 8; nodes of an interval of n: 2 floor(log2 n) + 1 at most.
  expect([1, 2, 8, 256].map((threads) => gradientVectorsOf(parsed.spec, threads))).toEqual([7, 22, 56, 64]);
});

it('adds, clears and checks vectors over all parts, and gives them back', () => {
  const memory = new GradientMemory(LAYOUT, 1, TWO_CHUNKS);
  expect(memory.parts).toHaveLength(3);
  const [a, b] = [memory.alloc(), memory.alloc()];
  fill(memory, a, (i) => i);
  fill(memory, b, (i) => 2 * i);
  memory.add(a, b);
  expect(valuesOf(memory, a).every((value, i) => value === 3 * i)).toBe(true);
  expect(memory.allFinite(a)).toBe(true);
  memory.pieces(a)[2]![14_503] = Number.NaN;
  expect(memory.allFinite(a)).toBe(false);
  memory.clear(a);
  expect(valuesOf(memory, a).every((value) => value === 0)).toBe(true);
  memory.free(a);
  memory.free(b);
  expect(memory.bytesInUse).toBe(0);
});

it.each([
  ['one part', undefined],
  ['several parts', TWO_CHUNKS],
])('reads the chunks of a vector, as they are and encoded, from %s', (_, bytes) => {
  const memory = new GradientMemory(LAYOUT, 1, bytes);
  const reader = readerOf(memory);
  const vector = memory.alloc();
  fill(memory, vector, (i) => Math.fround(Math.sin(i)));
  for (const chunk of LAYOUT.chunks) {
    const { codec, bytes: read } = reader.chunk(vector, undefined, chunk);
    expect([codec, read.length]).toEqual([0, chunk.length * 4]);
    const floats = new Float32Array(read.slice().buffer);
    expect(floats.every((value, i) => value === Math.fround(Math.sin(chunk.offset + i)))).toBe(true);
  }
  const spec = { kind: 'top-k', density: 0.01, errorFeedback: true } as const;
  const codec = codecOf(spec)!;
  const { encode } = memory.encoder(codec, spec, { seed: 7, replicas: 1, examplesOf: () => 1 });
  const sent = [0, 1].map((round) => {
    const { vector: encoded, parts } = encode(round, 0, vector);
    const chunks = LAYOUT.chunks.map((chunk) => reader.chunk(encoded, parts, chunk));
    expect(chunks.map((chunk) => chunk.codec)).toEqual([...Array.from({ length: 5 }, () => codec.number), 0]);
    const copies = chunks.map((chunk) => Buffer.from(chunk.bytes).toString('base64'));
    memory.free(encoded);
    return copies;
  });
  expect(sent[0]).not.toEqual(sent[1]);
  expect(sent).toEqual(reference.encoded ?? sent);
  reference.encoded = sent;
});
/** Bytes do not depend on where a vector is cut. */
const reference: { encoded?: string[][] } = {};

it('what is kept in several arenas goes on in one, and the other way round', () => {
  const spec = { kind: 'top-k', density: 0.01, errorFeedback: true } as const;
  const begun = [undefined, TWO_CHUNKS].map((bytes) => {
    const memory = new GradientMemory(LAYOUT, 3, bytes);
    const encoder = memory.encoder(codecOf(spec)!, spec, { seed: 7, replicas: 1, examplesOf: () => 1 });
    const reader = readerOf(memory);
    const encode = (round: number): string[] => {
      const vector = memory.alloc();
      fill(memory, vector, (i) => Math.sin(i * 0.7 + round));
      const { vector: encoded, parts, lost } = encoder.encode(round, 0, vector);
      expect(lost).toBeUndefined();
      const sent = LAYOUT.chunks.map((chunk) => Buffer.from(reader.chunk(encoded, parts, chunk).bytes).toString('base64'));
      memory.free(encoded);
      memory.free(vector);
      return sent;
    };
    return { memory, encoder, encode };
  });
  const [one, several] = begun as [(typeof begun)[0], (typeof begun)[0]];
  expect([one.memory.memories.length, several.memory.memories.length]).toEqual([1, 3]);
  one.encode(0);
  several.encode(0);
  const [ofOne, ofSeveral] = [one.encoder.residual(0, 0)!, several.encoder.residual(0, 0)!];
  expect(ofSeveral.length).toBe(80_000);
  expect(Buffer.compare(Buffer.from(ofOne.buffer), Buffer.from(ofSeveral.buffer))).toBe(0);
  const expected = one.encode(1);
  one.encoder.takeResidual(0, 0, ofSeveral);
  several.encoder.takeResidual(0, 0, ofOne);
  expect(one.encode(1)).toEqual(expected);
  expect(several.encode(1)).toEqual(expected);
});

it('dgc bounds the norm of the whole gradient, however many parts it lies in', () => {
  const spec = { kind: 'dgc', density: 0.01, momentum: 0, clipNorm: 1, errorFeedback: false } as const;
  const norms = [undefined, TWO_CHUNKS].map((bytes) => {
    const memory = new GradientMemory(LAYOUT, 1, bytes);
    const vector = memory.alloc();
    fill(memory, vector, () => 1);
    const { encode } = memory.encoder(codecOf(spec)!, spec, { seed: 7, replicas: 1, examplesOf: () => 1 });
    encode(0, 0, vector);
    // What was not sent lies in the vector, bounded as what was sent.
    return valuesOf(memory, vector)
      .slice(0, 80_000)
      .find((value) => value !== 0)!;
  });
  expect(norms[0]).toBeCloseTo(1 / Math.sqrt(80_000), 9);
  expect(norms[1]).toBe(norms[0]);
});
