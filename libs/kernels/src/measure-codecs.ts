/** What the micro-benchmark gives the kernels of codecs: a gradient as elements, and encodings that are made before the clock runs. */
import * as references from './codec-references.js';
import type { Kernels } from './kernels.js';
import type { LowRankKernels } from './low-rank-kernels.js';
import * as lowRank from './low-rank-references.js';

export interface Measured {
  /** Arrays read and arrays written, in float32 streams. */
  readonly streams: number;
  readonly divisions?: number;
  readonly roots?: number;
  readonly run: () => void;
  /** Makes what `run` reads; it is not measured. */
  readonly prepare?: () => void;
  /** The same in plain TypeScript, over elements of its own. */
  readonly reference?: Reference;
}

/** @returns what is measured */
export type Reference = (elements: number) => () => void;

/** `topK`: `kthMagnitude` and `gather`, which is what the codec top-k does. */
export type CodecKernel =
  | 'largestMagnitude'
  | 'toHalf'
  | 'fromHalf'
  | 'addHalf'
  | 'toBfloat'
  | 'fromBfloat'
  | 'addBfloat'
  | 'quantize'
  | 'dequantize'
  | 'addQuantized'
  | 'isQuantized'
  | 'toSigns'
  | 'fromSigns'
  | 'addSigns'
  | 'isSigns'
  | 'toLevels'
  | 'fromLevels'
  | 'addLevels'
  | 'isLevels'
  | 'kthMagnitude'
  | 'countFrom'
  | 'gather'
  | 'topK'
  | 'scatter'
  | 'arePlaces'
  | 'addScattered'
  | 'clearSent'
  | 'gatherDrawn'
  | 'scatterDrawn'
  | keyof LowRankKernels
  | 'addDrawn';

/** Of both signs, most of them small, in no order: what codecs meet. */
export function fillAsGradient(values: Float32Array): void {
  let state = 1;
  for (let i = 0; i < values.length; i++) {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    const x = state / 2 ** 31;
    values[i] = x * x * x * 1e-2;
  }
}

function gradientOf(elements: number): Float32Array {
  const values = new Float32Array(elements);
  fillAsGradient(values);
  return values;
}

/** A reference of an encoder, and one of a decoder, which is given what the encoder has made. */
const encoder =
  (run: (x: Float32Array) => unknown): Reference =>
  (elements) => {
    const x = gradientOf(elements);
    return () => void run(x);
  };
const decoder =
  <Encoded>(encode: (x: Float32Array) => Encoded, run: (encoded: Encoded, n: number) => unknown): Reference =>
  (elements) => {
    const encoded = encode(gradientOf(elements));
    return () => void run(encoded, elements);
  };

/** A reference of what decodes and adds. */
const adder = <Encoded>(encode: (x: Float32Array) => Encoded, run: (dst: Float32Array, encoded: Encoded) => unknown): Reference =>
  decoder(
    (x) => ({ dst: x, encoded: encode(x) }),
    ({ dst, encoded }) => run(dst, encoded),
  );

const percentOf = (n: number): number => Math.ceil(n / 100);
const BITS = 8;
const KEY = 1;
/** What the codec fp16 takes for them: the largest comes to 2^14 and more. */
const SCALE = 2 ** 21;

const largestOf = (x: Float32Array): Uint8Array => {
  const least = references.kthMagnitude(x, percentOf(x.length));
  return references.gather(x, least, percentOf(x.length) - references.countFrom(x, least + 1));
};

const valuesAndPlaces = (bytes: Uint8Array, count: number): { values: Float32Array; places: Uint8Array } => ({
  values: new Float32Array(bytes.slice(4, 4 + 4 * count).buffer),
  places: bytes.subarray(4 + 4 * count),
});

/** @param at the elements, where an encoding goes, what is decoded; the fourth is written over */
export function measuredCodecs(k: Kernels, n: number, at: readonly number[]): Readonly<Record<CodecKernel, Measured>> {
  return {
    ...measuredDense(k, n, at),
    ...measuredSparse(k, n, at),
    ...measuredSums(k, n, at),
    ...measuredSparseSums(k, n, at),
    ...measuredLowRank(k, n, at),
  };
}

