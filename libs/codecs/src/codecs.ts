/**
 * The codecs, by the name that a run spec gives them.
 *
 * | name             | what is sent of a chunk                                                        | source                                                |
 * |------------------|--------------------------------------------------------------------------------|-------------------------------------------------------|
 * | fp16             | half precision, scaled by a power of two that puts the largest element in range | IEEE 754                                             |
 * | bf16             | the upper half of each float32, rounded to nearest even                        | Kalamkar et al. 2019                                  |
 * | int8, int4, int2 | whole numbers with a step per 512 elements, rounded at random without a bias; int2 has -1, 0 and 1 | QSGD (Alistarh et al. 2017), TernGrad (Wen et al. 2017) |
 * | sign             | one bit per element, and the mean magnitude of each 512                        | Seide et al. 2014, Bernstein et al. 2018              |
 * | top-k            | the largest elements and where they are                                        | Aji and Heafield 2017                                 |
 * | threshold        | the elements from a magnitude on, and where they are                           | Strom 2015                                            |
 * | dgc              | the largest elements of what gathers in a replica with its momentum, as bfloat16 | Lin et al. 2018                                     |
 * | power-sgd        | two thin factors of the matrix of each variable, rounded to 8 bits              | Vogels et al. 2019                                    |
 * | random-k         | elements drawn under a key that the server has as well                         | Stich et al. 2018                                     |
 *
 * The elements of top-k, threshold and random-k travel as float32 or, with `values`, in fewer bits (SparseLoCo, Sarfi et al. 2025): gathered.ts.
 */
import { levelBytes, quantizedBytes, signBytes, type Arena } from '@paceline/kernels';
import { DEFAULT_DENSITY, type CodecSpec } from '@paceline/spec';
import type { Codec } from './codec.js';
import { dgc } from './dgc.js';
import {
  COUNT_BYTES,
  countOf,
  encodeGathered,
  encodeLargest,
  gatheredDecoding,
  isGathered,
  mostGathered,
  shorter,
  valueBytes,
  valuesOf,
  withFloats,
  type Values,
} from './gathered.js';
import type { Shapes } from './low-rank.js';
import { powerSgd } from './power-sgd.js';

const FLOAT_BYTES = 4;

/** Half precision ends at 65,504: the largest element comes to at most 2^15. */
const HALF_EXPONENT = 15;

/** The power of two that an element of this magnitude is multiplied by; 1 where there is none to speak of. */
function halfFactor(largest: number): number {
  if (!(largest > 0 && largest < Infinity)) return 1;
  const exponent = HALF_EXPONENT - 1 - Math.floor(Math.log2(largest));
  return 2 ** Math.max(-126, Math.min(126, exponent));
}

/** Tells by the bits of a float32 whether it is a scale that an encoder writes: positive, not below the least and not above the largest. */
const isPowerOfTwo = (bits: number): boolean => (bits & 0x807fffff) === 0 && bits >>> 23 >= 1 && bits >>> 23 <= 253;

const floatAt = ({ memory }: Arena, at: number): number => new DataView(memory.buffer).getFloat32(at, true);

/** The factor comes first. It is a power of two, so it changes no digit of an element. */
const fp16: Codec = {
  number: 1,
  leavesSome: false,
  maxBytes: (n) => FLOAT_BYTES + 2 * n,
  isLength: (n, bytes) => bytes === FLOAT_BYTES + 2 * n,
  encode(arena, from, to, n) {
    const factor = halfFactor(arena.kernels.largestMagnitude(from, n));
    new DataView(arena.memory.buffer).setFloat32(to, factor, true);
    arena.kernels.toHalf(from, to + FLOAT_BYTES, n, factor);
    return FLOAT_BYTES + 2 * n;
  },
  takes: ({ memory }, from) => isPowerOfTwo(new DataView(memory.buffer).getUint32(from, true)),
  decode(arena, from, bytes, to, n) {
    if (!fp16.takes(arena, from, bytes, n)) return false;
    arena.kernels.fromHalf(from + FLOAT_BYTES, to, n, 1 / floatAt(arena, from));
    return true;
  },
  add: (arena, from, _bytes, to, n) => arena.kernels.addHalf(from + FLOAT_BYTES, to, n, 1 / floatAt(arena, from)),
};

const bf16: Codec = {
  number: 2,
  leavesSome: false,
  maxBytes: (n) => 2 * n,
  isLength: (n, bytes) => bytes === 2 * n,
  encode({ kernels }, from, to, n) {
    kernels.toBfloat(from, to, n);
    return 2 * n;
  },
  takes: () => true,
  decode({ kernels }, from, _bytes, to, n) {
    kernels.fromBfloat(from, to, n);
    return true;
  },
  add: ({ kernels }, from, _bytes, to, n) => kernels.addBfloat(from, to, n),
};

const whole = (number: number, bits: 8 | 4 | 2): Codec => ({
  number,
  leavesSome: false,
  maxBytes: (n) => quantizedBytes(n, bits),
  isLength: (n, bytes) => bytes === quantizedBytes(n, bits),
  encode({ kernels }, from, to, n, key) {
    kernels.quantize(from, to, n, bits, key);
    return quantizedBytes(n, bits);
  },
  takes: ({ kernels }, from, _bytes, n) => kernels.isQuantized(from, n, bits),
  decode({ kernels }, from, _bytes, to, n) {
    if (!kernels.isQuantized(from, n, bits)) return false;
    kernels.dequantize(from, to, n, bits);
    return true;
  },
  add: ({ kernels }, from, _bytes, to, n) => kernels.addQuantized(from, to, n, bits),
});

