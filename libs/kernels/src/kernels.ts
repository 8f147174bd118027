/**
 * The compiled kernels bound to one memory. The module is compiled once per thread; an instance per memory is a few
 * kilobytes. `dist/kernels.wasm` is found from src/ (tests) and from dist/ (what is installed) alike.
 */
import { readFileSync } from 'node:fs';
import { SECRET } from './checksum-reference.js';
import type { CodecKernels } from './codec-kernels.js';
import type { LowRankKernels } from './low-rank-kernels.js';
import type { OptimizerKernels } from './optimizer-kernels.js';
import { webAssembly, type CompiledModule, type SharedMemory } from './webassembly.js';

/**
 * Kernels over one shared memory. Pointers are byte offsets (64-byte alignment is fastest, none is required), counts are
 * float32 elements. Source and destination are equal or do not overlap. All arithmetic is float32 without fused
 * multiply-add, so results are bitwise those of `references` (bits of a NaN apart). A range outside of the memory throws
 * WebAssembly.RuntimeError.
 */
export interface Kernels extends OptimizerKernels, CodecKernels, LowRankKernels {
  /** dst += src. IEEE signs: −0 + +0 = +0, −0 + −0 = −0. */
  add(dst: number, src: number, n: number): void;
  /** dst = src · factor (rounded to float32 first); dst may be src. */
  scaleInto(dst: number, src: number, n: number, factor: number): void;
  fill(dst: number, n: number, value: number): void;
  /** dst = src, overlapping or not. */
  copy(dst: number, src: number, n: number): void;
  /** False when an element is NaN or infinite. */
  allFinite(src: number, n: number): boolean;
  /** dst += src, as `add` does it; false when a sum is NaN or infinite. */
  addFinite(dst: number, src: number, n: number): boolean;
  /** Σ x², accumulated in float64 over 8 lanes in a fixed order. */
  sumOfSquares(src: number, n: number): number;
  /** XXH3-64 with seed 0 of so many bytes, cut to its low 32 bits. */
  checksum(src: number, byteLength: number): number;
  /** DC-ASGD (Zheng et al. 2017), in place: with g = grad · gradScale, grad = g + ((lambda · g) · g) · (now − then). */
  compensateDelay(grad: number, now: number, then: number, n: number, lambda: number, gradScale: number): void;
  /** w = w − (grad · gradScale) · learningRate; paramIn may be paramOut, here and below. */
  sgd(paramIn: number, paramOut: number, grad: number, n: number, learningRate: number, gradScale: number): void;
  /** v = momentum · v − learningRate · g, with g = grad · gradScale; w += v, or with nesterov w += momentum · v − learningRate · g. */
  momentum(
    paramIn: number,
    paramOut: number,
    velocity: number,
    grad: number,
    n: number,
    learningRate: number,
    momentum: number,
    nesterov: boolean,
    gradScale: number,
  ): void;
  /** m += (g − m)(1 − beta1); v += (g² − v)(1 − beta2); w −= m · stepSize / (√v + epsilon). */
  adam(
    paramIn: number,
    paramOut: number,
    m: number,
    v: number,
    grad: number,
    n: number,
    stepSize: number,
    beta1: number,
    beta2: number,
    epsilon: number,
    gradScale: number,
  ): void;
  /**
   * s = rho · s + (1 − rho) · g²; centered: a = rho · a + (1 − rho) · g; step = learningRate · g / √(s (− a²) + epsilon); with momentum
   * u = momentum · u + step and w −= u, else w −= step. `mean` and `velocity` are not touched where they are not asked for.
   */
  rmsprop(
    paramIn: number,
    paramOut: number,
    squares: number,
    mean: number,
    velocity: number,
    grad: number,
    n: number,
    learningRate: number,
    rho: number,
    momentum: number,
    epsilon: number,
    centered: boolean,
    gradScale: number,
  ): void;
}

