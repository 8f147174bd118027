/** A micro-benchmark of the kernels over arenas, for bench/: how much memory each goes through, beside a plain copy. */
import { crc32 } from 'node:zlib';
import { Arena } from './arena.js';
import { checksumOf } from './checksum.js';
import type { Kernels } from './kernels.js';
import { fillAsGradient, measuredCodecs, type CodecKernel, type Measured, type Reference } from './measure-codecs.js';

/** All but `equalWanted`, which returns a number that `kthMagnitude` has left; `topK` is that and `gather`. */
export type MeasuredKernel = Exclude<keyof Kernels, 'equalWanted'> | CodecKernel;

export interface KernelMeasurement {
  readonly kernel: MeasuredKernel;
  readonly elements: number;
  /** Bytes read and written per call, each stream counted once in each direction. */
  readonly bytesPerCall: number;
  /** 10⁹ bytes per second of processor time. */
  readonly gigabytesPerSecond: number;
  /** The median over the repetitions of: bytes per second of the kernel / bytes per second of a copy just before it. */
  readonly ofCopy: number;
  /** Lowest and highest of all repetitions. */
  readonly lowest: number;
  readonly highest: number;
  /** Beside the same kernel over arrays that stay in the cache, just after it: near 1 is who waits for the unit that divides, and not for memory. */
  readonly ofCached: number;
  /** Vector divisions and square roots per four elements, which one unit does one after the other. */
  readonly divisions: number;
  readonly roots: number;
  /** Codecs: how many times faster than the plain TypeScript of the same, in processor time of an element. */
  readonly ofReference: number | undefined;
}

export interface MeasureOptions {
  /** Float32 elements per array: 16 million are far more than a cache holds. */
  readonly elements?: number;
  readonly repetitions?: number;
  /** A figure is taken over so many at least, in as many calls as that takes: the clock is coarse. */
  readonly elementsPerFigure?: number;
  /** Those that have a reference to compare with. */
  readonly onlyCodecs?: boolean;
}

/** What the kernels are given, with `at` as the arrays: two generations of parameters, three slots, a gradient. */
function measured(k: Kernels, n: number, at: readonly number[]): Readonly<Record<MeasuredKernel, Measured>> {
  const [w, out, s, t, u, g] = at as [number, number, number, number, number, number];
  const rate = 1e-6;
  return {
    add: { streams: 3, run: () => k.add(s, g, n) },
    scaleInto: { streams: 2, run: () => k.scaleInto(out, w, n, 0.5) },
    fill: { streams: 1, run: () => k.fill(out, n, 0.25) },
    copy: { streams: 2, run: () => k.copy(out, w, n) },
    allFinite: { streams: 1, run: () => void k.allFinite(w, n) },
    addFinite: { streams: 3, run: () => void k.addFinite(s, g, n) },
    sumOfSquares: { streams: 1, run: () => void k.sumOfSquares(w, n) },
    checksum: { streams: 1, run: () => void k.checksum(w, n * 4) },
    compensateDelay: { streams: 4, run: () => k.compensateDelay(g, w, out, n, 0.04, 1) },
    sgd: { streams: 3, run: () => k.sgd(w, out, g, n, rate, 1) },
    momentum: { streams: 5, run: () => k.momentum(w, out, s, g, n, rate, 0.9, false, 1) },
    adam: { streams: 7, divisions: 1, roots: 1, run: () => k.adam(w, out, s, t, g, n, rate, 0.9, 0.999, 1e-7, 1) },
    rmsprop: { streams: 7, divisions: 1, roots: 1, run: () => k.rmsprop(w, out, s, 0, t, g, n, rate, 0.9, 0.9, 1e-7, false, 1) },
    adagrad: { streams: 5, divisions: 1, roots: 1, run: () => k.adagrad(w, out, s, g, n, rate, 1e-7, 1) },
    adadelta: { streams: 7, divisions: 1, roots: 2, run: () => k.adadelta(w, out, s, t, g, n, rate, 0.95, 1e-7, 1) },
    amsgrad: { streams: 9, divisions: 1, roots: 1, run: () => k.amsgrad(w, out, s, t, u, g, n, rate, 0.9, 0.999, 1e-7, 1) },
    adamax: { streams: 7, divisions: 1, run: () => k.adamax(w, out, s, t, g, n, rate, 0.1, 0.9, 0.999, 1e-7, 1) },
    nadam: {
      streams: 7,
      divisions: 4,
      roots: 1,
      run: () => k.nadam(w, out, s, t, g, n, rate, 0.9, 0.2, 0.9, 0.1, 0.01, 0.9, 0.999, 1e-7, 1),
    },
    ftrl: { streams: 7, divisions: 3, roots: 2, run: () => k.ftrl(w, out, s, t, g, n, rate, 0, 0, 0, 1) },
    lion: { streams: 5, run: () => k.lion(w, out, s, g, n, rate, 0.9, 0.99, 1) },
    average: { streams: 3, run: () => k.average(s, w, n, 0.99, 0.01) },
    lambStep: { streams: 4, divisions: 3, roots: 1, run: () => k.lambStep(out, s, t, g, n, 0.1, 0.001, 0.9, 0.999, 1e-6, 1) },
    lamb: { streams: 7, divisions: 3, roots: 1, run: () => k.lamb(w, out, s, t, g, n, rate, 0.1, 0.001, 0.9, 0.999, 1e-6, 1) },
    lars: { streams: 5, run: () => k.lars(w, out, s, g, n, rate, 0.9, 1e-4, 1) },
    decayWeights: { streams: 2, run: () => k.decayWeights(w, out, n, 0.004, rate) },
    clamp: { streams: 2, run: () => k.clamp(g, n, 0.5) },
    ...measuredCodecs(k, n, at),
  };
}

