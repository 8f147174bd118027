/**
 * Encodings of every codec with mistakes in them, of gradients in each form of their values and of parameters: each is refused by its length, refused by its
 * decoder, or decoded into the chunk and nowhere else. A million with PACELINE_SOAK=1.
 */
import { expect, test } from 'vitest';
import { Arena, levelBytes, quantizedBytes, references } from '@paceline/kernels';
import { CODECS, PARAMETER_CODECS, VALUE_KINDS, type CodecSpec, type ValueKind } from '@paceline/spec';
import type { Codec } from './codec.js';
import { codecOf } from './codecs.js';
import { mutated, randomOf } from './mutated.fixture.js';
import { parameterCodecOf } from './parameter-codec.js';
import { parameterDeltasOf } from './parameter-deltas.js';

const KINDS = CODECS.filter((kind) => kind !== 'none' && kind !== 'auto');
const SPARSE = ['top-k', 'threshold', 'random-k'] as const;
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
/** Parameters are not added up, so they are decoded and never just taken. */
type Encoding = Pick<Codec, 'isLength' | 'encode' | 'decode' | 'of'> & Partial<Pick<Codec, 'takes'>>;

/** As a server encodes the parameters of a generation, and a worker decodes them: the chunk itself where they are rounded, what it differs from zeros by else. */
function parametersOf(parameters: NonNullable<CodecSpec['parameters']>): Encoding {
  const spec: CodecSpec = { kind: 'none', errorFeedback: false, parameters, parameterDensity: 0.1 };
  const [rounded, deltas] = [parameterCodecOf(spec, 3), parameterDeltasOf(spec, 3)];
  const { isLength, decode } = (rounded ?? deltas)!;
  const encoded = (from: number, n: number, generation: number) => {
    if (rounded) return rounded.encode(arena, from, n, generation, 1);
    const reference = arena.alloc(4 * n);
    arena.f32(reference, n).fill(0);
    const advance = deltas!.advance(arena, from, reference, n, generation, 1);
    arena.free(reference);
    if (advance) arena.free(advance.reference);
    return advance?.difference;
  };
  return {
    isLength,
    encode(_arena, from, to, n, generation) {
      const sent = encoded(from, n, generation);
      if (!sent) return 0;
      arena.bytes(to, sent.bytes).set(arena.bytes(sent.pointer, sent.bytes));
      arena.free(sent.pointer);
      return sent.bytes;
    },
    decode: (_arena, from, bytes, to, n, generation) => decode(arena, from, bytes, to, n, generation, 1),
  };
}

interface Case {
  readonly codec: Encoding;
  /** Whether each payload of the right length is one that an encoder may write. */
  readonly takesAll?: boolean;
  /** Whether the plain TypeScript takes the bytes. */
  readonly reference?: ((bytes: Uint8Array, n: number) => boolean) | undefined;
}

type Reference = NonNullable<Case['reference']>;
const quantized =
  (bits: 8 | 4 | 2): Reference =>
  (bytes, n) =>
    references.isQuantized(bytes, n, bits);
const REFERENCES: Partial<Record<string, Reference>> = {
  int8: quantized(8),
  int4: quantized(4),
  int2: quantized(2),
  sign: references.isSigns,
  threshold: (bytes, n) => references.scatter(bytes, n) !== undefined,
  'parameters int8': quantized(8),
  'parameters delta-int4': quantized(4),
  'parameters delta-int2': references.isLevels,
};

/** The elements that were chosen, in fewer bits: their bytes, and whether an encoder writes them. */
const VALUES: Readonly<Record<Exclude<ValueKind, 'float32'>, { bytes(count: number): number; readonly isGood: Reference }>> = {
  bf16: { bytes: (count) => 2 * count, isGood: () => true },
  int8: { bytes: (count) => quantizedBytes(count, 8), isGood: quantized(8) },
  int4: { bytes: (count) => quantizedBytes(count, 4), isGood: quantized(4) },
  int2: { bytes: levelBytes, isGood: references.isLevels },
};
const tenthOf = (n: number): number => Math.max(1, Math.round(n / 10));