type SparseKernel = 'kthMagnitude' | 'countFrom' | 'gather' | 'topK' | 'scatter' | 'clearSent' | 'gatherDrawn' | 'scatterDrawn';
type SumKernel = 'addHalf' | 'addBfloat' | 'addQuantized' | 'addSigns' | 'addLevels';
type SparseSumKernel = 'arePlaces' | 'addScattered' | 'addDrawn';
type DenseKernel = Exclude<CodecKernel, SparseKernel | SumKernel | SparseSumKernel | keyof LowRankKernels>;

function measuredDense(k: Kernels, n: number, at: readonly number[]): Readonly<Record<DenseKernel, Measured>> {
  const [w, out, s] = at as [number, number, number];
  const signs = (x: Float32Array): Uint8Array => references.toSigns(x);
  const quantized = (x: Float32Array): Uint8Array => references.quantize(x, BITS, KEY);
  const quantize = (): void => k.quantize(w, out, n, BITS, KEY);
  const toSigns = (): void => k.toSigns(w, out, n);
  const levels = (x: Float32Array): Uint8Array => references.toLevels(x);
  const toLevels = (): void => k.toLevels(w, out, n);
  return {
    largestMagnitude: { streams: 1, run: () => void k.largestMagnitude(w, n), reference: encoder(references.largestMagnitude) },
    toHalf: { streams: 1.5, run: () => k.toHalf(w, out, n, SCALE), reference: encoder((x) => references.toHalf(x, SCALE)) },
    fromHalf: {
      streams: 1.5,
      prepare: () => k.toHalf(w, out, n, SCALE),
      run: () => k.fromHalf(out, s, n, 1 / SCALE),
      reference: decoder(
        (x) => references.toHalf(x, SCALE),
        (halves) => references.fromHalf(halves, 1 / SCALE),
      ),
    },
    toBfloat: { streams: 1.5, run: () => k.toBfloat(w, out, n), reference: encoder(references.toBfloat) },
    fromBfloat: {
      streams: 1.5,
      prepare: () => k.toBfloat(w, out, n),
      run: () => k.fromBfloat(out, s, n),
      reference: decoder(references.toBfloat, references.fromBfloat),
    },
    quantize: { streams: 1.25, run: quantize, reference: encoder(quantized) },
    dequantize: {
      streams: 1.25,
      prepare: quantize,
      run: () => k.dequantize(out, s, n, BITS),
      reference: decoder(quantized, (bytes, m) => references.dequantize(bytes, m, BITS)),
    },
    isQuantized: {
      streams: 0.25,
      prepare: quantize,
      run: () => void k.isQuantized(out, n, BITS),
      reference: decoder(quantized, (bytes, m) => references.isQuantized(bytes, m, BITS)),
    },
    toSigns: { streams: 33 / 32, run: toSigns, reference: encoder(signs) },
    fromSigns: { streams: 33 / 32, prepare: toSigns, run: () => k.fromSigns(out, s, n), reference: decoder(signs, references.fromSigns) },
    isSigns: { streams: 1 / 32, prepare: toSigns, run: () => void k.isSigns(out, n), reference: decoder(signs, references.isSigns) },
    toLevels: { streams: 17 / 16, run: toLevels, reference: encoder(levels) },
    fromLevels: {
      streams: 17 / 16,
      prepare: toLevels,
      run: () => k.fromLevels(out, s, n),
      reference: decoder(levels, references.fromLevels),
    },
    isLevels: { streams: 1 / 16, prepare: toLevels, run: () => void k.isLevels(out, n), reference: decoder(levels, references.isLevels) },
  };
}

