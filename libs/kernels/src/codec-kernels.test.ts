import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Arena } from './arena.js';
import { levelBytes, quantizedBytes, signBytes } from './codec-kernels.js';
import { anyFloat, expectSameBits } from './kernels.fixture.js';
import * as references from './references.js';

const MAX = 1200;
const GUARD_BYTES = 64;
const arena = Arena.create({ initialBytes: 1 << 18, maximumBytes: 1 << 18 });
const [source, encoded, decoded, scratch] = [0, 0, 0, 0].map(() => arena.alloc(MAX * 12 + 2 * GUARD_BYTES)) as [
  number,
  number,
  number,
  number,
];
const { kernels } = arena;

/** Lengths around the sizes of blocks and groups; half of the vectors are small numbers around zero, as gradients are. */
const lengths = fc.oneof(fc.integer({ min: 1, max: 140 }), fc.integer({ min: 500, max: MAX }));
const vectors = fc.oneof(
  lengths.chain((n) => fc.array(anyFloat, { minLength: n, maxLength: n })),
  lengths.chain((n) => fc.array(fc.double({ min: -1e-3, max: 1e-3, noNaN: true }), { minLength: n, maxLength: n })),
);
const keys = fc.integer({ min: 0, max: 0xffffffff });

function put(values: readonly number[]): Float32Array {
  const view = arena.f32(source, values.length);
  view.set(values);
  return Float32Array.from(view);
}

/** What a kernel writes at `at`, whose neighbours must stay as they are. */
function written(at: number, byteLength: number, run: (at: number) => void): Uint8Array {
  const whole = arena.bytes(at, byteLength + 2 * GUARD_BYTES).fill(0xa5);
  run(at + GUARD_BYTES);
  const isGuard = (_: number, i: number): boolean => i < GUARD_BYTES || i >= GUARD_BYTES + byteLength;
  expect(whole.filter(isGuard).every((x) => x === 0xa5)).toBe(true);
  return whole.slice(GUARD_BYTES, GUARD_BYTES + byteLength);
}

const floatsOf = (bytes: Uint8Array): Float32Array => new Float32Array(bytes.slice().buffer);

/** Decodes the bytes with the kernel. */
function restored(bytes: Uint8Array, n: number, run: (from: number, to: number) => void): Float32Array {
  arena.bytes(encoded, bytes.length).set(bytes);
  return floatsOf(written(decoded, 4 * n, (to) => run(encoded, to)));
}

/** What the kernel adds up: what is there has both zeros, and the rest of a float. */
function added(bytes: Uint8Array, n: number, run: (from: number, to: number) => void): { before: Float32Array; sum: Float32Array } {
  arena.bytes(encoded, bytes.length).set(bytes);
  const before = Float32Array.from({ length: n }, (_, i) => [-0, 0, 1e-3, -1e-3, 3e38, NaN, -1e-40][(i * i + (i >> 4)) % 7]!);
  const whole = written(decoded, 4 * n, (to) => {
    arena.f32(to, n).set(before);
    run(encoded, to);
  });
  return { before, sum: floatsOf(whole) };
}

function forAll(run: (values: Float32Array, key: number) => void): void {
  fc.assert(
    fc.property(vectors, keys, (values, key) => void run(put(values), key)),
    { numRuns: 60 },
  );
}

/** NaN has many bits: the arithmetic before an encoding may choose. */
function expectSameHalves(got: Uint8Array, wanted: Uint16Array, isNan: (bits: number) => boolean): void {
  const halves = new Uint16Array(got.slice().buffer);
  for (const [i, bits] of wanted.entries()) {
    if (isNan(bits) ? !isNan(halves[i]!) : halves[i] !== bits) expect.fail(`element ${i}: ${halves[i]} is not ${bits}`);
  }
}

const isHalfNan = (bits: number): boolean => (bits & 0x7fff) > 0x7c00;
const isBfloatNan = (bits: number): boolean => (bits & 0x7fff) > 0x7f80;