/** Whether the plain TypeScript takes values of so many elements, and the places behind them. */
const valuesReference =
  (kind: (typeof SPARSE)[number], values: Exclude<ValueKind, 'float32'>): Reference =>
  (bytes, n) => {
    const count = kind === 'random-k' ? tenthOf(n) : new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true);
    if (kind === 'top-k' ? count !== tenthOf(n) : kind === 'threshold' && 4 + 9 * count >= 4 * n) return false;
    const from = kind === 'random-k' ? 0 : 4;
    const { bytes: bytesOf, isGood } = VALUES[values];
    const isShorter = bytesOf(count) < 4 * count;
    const size = isShorter ? bytesOf(count) : 4 * count;
    if (bytes.length < from + size) return false;
    if (isShorter && !isGood(bytes.slice(from, from + size), count)) return false;
    if (kind === 'random-k') return true;
    const places = bytes.slice(from + size);
    return references.scatter(Uint8Array.from([...bytes.slice(0, 4), ...new Uint8Array(4 * count), ...places]), n) !== undefined;
  };

const ofKind = (kind: (typeof KINDS)[number], more: Partial<CodecSpec> = {}): Encoding =>
  codecOf({ kind, errorFeedback: false, ...OPTIONS[kind], ...more }, kind === 'power-sgd' ? SHAPES : undefined)!;

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

const CASES = new Map<string, Case>();
for (const kind of KINDS)
  CASES.set(kind, { codec: ofKind(kind), takesAll: kind === 'bf16' || kind === 'random-k', reference: REFERENCES[kind] });
for (const kind of SPARSE)
  for (const values of VALUE_KINDS) {
    if (values === 'float32') continue;
    const takesAll = kind === 'random-k' && values === 'bf16';
    CASES.set(`${kind}, values ${values}`, { codec: ofKind(kind, { values }), takesAll, reference: valuesReference(kind, values) });
  }
for (const kind of PARAMETER_CODECS) {
  if (kind === 'float32') continue;
  const name = `parameters ${kind}`;
  CASES.set(name, { codec: parametersOf(kind), takesAll: kind === 'bf16', reference: REFERENCES[name] });
}
const NAMES = [...CASES.keys()];
const PAYLOADS = process.env['PACELINE_SOAK'] === '1' ? Math.ceil(1_000_000 / NAMES.length) : 3_000;

/** A chunk and its codec; with shapes the length is that of the chunk. */
function chunkOf(codec: Encoding, random: (below: number) => number): { own: Encoding; n: number } {
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

test.each(NAMES)(`%s: ${PAYLOADS} payloads with mistakes are refused, or change the chunk alone`, { timeout: 3_600_000 }, (name) => {
  const random = randomOf(NAMES.indexOf(name) + 1);
  const { codec, takesAll, reference } = CASES.get(name)!;
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
    if (own.takes && own.takes(arena, encoded, bytes.length, n) !== isTaken)
      throw new Error(`payload ${i} of ${name} is decoded and not taken, or taken and not decoded`);
    if (chunk.subarray(0, GUARD_BYTES).some((x) => x !== 0xa5) || chunk.subarray(GUARD_BYTES + 4 * n).some((x) => x !== 0xa5))
      throw new Error(`payload ${i} of ${name} was written beyond its chunk of ${n}`);
    if (arena.bytesInUse !== inUse) throw new Error(`payload ${i} of ${name} has left memory behind`);
    if (i % 4 === 0) expect([i, reference?.(bytes, n) ?? isTaken]).toEqual([i, isTaken]);
    if (!isTaken) continue;
    // Whatever was taken has been decoded: the chunk is a function of the bytes.
    const first = chunk.slice(GUARD_BYTES, GUARD_BYTES + 4 * n);
    own.decode(arena, encoded, bytes.length, decoded + GUARD_BYTES, n, i);
    if (Buffer.compare(first, chunk.subarray(GUARD_BYTES, GUARD_BYTES + 4 * n)) !== 0)
      throw new Error(`payload ${i} of ${name} is decoded in two ways`);
  }
  // It is known to reach what it is for.
  expect(outcomes.length).toBeGreaterThan(PAYLOADS / 20);
  expect(outcomes.taken).toBeGreaterThan(PAYLOADS / 100);
  if (!takesAll) expect(outcomes.refused).toBeGreaterThan(PAYLOADS / 20);
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