/** Six arrays of so many stay in the cache of a core. */
const CACHED_ELEMENTS = 16_384;

/** Processor time of a call: what else the machine does counts less than by the clock. */
function cpuMs(calls: number, run: () => void): number {
  const before = process.cpuUsage();
  for (let i = 0; i < calls; i++) run();
  const { user, system } = process.cpuUsage(before);
  return Math.max(user + system, 1) / 1000 / calls;
}

function middleOf(values: readonly number[]): number {
  return [...values].sort((a, b) => a - b)[values.length >> 1]!;
}

/** Measures every kernel, each time just after a copy of as many elements. Allocates `elements` × 6 float32. */
export function measureKernels(options: MeasureOptions = {}): KernelMeasurement[] {
  const measuring = kernelsInTurn(options);
  for (;;) {
    const { done, value } = measuring.next();
    if (done) return value;
  }
}

/** The same, with a stop after each repetition of a kernel, for something else to be measured in turn with it. */
export function* kernelsInTurn({
  elements = 16 << 20,
  repetitions = 9,
  elementsPerFigure = 8 << 20,
  onlyCodecs = false,
}: MeasureOptions = {}): Generator<MeasuredKernel, KernelMeasurement[]> {
  const bytes = elements * Float32Array.BYTES_PER_ELEMENT;
  const arena = Arena.create({ initialBytes: bytes * 6 + 65_536, maximumBytes: bytes * 6 + 1_048_576 });
  const at = Array.from({ length: 6 }, () => arena.alloc(bytes));
  const { kernels } = arena;
  const cachedElements = Math.min(elements, CACHED_ELEMENTS);
  const cached = measured(kernels, cachedElements, at);
  const [calls, cachedCalls] = [Math.ceil(elementsPerFigure / elements), Math.ceil(elementsPerFigure / cachedElements)];
  const all = Object.entries(measured(kernels, elements, at)).filter(([, { reference }]) => reference || !onlyCodecs);
  const found: KernelMeasurement[] = [];
  for (const [name, { streams, divisions = 0, roots = 0, run, prepare, reference }] of all) {
    const kernel = name as MeasuredKernel;
    for (const pointer of at) arena.f32(pointer, elements).forEach((_, i, values) => (values[i] = ((i % 1000) + 1) / 1000));
    if (reference) fillAsGradient(arena.f32(at[0]!, elements));
    prepare?.();
    for (let i = 0; i < 2; i++) run(); // lets the compiler tier up
    const rows: { readonly own: number; readonly ofCopy: number; readonly ofCached: number }[] = [];
    for (let repetition = 0; repetition < repetitions; repetition++) {
      const copy = cpuMs(calls, () => kernels.copy(at[4]!, at[3]!, elements));
      prepare?.();
      const own = cpuMs(calls, run);
      cached[kernel].prepare?.();
      const inCache = cpuMs(cachedCalls, cached[kernel].run);
      rows.push({ own, ofCopy: (streams * copy) / (2 * own), ofCached: (inCache / cachedElements) * (elements / own) });
      yield kernel;
    }
    const shares = rows.map(({ ofCopy }) => ofCopy);
    found.push({
      kernel,
      elements,
      bytesPerCall: streams * bytes,
      gigabytesPerSecond: (streams * bytes) / middleOf(rows.map(({ own }) => own)) / 1e6,
      ofCopy: middleOf(shares),
      lowest: Math.min(...shares),
      highest: Math.max(...shares),
      ofCached: middleOf(rows.map(({ ofCached }) => ofCached)),
      divisions,
      roots,
      ofReference: reference && timesFaster(reference, middleOf(rows.map(({ own }) => own)) / elements, elements),
    });
  }
  return found;
}

