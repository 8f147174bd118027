/**
 * Counter-based random numbers: Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3",
 * SC 2011). The i-th number of a stream is a function of (key, i): a replica that is computed again, elsewhere, draws the
 * same numbers, and a server computes only its part of the initial weights. Only integer operations and correctly rounded
 * ones (+ − × ÷ √) are used, also for normal deviates, so the bits do not depend on the machine or the version of Node.
 */

/** Names a stream: 64 bits. */
export type StreamKey = readonly [number, number];

const M0 = 0xd2511f53;
const M1 = 0xcd9e8d57;
const W0 = 0x9e3779b9;
const W1 = 0xbb67ae85;

/** Upper 32 bits of the product of two uint32. */
function multiplyHigh(a: number, b: number): number {
  const al = a & 0xffff;
  const ah = a >>> 16;
  const bl = b & 0xffff;
  const bh = b >>> 16;
  // Each sum stays below 2^32: (2^16 − 1)² + 2^16 − 1.
  const u = (Math.imul(ah, bl) + (Math.imul(al, bl) >>> 16)) >>> 0;
  const v = (Math.imul(al, bh) + (u & 0xffff)) >>> 0;
  return (Math.imul(ah, bh) + (u >>> 16) + (v >>> 16)) >>> 0;
}

/** One block: four uint32 (unsigned) into `out` at `at`, for a counter of 128 bits and a key of 64. */
export function philox4x32(c0: number, c1: number, c2: number, c3: number, key: StreamKey, out: Uint32Array, at = 0): void {
  let k0 = key[0];
  let k1 = key[1];
  for (let round = 0; round < 10; round++) {
    const high0 = multiplyHigh(c0, M0);
    const low0 = Math.imul(c0, M0);
    const high1 = multiplyHigh(c2, M1);
    const low1 = Math.imul(c2, M1);
    c0 = high1 ^ c1 ^ k0;
    c1 = low1;
    c2 = high0 ^ c3 ^ k1;
    c3 = low0;
    k0 = (k0 + W0) | 0;
    k1 = (k1 + W1) | 0;
  }
  out[at] = c0;
  out[at + 1] = c1;
  out[at + 2] = c2;
  out[at + 3] = c3;
}

const utf8 = new TextEncoder();

/**
 * The key of the stream that these parts name, e.g. `streamKey('dropout', seed, round, replica, microBatch, path, call)`.
 * Stable across releases; parts are typed and delimited, so ('a', 'b') and ('ab') differ, and 1 and '1'. The bytes go
 * through Philox, chained: each block is encrypted under the key so far. This mixes; it is no cryptographic hash.
 */
export function streamKey(...parts: readonly (number | string)[]): [number, number] {
  const block = new Uint32Array(4);
  let key: [number, number] = [0x243f6a88, 0x85a308d3];
  const absorb = (w0: number, w1: number, tag: number, length: number): void => {
    philox4x32(w0, w1, tag, length, key, block);
    key = [block[0]! ^ block[2]!, block[1]! ^ block[3]!];
    key[0] >>>= 0;
    key[1] >>>= 0;
  };
  for (const part of parts) {
    if (typeof part === 'number') {
      if (!Number.isFinite(part)) throw new RangeError(`a stream cannot be named by ${part}`);
      const view = new DataView(new ArrayBuffer(8));
      view.setFloat64(0, part + 0); // −0 names the same stream as 0
      absorb(view.getUint32(4), view.getUint32(0), 1, 8);
    } else {
      const text = utf8.encode(part);
      const view = new DataView(new ArrayBuffer(Math.max(8, Math.ceil(text.length / 8) * 8)));
      new Uint8Array(view.buffer).set(text);
      for (let at = 0; at < view.byteLength; at += 8) absorb(view.getUint32(at, true), view.getUint32(at + 4, true), 2, text.length);
    }
  }
  return key;
}

/** Uniform in [0, 1) with 24 bits: every value is a float32. */
export function unitFloat(uint32: number): number {
  return (uint32 >>> 8) * 2 ** -24;
}

/** Uniform in (0, 1), never 0 and never 1: the middle of one of 2^32 equal cells. */
export function openUnit(uint32: number): number {
  return (uint32 + 0.5) * 2 ** -32;
}

/** The numbers of one stream, in order or by index. Numbers of all kinds share one index: the i-th float comes from the i-th uint32. */
export class CounterStream {
  private readonly block = new Uint32Array(4);
  private blockIndex = -1;
  /** Index of the next number; up to 2^53. */
  position = 0;