describe('kernels of codecs give the bits of their references', () => {
  it('largest magnitude', () => {
    forAll((x) => expect(kernels.largestMagnitude(source, x.length)).toBe(references.largestMagnitude(x)));
  });

  it('half precision, scaled', () => {
    fc.assert(
      fc.property(vectors, fc.constantFrom(1, 2 ** -20, 2 ** 13), (values, factor) => {
        const x = put(values);
        const halves = references.toHalf(x, factor);
        expectSameHalves(
          written(encoded, 2 * x.length, (to) => kernels.toHalf(source, to, x.length, factor)),
          halves,
          isHalfNan,
        );
        const back = restored(new Uint8Array(halves.buffer), x.length, (from, to) => kernels.fromHalf(from, to, x.length, 1 / factor));
        expectSameBits(back, references.fromHalf(halves, 1 / factor));
        const { before, sum } = added(new Uint8Array(halves.buffer), x.length, (from, to) =>
          kernels.addHalf(from, to, x.length, 1 / factor),
        );
        expectSameBits(sum, references.addHalf(before, halves, 1 / factor));
      }),
      { numRuns: 60 },
    );
  });

  it('every half is read as what it is, and written as itself', () => {
    const all = Uint16Array.from({ length: 1 << 16 }, (_, i) => i);
    for (let from = 0; from < all.length; from += 1024) {
      const part = all.slice(from, from + 1024);
      const back = restored(new Uint8Array(part.buffer), 1024, (at, to) => kernels.fromHalf(at, to, 1024, 1));
      expectSameBits(back, references.fromHalf(part, 1));
      const { before, sum } = added(new Uint8Array(part.buffer), 1024, (at, to) => kernels.addHalf(at, to, 1024, 1));
      expectSameBits(sum, references.addHalf(before, part, 1));
      put([...back]);
      expectSameHalves(
        written(encoded, 2048, (to) => kernels.toHalf(source, to, 1024, 1)),
        part,
        isHalfNan,
      );
    }
  });

  it('bfloat16', () => {
    forAll((x) => {
      const halves = references.toBfloat(x);
      expectSameHalves(
        written(encoded, 2 * x.length, (to) => kernels.toBfloat(source, to, x.length)),
        halves,
        isBfloatNan,
      );
      const back = restored(new Uint8Array(halves.buffer), x.length, (from, to) => kernels.fromBfloat(from, to, x.length));
      expectSameBits(back, references.fromBfloat(halves));
      const { before, sum } = added(new Uint8Array(halves.buffer), x.length, (from, to) => kernels.addBfloat(from, to, x.length));
      expectSameBits(sum, references.addBfloat(before, halves));
    });
  });

  it.each([8, 4, 2])('whole numbers of %i bits', (bits) => {
    forAll((x, key) => {
      const bytes = references.quantize(x, bits, key);
      const got = written(encoded, quantizedBytes(x.length, bits), (to) => kernels.quantize(source, to, x.length, bits, key));
      const steps = 4 * Math.ceil(x.length / 512);
      expectSameBits(floatsOf(got.subarray(0, steps)), floatsOf(bytes.subarray(0, steps)));
      expect(got.subarray(steps)).toEqual(bytes.subarray(steps));
      const back = restored(bytes, x.length, (from, to) => kernels.dequantize(from, to, x.length, bits));
      expectSameBits(back, references.dequantize(bytes, x.length, bits));
      const { before, sum } = added(bytes, x.length, (from, to) => kernels.addQuantized(from, to, x.length, bits));
      expectSameBits(sum, references.addQuantized(before, bytes, bits));
    });
  });

  it('signs', () => {
    forAll((x) => {
      const bytes = references.toSigns(x);
      const got = written(encoded, signBytes(x.length), (to) => kernels.toSigns(source, to, x.length));
      const scales = 4 * Math.ceil(x.length / 512);
      expectSameBits(floatsOf(got.subarray(0, scales)), floatsOf(bytes.subarray(0, scales)));
      expect(got.subarray(scales)).toEqual(bytes.subarray(scales));
      const back = restored(bytes, x.length, (from, to) => kernels.fromSigns(from, to, x.length));
      expectSameBits(back, references.fromSigns(bytes, x.length));
      const { before, sum } = added(bytes, x.length, (from, to) => kernels.addSigns(from, to, x.length));
      expectSameBits(sum, references.addSigns(before, bytes));
    });
  });

  it('a sign and one of two magnitudes', () => {
    forAll((x) => {
      const bytes = references.toLevels(x);
      const got = written(encoded, levelBytes(x.length), (to) => kernels.toLevels(source, to, x.length));
      const scales = 8 * Math.ceil(x.length / 512);
      expectSameBits(floatsOf(got.subarray(0, scales)), floatsOf(bytes.subarray(0, scales)));
      expect(got.subarray(scales)).toEqual(bytes.subarray(scales));
      const back = restored(bytes, x.length, (from, to) => kernels.fromLevels(from, to, x.length));
      expectSameBits(back, references.fromLevels(bytes, x.length));
      const { before, sum } = added(bytes, x.length, (from, to) => kernels.addLevels(from, to, x.length));
      expectSameBits(sum, references.addLevels(before, bytes));
    });
  });

  it('the k largest, of equal ones the first', () => {
    const repeated = fc.array(fc.constantFrom(0, 1, -1, 2, NaN), { minLength: 1, maxLength: MAX });
    fc.assert(
      fc.property(fc.oneof(vectors, repeated), fc.double({ min: 0, max: 1, noNaN: true }), (values, share) => {
        const x = put(values);
        const words = new Uint32Array(x.buffer);
        const k = Math.max(1, Math.floor(share * x.length));
        const bits = kernels.kthMagnitude(source, x.length, k, scratch);
        expect(bits).toBe(references.kthMagnitude(x, k));
        const equal = kernels.equalWanted();
        const from = kernels.countFrom(source, x.length, bits);
        expect(from).toBe(references.countFrom(x, bits));
        expect(from - x.reduce((count, _, i) => count + (words[i]! << 1 === bits << 1 ? 1 : 0), 0) + equal).toBe(k);
        const bytes = references.gather(x, bits, equal);
        let length = 0;
        const got = written(encoded, bytes.length, (to) => (length = kernels.gather(source, to, x.length, k, bits, equal)));
        expect([length, got]).toEqual([bytes.length, bytes]);
        const back = restored(bytes, x.length, (from, to) => expect(kernels.scatter(from, bytes.length, to, x.length)).toBe(true));
        expectSameBits(back, references.scatter(bytes, x.length)!);
        const [sent, places] = [floatsOf(bytes.slice(4, 4 + 4 * k)), bytes.subarray(4 + 4 * k)];
        const { before, sum } = added(bytes, x.length, (from, to) => {
          expect(kernels.arePlaces(from + 4 + 4 * k, places.length, k, x.length)).toBe(true);
          kernels.addScattered(from + 4, from + 4 + 4 * k, places.length, k, to, x.length);
        });
        expectSameBits(sum, references.addScattered(before, sent, places));
      }),
      { numRuns: 60 },
    );
  });

  it('bytes that nobody has gathered are refused by kernel and reference alike, and nothing is written beyond the vector', () => {
    const bytes = fc.oneof(
      fc.uint8Array({ maxLength: 40 }),
      fc
        .tuple(fc.integer({ min: 0, max: 6 }), fc.uint8Array({ maxLength: 40 }))
        .map(([count, rest]) => Uint8Array.of(count, 0, 0, 0, ...rest)),
    );
    fc.assert(
      fc.property(bytes, fc.integer({ min: 1, max: 300 }), (drawn, n) => {
        arena.bytes(encoded, drawn.length).set(drawn);
        let isGood = false;
        const got = written(decoded, 4 * n, (to) => (isGood = kernels.scatter(encoded, drawn.length, to, n)));
        const wanted = references.scatter(drawn, n);
        expect(isGood).toBe(wanted !== undefined);
        const count = drawn[0]!;
        const places = drawn.subarray(4 + 4 * count);
        expect(kernels.arePlaces(encoded + 4 + 4 * count, places.length, count, n)).toBe(references.arePlaces(places, count, n));
        if (wanted) expectSameBits(floatsOf(got), wanted);
      }),
      { numRuns: 400 },
    );
  });

  it('bytes that nobody has quantized, or made of signs, are told from those that were, by kernel and reference alike', () => {
    const changes = fc.array(fc.tuple(fc.nat(), fc.integer({ min: 0, max: 255 })), { maxLength: 2 });
    fc.assert(
      fc.property(vectors, keys, fc.constantFrom(8, 4, 2), changes, (values, key, bits, changed) => {
        const x = put(values);
        for (const [bytes, check] of [
          [references.quantize(x, bits, key), (of: typeof references | typeof kernels, it: never) => of.isQuantized(it, x.length, bits)],
          [references.toSigns(x), (of: typeof references | typeof kernels, it: never) => of.isSigns(it, x.length)],
          [references.toLevels(x), (of: typeof references | typeof kernels, it: never) => of.isLevels(it, x.length)],
        ] as const) {
          arena.bytes(encoded, bytes.length).set(bytes);
          expect([check(kernels, encoded as never), check(references, bytes as never)]).toEqual([true, true]);
          for (const [at, value] of changed) bytes[at % bytes.length] = value;
          arena.bytes(encoded, bytes.length).set(bytes);
          expect(check(kernels, encoded as never)).toBe(check(references, bytes as never));
        }
      }),
      { numRuns: 200 },
    );
  });

  it('refuses a lowest number, padding, a number without a step, a negative step, and a second form of a distance', () => {
    const n = 10;
    const quantized = (change: (bytes: Uint8Array) => void): boolean => {
      const bytes = references.quantize(
        Float32Array.from({ length: n }, (_, i) => i - 5),
        8,
        1,
      );
      change(bytes);
      arena.bytes(encoded, bytes.length).set(bytes);
      return kernels.isQuantized(encoded, n, 8);
    };
    expect(quantized(() => undefined)).toBe(true);
    expect(quantized((bytes) => (bytes[4] = 0x80))).toBe(false);
    expect(quantized((bytes) => (bytes[4 + n] = 1))).toBe(false);
    expect(quantized((bytes) => bytes.fill(0, 0, 4))).toBe(false);
    expect(quantized((bytes) => (bytes[3]! |= 0x80))).toBe(false);
    arena.bytes(encoded, 12).set([1, 0, 0, 0, 0, 0, 128, 63, 0x83, 0x00]);
    expect([kernels.scatter(encoded, 10, decoded, n), references.scatter(arena.bytes(encoded, 10), n)]).toEqual([false, undefined]);
  });

  it('clears what was sent', () => {
    forAll((x) => {
      const sent = x.map((value, i) => (i % 3 === 0 ? value : 0));
      const got = written(decoded, 4 * x.length, (at) => {
        arena.f32(at, x.length).set(x);
        arena.f32(encoded, x.length).set(sent);
        kernels.clearSent(at, encoded, x.length);
      });
      expectSameBits(floatsOf(got), references.clearSent(x, sent));
    });
  });

  it('elements drawn under a key', () => {
    fc.assert(
      fc.property(vectors, keys, fc.double({ min: 0, max: 1, noNaN: true }), fc.boolean(), (values, key, share, isScaled) => {
        const x = put(values);
        const k = Math.max(1, Math.floor(share * x.length));
        const wanted = references.gatherDrawn(x, k, key, isScaled);
        expectSameBits(floatsOf(written(encoded, 4 * k, (to) => kernels.gatherDrawn(source, to, x.length, k, key, isScaled))), wanted);
        const back = restored(new Uint8Array(wanted.buffer), x.length, (from, to) => kernels.scatterDrawn(from, to, x.length, k, key));
        expectSameBits(back, references.scatterDrawn(wanted, x.length, key));
        const { before, sum } = added(new Uint8Array(wanted.buffer), x.length, (from, to) => kernels.addDrawn(from, to, x.length, k, key));
        expectSameBits(sum, references.addDrawn(before, wanted, key));
      }),
      { numRuns: 60 },
    );
  });
});