/** The references take long, and as long for each element however many there are. */
const REFERENCE_ELEMENTS = 1 << 18;
const REFERENCE_RUNS = 3;

/** @param ownMs of an element */
function timesFaster(reference: Reference, ownMs: number, elements: number): number {
  const few = Math.min(elements, REFERENCE_ELEMENTS);
  const run = reference(few);
  run();
  return middleOf(Array.from({ length: REFERENCE_RUNS }, () => cpuMs(1, run))) / few / ownMs;
}

export interface ChecksumMeasurement {
  readonly way: 'in an arena' | 'through the window' | 'CRC-32 of zlib' | 'a copy';
  /** 10⁹ bytes summed per second of processor time: of memory far larger than a cache, and of one chunk again and again. */
  readonly fromMemory: number;
  readonly ofOneChunk: number;
}

const CHUNK_BYTES = 1 << 20;

/** Measures the ways to take a checksum. */
export function measureChecksums({
  bytes = 64 << 20,
  repetitions = 9,
}: { bytes?: number; repetitions?: number } = {}): ChecksumMeasurement[] {
  const arena = Arena.create({ initialBytes: 2 * bytes + 65_536, maximumBytes: 2 * bytes + 1_048_576 });
  const [from, to] = [arena.alloc(bytes), arena.alloc(bytes)];
  const inside = arena.bytes(from, bytes).fill(7);
  const outside = new Uint8Array(new SharedArrayBuffer(bytes)).fill(7);
  const ways: Record<ChecksumMeasurement['way'], (size: number) => void> = {
    'in an arena': (size) => void checksumOf(inside.subarray(0, size)),
    'through the window': (size) => void checksumOf(outside.subarray(0, size)),
    'CRC-32 of zlib': (size) => void crc32(outside.subarray(0, size)),
    'a copy': (size) => arena.kernels.copy(to, from, size / 4),
  };
  const rateOf = (run: (size: number) => void, size: number): number => {
    for (let i = 0; i < 3; i++) run(size);
    const calls = Math.ceil(bytes / size);
    return size / middleOf(Array.from({ length: repetitions }, () => cpuMs(calls, () => run(size)))) / 1e6;
  };
  return Object.entries(ways).map(([way, run]) => ({
    way: way as ChecksumMeasurement['way'],
    fromMemory: rateOf(run, bytes),
    ofOneChunk: rateOf(run, Math.min(CHUNK_BYTES, bytes)),
  }));
}
