/**
 * What the kernels of codec-kernels.ts compute, in plain TypeScript. All numbers are little-endian.
 *
 *   quantized   f32 step of each block of 512 elements, then groups of 16 bytes. A group holds 128 / bits elements: element j of it is in byte j mod 16,
 *               at bit (j div 16) · bits, in two's complement. Element = number · step. The last group is filled with zeros.
 *   signs       f32 mean magnitude of each block of 512, then a bit for each element, lowest first: 1 is negative
 *   levels      f32 low and high magnitude of each block of 512, then two bits for each element, lowest first: 1 is negative, 2 the high one
 *   gathered    u32 count, f32 elements, then for each the number of elements left out before it, seven bits in a byte, lowest first (LEB128)
 *   drawn       f32 elements: element j is one of [j·n/k, (j+1)·n/k)
 */
import { CODEC_BLOCK, levelBytes, quantizedBytes, signBytes } from './codec-kernels.js';

const f32 = Math.fround;
const LEAST = f32(1e-35);
const HASH_STEP = 0x9e3779b9;

/** Random bits of an element under a key: the finalizer `triple32` family of Wellons ("hash prospector"), two rounds. */
function hash(key: number, element: number): number {
  let x = (key + Math.imul(element, HASH_STEP)) >>> 0;
  x = Math.imul(x ^ (x >>> 16), 0x21f0aaad);
  x = Math.imul(x ^ (x >>> 15), 0x735a2d97);
  return (x ^ (x >>> 15)) >>> 0;
}

/** One round of it, with which numbers are rounded. */
function shortHash(key: number, element: number): number {
  const sum = (key + Math.imul(element, HASH_STEP)) >>> 0;
  const x = Math.imul(sum ^ (sum >>> 16), 0x21f0aaad);
  return (x ^ (x >>> 15)) >>> 0;
}

const word = new Uint32Array(1);
const float = new Float32Array(word.buffer);
const bitsOf = (x: number): number => {
  float[0] = x;
  return word[0]!;
};
/** A NaN that JavaScript has read as a number may come back with other bits: what is ordered and copied here stays words. */
const wordsOf = (src: Float32Array): Uint32Array => new Uint32Array(src.buffer, src.byteOffset, src.length);
const magnitudeOf = (bits: number): number => bits & 0x7fffffff;

/** What has come and is added to: a decoder that adds is the decoder, and a float32 addition of each element. */
const sum = (dst: Float32Array, decoded: Float32Array): Float32Array => dst.map((x, i) => x + decoded[i]!);

export function largestMagnitude(src: Float32Array): number {
  let most = 0;
  for (const x of src) most = Math.max(most, Math.abs(x));
  return most;
}

/** Half precision has 5 bits of exponent (bias 15) and 10 of fraction. */
function halfOf(x: number): number {
  const sign = bitsOf(x) >>> 31 === 1 ? 0x8000 : 0;
  if (Number.isNaN(x)) return sign | 0x7e00;
  const a = Math.abs(x);
  if (a >= 65_520) return sign | 0x7c00; // half way to 2^16 and beyond
  const exponent = a < 2 ** -14 ? -14 : Math.floor(Math.log2(a));
  const unit = 2 ** (exponent - 10);
  const units = nearestEven(a / unit);
  return a < 2 ** -14 ? sign | units : sign + ((exponent + 15) << 10) + (units - 1024);
}

function nearestEven(x: number): number {
  const low = Math.floor(x);
  const above = x - low;
  return low + (above > 0.5 || (above === 0.5 && low % 2 === 1) ? 1 : 0);
}

function ofHalf(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return exponent === 0 ? sign * fraction * 2 ** -24 : sign * (1024 + fraction) * 2 ** (exponent - 25);
}

export function toHalf(src: Float32Array, factor: number): Uint16Array {
  return Uint16Array.from(src, (x) => halfOf(f32(x * f32(factor))));
}

export function fromHalf(src: Uint16Array, factor: number): Float32Array {
  return Float32Array.from(src, (x) => f32(ofHalf(x) * f32(factor)));
}

export const addHalf = (dst: Float32Array, src: Uint16Array, factor: number): Float32Array => sum(dst, fromHalf(src, factor));