  constructor(private readonly key: StreamKey) {}

  uint32At(index: number): number {
    const block = Math.floor(index / 4);
    if (block !== this.blockIndex) {
      philox4x32(block >>> 0, Math.floor(block / 2 ** 32), 0, 0, this.key, this.block);
      this.blockIndex = block;
    }
    return this.block[index - block * 4]!;
  }

  normalAt(index: number): number {
    return normalQuantile(openUnit(this.uint32At(index)));
  }

  nextUint32(): number {
    return this.uint32At(this.position++);
  }

  /** Uniform in [0, 1), 24 bits. */
  nextFloat(): number {
    return unitFloat(this.nextUint32());
  }

  /** Standard normal. */
  nextNormal(): number {
    return normalQuantile(openUnit(this.nextUint32()));
  }
}

/** Φ⁻¹(p) for 0 < p < 1: algorithm AS 241, PPND16 (Wichura 1988), about 16 digits. */
export function normalQuantile(p: number): number {
  const q = p - 0.5;
  if (Math.abs(q) <= 0.425) {
    const r = 0.180625 - q * q;
    return (q * polynomial(CENTRE_ABOVE, r)) / polynomial(CENTRE_BELOW, r);
  }
  const r = Math.sqrt(-naturalLogarithm(q < 0 ? p : 1 - p));
  const tail =
    r <= 5
      ? polynomial(NEAR_ABOVE, r - 1.6) / polynomial(NEAR_BELOW, r - 1.6)
      : polynomial(FAR_ABOVE, r - 5) / polynomial(FAR_BELOW, r - 5);
  return q < 0 ? -tail : tail;
}

function polynomial(coefficients: readonly number[], x: number): number {
  let value = coefficients[coefficients.length - 1]!;
  for (let i = coefficients.length - 2; i >= 0; i--) value = value * x + coefficients[i]!;
  return value;
}

const bits = new DataView(new ArrayBuffer(8));

/**
 * ln x for normal x > 0, within about 2 ulp. Math.log may differ in the last bit between versions of V8; this cannot.
 * x = m · 2^e with m around 1, and ln m = 2 artanh((m − 1) / (m + 1)).
 */
export function naturalLogarithm(x: number): number {
  bits.setFloat64(0, x);
  let exponent = ((bits.getUint32(0) >>> 20) & 0x7ff) - 1023;
  bits.setUint32(0, (bits.getUint32(0) & 0xfffff) | 0x3ff00000);
  let mantissa = bits.getFloat64(0);
  if (mantissa > Math.SQRT2) {
    mantissa /= 2;
    exponent++;
  }
  const s = (mantissa - 1) / (mantissa + 1);
  const z = s * s;
  let series = 0;
  for (let k = 23; k >= 1; k -= 2) series = series * z + 1 / k;
  return exponent * Math.LN2 + 2 * s * series;
}

const CENTRE_ABOVE = [
  3.387132872796366608, 133.14166789178437745, 1971.5909503065514427, 13731.693765509461125, 45921.953931549871457, 67265.770927008700853,
  33430.575583588128105, 2509.0809287301226727,
];
const CENTRE_BELOW = [
  1, 42.313330701600911252, 687.1870074920579083, 5394.1960214247511077, 21213.794301586595867, 39307.89580009271061, 28729.085735721942674,
  5226.495278852545925,
];
const NEAR_ABOVE = [
  1.42343711074968357734, 4.6303378461565452959, 5.7694972214606914055, 3.64784832476320460504, 1.27045825245236838258,
  0.24178072517745061177, 0.0227238449892691845833, 7.7454501427834140764e-4,
];
const NEAR_BELOW = [
  1, 2.05319162663775882187, 1.6763848301838038494, 0.68976733498510000455, 0.14810397642748007459, 0.0151986665636164571966,
  5.475938084995344946e-4, 1.05075007164441684324e-9,
];
const FAR_ABOVE = [
  6.6579046435011037772, 5.4637849111641143699, 1.7848265399172913358, 0.29656057182850489123, 0.026532189526576123093,
  0.0012426609473880784386, 2.71155556874348757815e-5, 2.01033439929228813265e-7,
];
const FAR_BELOW = [
  1, 0.59983220655588793769, 0.13692988092273580531, 0.0148753612908506148525, 7.868691311456132591e-4, 1.8463183175100546818e-5,
  1.4215117583164458887e-7, 2.04426310338993978564e-15,
];