function measuredSparse(k: Kernels, n: number, at: readonly number[]): Readonly<Record<SparseKernel, Measured>> {
  const [w, out, s, t] = at as [number, number, number, number];
  const percent = percentOf(n);
  let [least, equal, bytes] = [0, 0, 0];
  const find = (): void => {
    least = k.kthMagnitude(w, n, percent, t);
    equal = k.equalWanted();
  };
  const gather = (): void => {
    bytes = k.gather(w, out, n, percent, least, equal);
  };
  const largest = (): void => {
    find();
    gather();
  };
  const found = (x: Float32Array): { x: Float32Array; least: number } => ({ x, least: references.kthMagnitude(x, percentOf(x.length)) });
  return {
    kthMagnitude: { streams: 1, run: find, reference: encoder((x) => references.kthMagnitude(x, percentOf(x.length))) },
    countFrom: {
      streams: 1,
      prepare: find,
      run: () => void k.countFrom(w, n, least),
      reference: decoder(found, (each) => references.countFrom(each.x, each.least)),
    },
    gather: {
      streams: 1,
      prepare: find,
      run: gather,
      reference: decoder(found, (each) => references.gather(each.x, each.least, 1)),
    },
    topK: {
      streams: 1,
      run: largest,
      reference: encoder(largestOf),
    },
    scatter: {
      streams: 1,
      prepare: largest,
      run: () => void k.scatter(out, bytes, s, n),
      reference: decoder(largestOf, references.scatter),
    },
    clearSent: {
      streams: 3,
      run: () => k.clearSent(out, s, n),
      reference: decoder(
        (x) => x,
        (x) => references.clearSent(x, x),
      ),
    },
    gatherDrawn: {
      streams: 0.02,
      run: () => k.gatherDrawn(w, out, n, percent, KEY, true),
      reference: encoder((x) => references.gatherDrawn(x, percentOf(x.length), KEY, true)),
    },
    scatterDrawn: {
      streams: 1.02,
      prepare: () => k.gatherDrawn(w, out, n, percent, KEY, true),
      run: () => k.scatterDrawn(out, s, n, percent, KEY),
      reference: decoder(
        (x) => references.gatherDrawn(x, percentOf(x.length), KEY, true),
        (drawn, m) => references.scatterDrawn(drawn, m, KEY),
      ),
    },
  };
}

/** Decoders that add. */
function measuredSums(k: Kernels, n: number, at: readonly number[]): Readonly<Record<SumKernel, Measured>> {
  const [w, out, s] = at as [number, number, number];
  return {
    addHalf: {
      streams: 2.5,
      prepare: () => k.toHalf(w, out, n, SCALE),
      run: () => k.addHalf(out, s, n, 1 / SCALE),
      reference: adder(
        (x) => references.toHalf(x, SCALE),
        (dst, halves) => references.addHalf(dst, halves, 1 / SCALE),
      ),
    },
    addBfloat: {
      streams: 2.5,
      prepare: () => k.toBfloat(w, out, n),
      run: () => k.addBfloat(out, s, n),
      reference: adder(references.toBfloat, references.addBfloat),
    },
    addQuantized: {
      streams: 2.25,
      prepare: () => k.quantize(w, out, n, BITS, KEY),
      run: () => k.addQuantized(out, s, n, BITS),
      reference: adder(
        (x) => references.quantize(x, BITS, KEY),
        (dst, bytes) => references.addQuantized(dst, bytes, BITS),
      ),
    },
    addSigns: {
      streams: 65 / 32,
      prepare: () => k.toSigns(w, out, n),
      run: () => k.addSigns(out, s, n),
      reference: adder(references.toSigns, references.addSigns),
    },
    addLevels: {
      streams: 33 / 16,
      prepare: () => k.toLevels(w, out, n),
      run: () => k.addLevels(out, s, n),
      reference: adder(references.toLevels, references.addLevels),
    },
  };
}