const sign: Codec = {
  number: 6,
  leavesSome: false,
  maxBytes: signBytes,
  isLength: (n, bytes) => bytes === signBytes(n),
  encode({ kernels }, from, to, n) {
    kernels.toSigns(from, to, n);
    return signBytes(n);
  },
  takes: ({ kernels }, from, _bytes, n) => kernels.isSigns(from, n),
  decode({ kernels }, from, _bytes, to, n) {
    if (!kernels.isSigns(from, n)) return false;
    kernels.fromSigns(from, to, n);
    return true;
  },
  add: ({ kernels }, from, _bytes, to, n) => kernels.addSigns(from, to, n),
};

/** Two bits of each element, for differences of parameters: a sign, and one of two magnitudes of each 512. */
export const levelsCodec: Codec = {
  number: 13,
  leavesSome: false,
  maxBytes: levelBytes,
  isLength: (n, bytes) => bytes === levelBytes(n),
  encode({ kernels }, from, to, n) {
    kernels.toLevels(from, to, n);
    return levelBytes(n);
  },
  takes: ({ kernels }, from, _bytes, n) => kernels.isLevels(from, n),
  decode({ kernels }, from, _bytes, to, n) {
    if (!kernels.isLevels(from, n)) return false;
    kernels.fromLevels(from, to, n);
    return true;
  },
  add: ({ kernels }, from, _bytes, to, n) => kernels.addLevels(from, to, n),
};

const topK = (density: number, values: Values | undefined): Codec => ({
  number: 7,
  leavesSome: true,
  maxBytes: (n) => mostGathered(countOf(n, density)),
  isLength: (n, bytes) => isGathered(values, countOf(n, density), bytes),
  encode: (arena, from, to, n, key) => encodeLargest(arena, from, to, n, countOf(n, density), values, key),
  ...gatheredDecoding(values, (count, n) => count === countOf(n, density)),
});

const float = new Float32Array(1);
const word = new Uint32Array(float.buffer);

/** @param magnitude of the gradient of one example on average */
const threshold = (magnitude: number, values: Values | undefined): Codec => ({
  number: 8,
  leavesSome: true,
  maxBytes: (n) => FLOAT_BYTES * n,
  isLength: (n, bytes) => bytes >= COUNT_BYTES && bytes < FLOAT_BYTES * n,
  encode(arena, from, to, n, key, examples) {
    float[0] = magnitude * Math.max(1, examples);
    const least = Math.min(word[0]!, INFINITY_BITS);
    const count = arena.kernels.countFrom(from, n, least);
    if (mostGathered(count) >= FLOAT_BYTES * n) return 0;
    return encodeGathered(arena, from, to, n, { count, least, equal: n, values, key });
  },
  ...gatheredDecoding(values, (count, n) => !values || mostGathered(count) < FLOAT_BYTES * n),
});
const INFINITY_BITS = 0x7f800000;

/** @param isScaled each element that is sent stands for those of its part, so that the mean of what is sent is the gradient */
const randomK = (density: number, isScaled: boolean, wanted: Values | undefined): Codec => ({
  number: 9,
  leavesSome: false,
  // They are drawn as float32 before they become shorter.
  maxBytes: (n) => FLOAT_BYTES * countOf(n, density),
  isLength: (n, bytes) => bytes === valueBytes(wanted, countOf(n, density)),
  encode(arena, from, to, n, key) {
    const { kernels } = arena;
    const count = countOf(n, density);
    // What is drawn must not hide what is not finite.
    if (kernels.allFinite(from, n)) kernels.gatherDrawn(from, to, n, count, key, isScaled);
    else kernels.fill(to, count, NaN);
    const values = shorter(wanted, count);
    if (!values) return FLOAT_BYTES * count;
    const scratch = arena.alloc(values.bytes(count));
    values.encode(kernels, to, scratch, count, key);
    arena.bytes(to, values.bytes(count)).set(arena.bytes(scratch, values.bytes(count)));
    arena.free(scratch);
    return values.bytes(count);
  },
  takes({ kernels }, from, _bytes, n) {
    const count = countOf(n, density);
    return shorter(wanted, count)?.takes(kernels, from, count) ?? true;
  },
  decode(arena, from, _bytes, to, n, key) {
    const { kernels } = arena;
    const count = countOf(n, density);
    if (shorter(wanted, count)?.takes(kernels, from, count) === false) return false;
    withFloats(arena, from, count, wanted, (drawn) => kernels.scatterDrawn(drawn, to, n, count, key));
    return true;
  },
  add(arena, from, _bytes, to, n, key) {
    const count = countOf(n, density);
    withFloats(arena, from, count, wanted, (drawn) => arena.kernels.addDrawn(drawn, to, n, count, key));
  },
});

/** The codec of a run; undefined where gradients travel as they are, and with auto, whose codec is picked later. @param shapes of the variables, for power-sgd */
export function codecOf(spec: CodecSpec | undefined, shapes?: Shapes): Codec | undefined {
  if (!spec) return undefined;
  const density = spec.density ?? DEFAULT_DENSITY;
  const values = valuesOf(spec.values);
  switch (spec.kind) {
    case 'none':
    case 'auto':
      return undefined;
    case 'fp16':
      return fp16;
    case 'bf16':
      return bf16;
    case 'int8':
      return whole(3, 8);
    case 'int4':
      return whole(4, 4);
    case 'int2':
      return whole(5, 2);
    case 'sign':
      return sign;
    case 'top-k':
      return topK(density, values);
    case 'threshold':
      return threshold(spec.threshold!, values);
    case 'random-k':
      return randomK(density, !spec.errorFeedback, values);
    case 'dgc':
      return dgc(spec);
    case 'power-sgd':
      return powerSgd(spec, shapes);
  }
}
