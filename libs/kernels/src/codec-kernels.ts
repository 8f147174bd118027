/**
 * Kernels that encode a vector in fewer bytes, and back. As in kernels.ts: byte offsets, counts of float32, bitwise those of `references`. What the
 * bytes mean is written there. Source and destination do not overlap. NaN and infinity come back as something that is not finite.
 *
 * What begins with `add` is dst += what the decoder writes, with the bits of decoding first and adding then: one pass, and no memory for what is decoded.
 */
export interface CodecKernels {
  /** The largest magnitude; NaN where there is one. */
  largestMagnitude(src: number, n: number): number;
  /** IEEE half precision of src · factor, to nearest even: 2·n bytes. */
  toHalf(src: number, dst: number, n: number, factor: number): void;
  fromHalf(src: number, dst: number, n: number, factor: number): void;
  addHalf(src: number, dst: number, n: number, factor: number): void;
  /** bfloat16, to nearest even: 2·n bytes. */
  toBfloat(src: number, dst: number, n: number): void;
  fromBfloat(src: number, dst: number, n: number): void;
  addBfloat(src: number, dst: number, n: number): void;
  /** Whole numbers of 8, 4 or 2 bits, rounded at random so that their mean is the element: `quantizedBytes(n, bits)`. */
  quantize(src: number, dst: number, n: number, bits: number, key: number): void;
  dequantize(src: number, dst: number, n: number, bits: number): void;
  addQuantized(src: number, dst: number, n: number, bits: number): void;
  /** The sign of each element, and the mean magnitude of each block: `signBytes(n)`. */
  toSigns(src: number, dst: number, n: number): void;
  fromSigns(src: number, dst: number, n: number): void;
  addSigns(src: number, dst: number, n: number): void;
  /** The sign of each element, and one of two magnitudes of its block: the mean of those above the mean, and that of the others. `levelBytes(n)`. */
  toLevels(src: number, dst: number, n: number): void;
  fromLevels(src: number, dst: number, n: number): void;
  addLevels(src: number, dst: number, n: number): void;
  /** Bits of the k-th largest magnitude, 1 ≤ k ≤ n; NaN is the largest. 16 KiB at `scratch` are overwritten. */
  kthMagnitude(src: number, n: number, k: number, scratch: number): number;
  /** How many elements with just the magnitude of the last `kthMagnitude` are among the k. */
  equalWanted(): number;
  /** Elements whose magnitude has at least these bits. */
  countFrom(src: number, n: number, bits: number): number;
  /** The `count` elements whose magnitude is above `bits`, and the first `equal` of those at it. Returns the bytes written, at most 4 + 9 · count. */
  gather(src: number, dst: number, n: number, count: number, bits: number, equal: number): number;
  /** False when the bytes are not what `gather` writes for n elements. */
  scatter(src: number, byteLength: number, dst: number, n: number): boolean;
  /** Whether so many bytes are the places of `count` of n elements, as `gather` writes them behind the elements. It writes nothing. */
  arePlaces(places: number, byteLength: number, count: number, n: number): boolean;
  /** Of elements, and of places that `arePlaces` takes. Elements that are not sent are +0, so -0 in dst becomes +0 there. */
  addScattered(values: number, places: number, byteLength: number, count: number, dst: number, n: number): void;
  /** 0 in dst where `sent` is not 0. */
  clearSent(dst: number, sent: number, n: number): void;
  /** Whether the bytes are what `quantize` may write for n elements: others would be decoded as well. */
  isQuantized(src: number, n: number, bits: number): boolean;
  isSigns(src: number, n: number): boolean;
  isLevels(src: number, n: number): boolean;
  /** One element of each of k parts of the vector, drawn under the key; `isScaled`: times the elements of its part. 4·k bytes. */
  gatherDrawn(src: number, dst: number, n: number, k: number, key: number, isScaled: boolean): void;
  scatterDrawn(src: number, dst: number, n: number, k: number, key: number): void;
  addDrawn(src: number, dst: number, n: number, k: number, key: number): void;
}

/** Elements that share a step or a magnitude. */
export const CODEC_BLOCK = 512;
const blocks = (n: number): number => Math.ceil(n / CODEC_BLOCK);

export const quantizedBytes = (n: number, bits: number): number => 4 * blocks(n) + 16 * Math.ceil((n * bits) / 128);
export const signBytes = (n: number): number => 4 * blocks(n) + Math.ceil(n / 8);
export const levelBytes = (n: number): number => 8 * blocks(n) + Math.ceil(n / 4);