function measuredSparseSums(k: Kernels, n: number, at: readonly number[]): Readonly<Record<SparseSumKernel, Measured>> {
  const [w, out, s, t] = at as [number, number, number, number];
  const percent = percentOf(n);
  const valuesEnd = 4 + 4 * percent;
  let bytes = 0;
  const largest = (): void => {
    const least = k.kthMagnitude(w, n, percent, t);
    bytes = k.gather(w, out, n, percent, least, k.equalWanted());
  };
  return {
    arePlaces: {
      streams: 0.01,
      prepare: largest,
      run: () => void k.arePlaces(out + valuesEnd, bytes - valuesEnd, percent, n),
      reference: decoder(largestOf, (all, m) => references.arePlaces(all.subarray(4 + 4 * percentOf(m)), percentOf(m), m)),
    },
    addScattered: {
      streams: 1,
      prepare: largest,
      run: () => k.addScattered(out + 4, out + valuesEnd, bytes - valuesEnd, percent, s, n),
      reference: adder(
        (x) => valuesAndPlaces(largestOf(x), percentOf(x.length)),
        (dst, { values, places }) => references.addScattered(dst, values, places),
      ),
    },
    addDrawn: {
      streams: 1.02,
      prepare: () => k.gatherDrawn(w, out, n, percent, KEY, true),
      run: () => k.addDrawn(out, s, n, percent, KEY),
      reference: adder(
        (x) => references.gatherDrawn(x, percentOf(x.length), KEY, true),
        (dst, drawn) => references.addDrawn(dst, drawn, KEY),
      ),
    },
  };
}

/** A chunk has no more elements, and as many columns as a dense layer may have. */
const CHUNK_ELEMENTS = 1 << 18;
function shapeOf(n: number): lowRank.LowRankShape {
  const columns = Math.min(256, 2 ** Math.floor(Math.log2(n) / 2));
  const rows = Math.floor(Math.min(n, CHUNK_ELEMENTS) / columns);
  return { rows, columns, rank: 2, head: 0, length: rows * columns };
}

function measuredLowRank(k: Kernels, n: number, at: readonly number[]): Readonly<Record<keyof LowRankKernels, Measured>> {
  const [w, out, p, q, scratch] = at as [number, number, number, number, number];
  const { rows, columns, rank, head, length } = shapeOf(n);
  /** Of one chunk again and again: the codec looks for what is not finite first, so the chunk is warm. */
  const each = (run: () => void): void => {
    for (let from = 0; from + length <= n; from += length) run();
  };
  const make = (): void => each(() => k.lowRankTimes(w, q, p, rows, columns, rank, head, length, scratch));
  const factorsOf = (x: Float32Array): { shape: lowRank.LowRankShape; x: Float32Array; p: Float32Array; q: Float32Array } => {
    const shape = shapeOf(x.length);
    const factors = { p: new Float32Array(shape.rows * shape.rank).fill(0.5), q: new Float32Array(shape.columns * shape.rank).fill(0.25) };
    return { shape, x, ...factors };
  };
  return {
    lowRankTimes: { streams: 1, run: make, reference: decoder(factorsOf, (of) => lowRank.lowRankTimes(of.x, of.shape, of.q, of.p)) },
    lowRankTransposedTimes: {
      streams: 1,
      prepare: make,
      run: () => each(() => k.lowRankTransposedTimes(w, p, q, rows, columns, rank, head, length, scratch)),
      reference: decoder(factorsOf, (of) => lowRank.lowRankTransposedTimes(of.x, of.shape, of.p, of.q)),
    },
    lowRankProduct: {
      streams: 1,
      prepare: make,
      run: () => each(() => k.lowRankProduct(p, q, out, rows, columns, rank, head, length, scratch)),
      reference: decoder(factorsOf, (of) => lowRank.lowRankProduct(of.shape, of.p, of.q, of.x)),
    },
    addLowRankProduct: {
      streams: 2,
      prepare: make,
      run: () => each(() => k.addLowRankProduct(p, q, out, rows, columns, rank, head, length, scratch)),
      reference: decoder(factorsOf, (of) => lowRank.addLowRankProduct(of.shape, of.p, of.q, of.x)),
    },
  };
}