/** The kernels have not been compiled: a fresh clone was not built. */
export class KernelsMissingError extends Error {
  override readonly name = 'KernelsMissingError';
  readonly code = 'KERNELS_MISSING';
  constructor(path: string, cause: unknown) {
    super(`The compiled kernels (${path}) cannot be read: run "npm run build" first.`, { cause });
  }
}

/** A checksum of more than 240 bytes piece by piece: begin or load; blocks of 1,024 bytes, as long as a byte follows them; save, or end. */
export interface ChecksumParts extends Pick<Kernels, 'checksum'> {
  checksumBegin(): void;
  checksumBlocks(src: number, blocks: number): void;
  /** @param rest bytes from `src` on, 1 to 1,024; the 64 that end there are read */
  checksumEnd(src: number, rest: number, byteLength: number): number;
  /** The accumulators, 64 bytes. */
  checksumSave(dst: number): void;
  checksumLoad(src: number): void;
}

/** Exports of the module: booleans are integers there, and integers are signed. */
interface CompiledKernels
  extends Omit<Kernels, 'allFinite' | 'addFinite' | 'scatter' | 'arePlaces' | 'isQuantized' | 'isSigns' | 'isLevels'>, ChecksumParts {
  allFinite(src: number, n: number): number;
  addFinite(dst: number, src: number, n: number): number;
  scatter(src: number, byteLength: number, dst: number, n: number): number;
  arePlaces(places: number, byteLength: number, count: number, n: number): number;
  isQuantized(src: number, n: number, bits: number): number;
  isSigns(src: number, n: number): number;
  isLevels(src: number, n: number): number;
  useSecret(at: number): void;
}

let compiled: CompiledModule | undefined;

function compile(): CompiledModule {
  const url = new URL('../dist/kernels.wasm', import.meta.url);
  let bytes: Buffer;
  try {
    bytes = readFileSync(url);
  } catch (cause) {
    throw new KernelsMissingError('libs/kernels/dist/kernels.wasm', cause);
  }
  return new webAssembly.Module(bytes);
}

/** @param secretAt where 192 bytes belong to the kernels: the secret of XXH3 lies there */
function instantiate(memory: SharedMemory, secretAt: number): CompiledKernels {
  compiled ??= compile();
  const exports = new webAssembly.Instance(compiled, { env: { memory } }).exports as CompiledKernels;
  // Each thread writes the same bytes.
  new Uint8Array(memory.buffer).set(SECRET, secretAt);
  exports.useSecret(secretAt);
  return exports;
}

/**
 * Kernels over `memory`, which is shared and less than 4 GiB. They own its first 192 bytes, or those at `secretAt`.
 * @throws KernelsMissingError when the package was not built
 */
export function instantiateKernels(memory: SharedMemory, secretAt = 0): Kernels {
  const { useSecret, checksumBegin, checksumBlocks, checksumEnd, checksumSave, checksumLoad, ...kernels } = instantiate(memory, secretAt);
  // The exports themselves, not wrappers: JavaScript's ToInt32 makes 0/1 of booleans at the boundary.
  return Object.freeze({
    ...kernels,
    allFinite: (src: number, n: number) => kernels.allFinite(src, n) !== 0,
    addFinite: (dst: number, src: number, n: number) => kernels.addFinite(dst, src, n) !== 0,
    checksum: (src: number, byteLength: number) => kernels.checksum(src, byteLength) >>> 0,
    isQuantized: (src: number, n: number, bits: number) => kernels.isQuantized(src, n, bits) !== 0,
    isSigns: (src: number, n: number) => kernels.isSigns(src, n) !== 0,
    isLevels: (src: number, n: number) => kernels.isLevels(src, n) !== 0,
    scatter: (src: number, byteLength: number, dst: number, n: number) => kernels.scatter(src, byteLength, dst, n) !== 0,
    arePlaces: (places: number, byteLength: number, count: number, n: number) => kernels.arePlaces(places, byteLength, count, n) !== 0,
  });
}

/** What sums in pieces over `memory`, whose first 192 bytes it owns. */
export const instantiateChecksumParts = (memory: SharedMemory): ChecksumParts => instantiate(memory, 0);