export function toBfloat(src: Float32Array): Uint16Array {
  return Uint16Array.from(src, (x) => {
    const bits = bitsOf(x);
    return Number.isNaN(x) ? (bits >>> 16) | 0x40 : (bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16;
  });
}

export function fromBfloat(src: Uint16Array): Float32Array {
  return new Float32Array(Uint32Array.from(src, (x) => x << 16).buffer);
}

export const addBfloat = (dst: Float32Array, src: Uint16Array): Float32Array => sum(dst, fromBfloat(src));

const blocksOf = (n: number): { from: number; to: number }[] =>
  Array.from({ length: Math.ceil(n / CODEC_BLOCK) }, (_, i) => ({ from: i * CODEC_BLOCK, to: Math.min(n, (i + 1) * CODEC_BLOCK) }));

/** Where a number of `bits` bits lies: its byte behind the steps, and its shift. */
function placeOf(element: number, bits: number): { byte: number; shift: number } {
  const group = 128 / bits;
  const j = element % group;
  return { byte: Math.floor(element / group) * 16 + (j % 16), shift: Math.floor(j / 16) * bits };
}

export function quantize(src: Float32Array, bits: number, key: number): Uint8Array {
  const out = new Uint8Array(quantizedBytes(src.length, bits));
  const blocks = blocksOf(src.length);
  const view = new DataView(out.buffer);
  const most = 2 ** (bits - 1) - 1;
  for (const [b, { from, to }] of blocks.entries()) {
    const top = largestMagnitude(src.subarray(from, to));
    view.setFloat32(4 * b, top < LEAST ? 0 : f32(top / most), true);
    if (!(top >= LEAST && top < Infinity)) continue;
    const inverse = f32(most / top);
    for (let i = from; i < to; i++) {
      // Elements i and i + 4 of eight share a hash: the first has its low 15 bits, the other its high ones.
      const both = shortHash(key, (i >> 3) * 4 + (i & 3));
      const random = (i & 4 ? both >>> 17 : both & 0x7fff) * 2 ** -15;
      // The sum with 384 has 15 bits of fraction.
      const fixed = f32(f32(src[i]! * inverse) + 384) - 384;
      const q = Math.min(Math.max(Math.floor(fixed + random), -most), most);
      const { byte, shift } = placeOf(i, bits);
      out[4 * blocks.length + byte]! |= (q & ((1 << bits) - 1)) << shift;
    }
  }
  return out;
}

export function dequantize(bytes: Uint8Array, n: number, bits: number): Float32Array {
  const blocks = Math.ceil(n / CODEC_BLOCK);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return Float32Array.from({ length: n }, (_, i) => {
    const { byte, shift } = placeOf(i, bits);
    const q = (bytes[4 * blocks + byte]! << (32 - shift - bits)) >> (32 - bits);
    return f32(q * view.getFloat32(4 * Math.floor(i / CODEC_BLOCK), true));
  });
}

export const addQuantized = (dst: Float32Array, bytes: Uint8Array, bits: number): Float32Array =>
  sum(dst, dequantize(bytes, dst.length, bits));

/** Σ |x|: element i in lane i mod 8, lanes i and i + 4 added, then in pairs; the elements behind the last eight are added one by one. */
function sumOfMagnitudes(src: Float32Array): number {
  const lanes = new Float32Array(8);
  const whole = src.length - (src.length % 8);
  for (let i = 0; i < whole; i++) lanes[i % 8]! += Math.abs(src[i]!);
  const four = [0, 1, 2, 3].map((i) => f32(lanes[i]! + lanes[i + 4]!));
  let sum = f32(f32(four[0]! + four[1]!) + f32(four[2]! + four[3]!));
  for (let i = whole; i < src.length; i++) sum = f32(sum + Math.abs(src[i]!));
  return sum;
}

export function toSigns(src: Float32Array): Uint8Array {
  const out = new Uint8Array(signBytes(src.length));
  const blocks = blocksOf(src.length);
  const view = new DataView(out.buffer);
  for (const [b, { from, to }] of blocks.entries())
    view.setFloat32(4 * b, f32(sumOfMagnitudes(src.subarray(from, to)) / (to - from)), true);
  for (let i = 0; i < src.length; i++) out[4 * blocks.length + (i >> 3)]! |= (bitsOf(src[i]!) >>> 31) << (i & 7);
  return out;
}

export function fromSigns(bytes: Uint8Array, n: number): Float32Array {
  const blocks = Math.ceil(n / CODEC_BLOCK);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return Float32Array.from({ length: n }, (_, i) => {
    const magnitude = view.getFloat32(4 * Math.floor(i / CODEC_BLOCK), true);
    return (bytes[4 * blocks + (i >> 3)]! >> (i & 7)) & 1 ? -magnitude : magnitude;
  });
}

export const addSigns = (dst: Float32Array, bytes: Uint8Array): Float32Array => sum(dst, fromSigns(bytes, dst.length));

export function toLevels(src: Float32Array): Uint8Array {
  const out = new Uint8Array(levelBytes(src.length));
  const blocks = blocksOf(src.length);
  const view = new DataView(out.buffer);
  const words = wordsOf(src);
  for (const [b, { from, to }] of blocks.entries()) {
    const magnitudes = Array.from(src.subarray(from, to), Math.abs);
    const sum = magnitudes.reduce((before, x) => before + x, 0);
    const mean = sum / magnitudes.length;
    const larger = magnitudes.filter((x) => x > mean);
    const high = larger.reduce((before, x) => before + x, 0);
    const low = f32(larger.length > 0 ? (sum - high) / (magnitudes.length - larger.length) : mean);
    view.setFloat32(8 * b, low, true);
    view.setFloat32(8 * b + 4, larger.length > 0 ? f32(high / larger.length) : low, true);
    for (let i = from; i < to; i++) {
      const bits = (words[i]! >>> 31) | (magnitudes[i - from]! > mean ? 2 : 0);
      out[8 * blocks.length + (i >> 2)]! |= bits << (2 * (i & 3));
    }
  }
  return out;
}

export function fromLevels(bytes: Uint8Array, n: number): Float32Array {
  const blocks = Math.ceil(n / CODEC_BLOCK);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return Float32Array.from({ length: n }, (_, i) => {
    const bits = bytes[8 * blocks + (i >> 2)]! >> (2 * (i & 3));
    const magnitude = view.getFloat32(8 * Math.floor(i / CODEC_BLOCK) + 2 * (bits & 2), true);
    return bits & 1 ? -magnitude : magnitude;
  });
}

export const addLevels = (dst: Float32Array, bytes: Uint8Array): Float32Array => sum(dst, fromLevels(bytes, dst.length));

export function kthMagnitude(src: Float32Array, k: number): number {
  return [...wordsOf(src)].map(magnitudeOf).sort((a, b) => b - a)[k - 1]!;
}

export function countFrom(src: Float32Array, bits: number): number {
  return wordsOf(src).reduce((count, x) => count + (magnitudeOf(x) >= bits ? 1 : 0), 0);
}

export function gather(src: Float32Array, bits: number, equal: number): Uint8Array {
  const values: number[] = [];
  const distances: number[] = [];
  let next = 0;
  for (const [i, x] of wordsOf(src).entries()) {
    const magnitude = magnitudeOf(x);
    if (magnitude < bits || (magnitude === bits && equal-- <= 0)) continue;
    values.push(x);
    let distance = i - next;
    for (; distance > 127; distance >>>= 7) distances.push((distance & 127) | 128);
    distances.push(distance);
    next = i + 1;
  }
  const out = new Uint8Array(4 + 4 * values.length + distances.length);
  new DataView(out.buffer).setUint32(0, values.length, true);
  out.set(new Uint8Array(Uint32Array.from(values).buffer), 4);
  out.set(distances, 4 + 4 * values.length);
  return out;
}

/** The places of `count` of n elements; undefined when the bytes are none that `gather` writes behind the values. */
function placesOf(bytes: Uint8Array, count: number, n: number): number[] | undefined {
  const places: number[] = [];
  let [at, next] = [0, 0];
  while (places.length < count) {
    let distance = 0;
    for (let digit = 0; ; digit++) {
      if (at >= bytes.length || digit > 4) return undefined;
      const byte = bytes[at++]!;
      distance += (byte & 127) * 128 ** digit;
      if (byte === 0 && digit > 0) return undefined;
      if (byte < 128) break;
    }
    next += distance;
    if (next >= n) return undefined;
    places.push(next++);
  }
  return at === bytes.length ? places : undefined;
}

export const arePlaces = (bytes: Uint8Array, count: number, n: number): boolean => placesOf(bytes, count, n) !== undefined;

/** Undefined when the bytes are not what `gather` writes for n elements. */
export function scatter(bytes: Uint8Array, n: number): Float32Array | undefined {
  if (bytes.length < 4) return undefined;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const count = view.getUint32(0, true);
  if (count > n || bytes.length < 4 + 5 * count) return undefined;
  const values = Float32Array.from({ length: count }, (_, i) => view.getFloat32(4 + 4 * i, true));
  return scattered(values, bytes.subarray(4 + 4 * count), n);
}

function scattered(values: Float32Array, places: Uint8Array, n: number): Float32Array | undefined {
  const at = placesOf(places, values.length, n);
  const out = new Float32Array(n);
  at?.forEach((place, i) => (out[place] = values[i]!));
  return at && out;
}

export const addScattered = (dst: Float32Array, values: Float32Array, places: Uint8Array): Float32Array =>
  sum(dst, scattered(values, places, dst.length)!);

export function clearSent(dst: Float32Array, sent: Float32Array): Float32Array {
  return dst.map((x, i) => (sent[i] === 0 ? x : 0));
}

/** Positive or +0, or NaN: what encoders write as a step or a magnitude. */
const isMagnitude = (x: number): boolean => Number.isNaN(x) || x > 0 || Object.is(x, 0);

export function isQuantized(bytes: Uint8Array, n: number, bits: number): boolean {
  const blocks = Math.ceil(n / CODEC_BLOCK);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const mask = (1 << bits) - 1;
  // A larger step would make the largest number infinite.
  const largest = f32(3.4028234663852886e38 / (2 ** (bits - 1) - 1));
  const isStep = (x: number): boolean => isMagnitude(x) && (x <= largest || !Number.isFinite(x));
  const padded = Math.ceil((n * bits) / 128) * (128 / bits);
  for (let b = 0; b < blocks; b++) if (!isStep(view.getFloat32(4 * b, true))) return false;
  for (let i = 0; i < padded; i++) {
    const { byte, shift } = placeOf(i, bits);
    const q = (bytes[4 * blocks + byte]! >> shift) & mask;
    const step = view.getFloat32(4 * Math.min(blocks - 1, Math.floor(i / CODEC_BLOCK)), true);
    if (q === 1 << (bits - 1) || (q !== 0 && (i >= n || !(step > 0 && step < Infinity)))) return false;
  }
  return true;
}

export function isSigns(bytes: Uint8Array, n: number): boolean {
  const blocks = Math.ceil(n / CODEC_BLOCK);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  for (let b = 0; b < blocks; b++) if (!isMagnitude(view.getFloat32(4 * b, true))) return false;
  return n % 8 === 0 || bytes[4 * blocks + (n >> 3)]! >> (n & 7) === 0;
}

export function isLevels(bytes: Uint8Array, n: number): boolean {
  const blocks = Math.ceil(n / CODEC_BLOCK);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  for (let b = 0; b < blocks; b++) {
    const [low, high] = [view.getFloat32(8 * b, true), view.getFloat32(8 * b + 4, true)];
    if (!isMagnitude(low) || !isMagnitude(high) || low > high) return false;
  }
  return n % 4 === 0 || bytes[8 * blocks + (n >> 2)]! >> (2 * (n & 3)) === 0;
}

function drawn(j: number, n: number, k: number, key: number): number {
  const from = Math.floor((j * n) / k);
  const to = Math.floor(((j + 1) * n) / k);
  return from + Number((BigInt(hash(key, j)) * BigInt(to - from)) >> 32n);
}

export function gatherDrawn(src: Float32Array, k: number, key: number, isScaled: boolean): Float32Array {
  const n = src.length;
  const size = (j: number): number => Math.floor(((j + 1) * n) / k) - Math.floor((j * n) / k);
  return Float32Array.from({ length: k }, (_, j) => f32(src[drawn(j, n, k, key)]! * (isScaled ? size(j) : 1)));
}

export function scatterDrawn(src: Float32Array, n: number, key: number): Float32Array {
  const out = new Float32Array(n);
  src.forEach((x, j) => (out[drawn(j, n, src.length, key)] = x));
  return out;
}

export const addDrawn = (dst: Float32Array, src: Float32Array, key: number): Float32Array => sum(dst, scatterDrawn(src, dst.length, key));