describe('what an encoding does to a gradient', () => {
  const values = Array.from({ length: 1024 }, (_, i) => Math.sin(i) * 0.01);

  it.each([8, 4, 2])('rounds to %i bits without a bias', (bits) => {
    const x = put(values);
    const mean = new Float64Array(x.length);
    const TIMES = 1000;
    for (let key = 0; key < TIMES; key++) {
      kernels.quantize(source, encoded, x.length, bits, Math.imul(key, 0x632be59b) >>> 0);
      kernels.dequantize(encoded, decoded, x.length, bits);
      arena.f32(decoded, x.length).forEach((value, i) => (mean[i]! += value / TIMES));
    }
    const step = 0.01 / (2 ** (bits - 1) - 1);
    // The standard error of such a mean is at most step / 2 / √1000: 5 of them for the worst of 1,024 elements.
    for (const [i, value] of x.entries()) expect(Math.abs(mean[i]! - value)).toBeLessThan((5 * step) / 2 / Math.sqrt(TIMES));
  });

  it('leaves of a vector less than it was, with a sign and one of two magnitudes', () => {
    for (const shape of [(i: number): number => Math.sin(i), (i: number): number => Math.tan(i), (): number => 1]) {
      const x = put(values.map((_, i) => shape(i)));
      kernels.toLevels(source, encoded, x.length);
      kernels.fromLevels(encoded, decoded, x.length);
      const squares = (y: Float32Array): number => y.reduce((sum, value) => sum + value * value, 0);
      const rest = x.map((value, i) => value - arena.f32(decoded, x.length)[i]!);
      // What two means leave is the variance within both: of a sine less than a tenth of its squares.
      expect(squares(rest)).toBeLessThan(shape(1) === Math.sin(1) ? 0.1 * squares(x) : squares(x));
    }
  });

  it('does not hide what is not finite', () => {
    for (const bad of [NaN, Infinity, -Infinity]) {
      const x = put(values.map((value, i) => (i === 700 ? bad : value)));
      const isFinite = (decode: () => void): boolean => (decode(), kernels.allFinite(decoded, x.length));
      for (const bits of [8, 4, 2]) {
        kernels.quantize(source, encoded, x.length, bits, 1);
        expect(isFinite(() => kernels.dequantize(encoded, decoded, x.length, bits))).toBe(false);
      }
      kernels.toSigns(source, encoded, x.length);
      expect(isFinite(() => kernels.fromSigns(encoded, decoded, x.length))).toBe(false);
      kernels.toLevels(source, encoded, x.length);
      expect(isFinite(() => kernels.fromLevels(encoded, decoded, x.length))).toBe(false);
      kernels.toBfloat(source, encoded, x.length);
      expect(isFinite(() => kernels.fromBfloat(encoded, decoded, x.length))).toBe(false);
      const bits = kernels.kthMagnitude(source, x.length, 1, scratch);
      const bytes = kernels.gather(source, encoded, x.length, 1, bits, 1);
      expect(isFinite(() => kernels.scatter(encoded, bytes, decoded, x.length))).toBe(false);
    }
  });
});
