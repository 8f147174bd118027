/**
 * The training kernels over a plain (not shared) WebAssembly memory that somebody else owns: the heap of the tf.js wasm backend.
 * The module has no data of its own and allocates nothing; whoever calls it names every byte that it may touch.
 */
import { readFileSync } from 'node:fs';
import { setFlagsFromString } from 'node:v8';
import { KernelsMissingError } from './kernels.js';
import { webAssembly, type CompiledModule, type PlainMemory } from './webassembly.js';

/**
 * Addresses are byte offsets into the memory, strides and names with Bytes are bytes, counts are float32 elements. Described with shapes in
 * assembly/training. Equal inputs give equal bits in every process with the same variant of the module.
 */
export interface TrainingKernels {
  tabulate(table: number, base: number, stride: number, n: number): void;
  tabulateWindows(
    table: number,
    base: number,
    images: number,
    rows: number,
    columns: number,
    imageStride: number,
    rowStride: number,
    columnStride: number,
  ): void;
  packBias(bias: number, n: number, packed: number, panelBytes: number): void;
  packPlain(b: number, stride: number, k: number, n: number, packed: number, panelBytes: number): void;
  packTransposed(b: number, stride: number, k: number, n: number, packed: number, panelBytes: number): void;
  multiplyRows(
    table: number,
    m: number,
    offset: number,
    k: number,
    packed: number,
    n: number,
    c: number,
    ldc: number,
    mode: ProductMode,
    edge: number,
  ): void;
  multiplyWindows(
    table: number,
    m: number,
    runs: number,
    run: number,
    jump: number,
    packed: number,
    n: number,
    c: number,
    ldc: number,
    relu: number,
    edge: number,
  ): void;
  multiplyPooledWindows(
    table: number,
    m: number,
    right: number,
    below: number,
    runs: number,
    run: number,
    jump: number,
    packed: number,
    n: number,
    y: number,
    places: number,
    relu: number,
    tile: number,
    edge: number,
  ): void;
  multiplyColumns(
    table: number,
    k: number,
    offset: number,
    m: number,
    packed: number,
    n: number,
    c: number,
    ldc: number,
    mode: ProductMode,
    tile: number,
    edge: number,
  ): void;
  spreadWindows(
    table: number,
    dy: number,
    p: number,
    q: number,
    depth: number,
    packed: number,
    cellBytes: number,
    filterH: number,
    filterW: number,
    dx: number,
    rowBytes: number,
    n: number,
    strideH: number,
    strideW: number,
    edge: number,
  ): void;
  countNonZero(x: number, n: number): number;
  isFinite(x: number, n: number): number;
  listRows(a: number, stride: number, rows: number, k: number, step: number, entries: number, starts: number): void;
  listColumns(aTable: number, offset: number, rows: number, columns: number, bTable: number, entries: number, starts: number): void;
  multiplyListed(starts: number, m: number, base: number, n: number, begin: number, c: number, ldc: number): void;
  multiplyListedPanels(
    starts: number,
    m: number,
    b: number,
    ldb: number,
    k: number,
    n: number,
    panel: number,
    begin: number,
    c: number,
    ldc: number,
  ): void;
  listWindows(
    x: number,
    rowBytes: number,
    h: number,
    run: number,
    q: number,
    step: number,
    strideH: number,
    t: number,
    pixel: number,
    entries: number,
    starts: number,
  ): void;
  multiplyListedWindows(
    starts: number,
    run: number,
    strideH: number,
    t: number,
    filterH: number,
    from: number,
    rows: number,
    b: number,
    rowBytes: number,
    n: number,
    begin: number,
    c: number,
  ): void;
  spreadListed(
    starts: number,
    p: number,
    q: number,
    filter: number,
    cellBytes: number,
    filterH: number,
    filterW: number,
    dx: number,
    rowBytes: number,
    n: number,
    strideH: number,
    strideW: number,
  ): void;
  listPixels(dy: number, p: number, q: number, k: number, step: number, cellBytes: number, entries: number, starts: number): void;
  gatherListed(
    starts: number,
    p: number,
    q: number,
    filter: number,
    cellBytes: number,
    filterH: number,
    filterW: number,
    dx: number,
    h: number,
    w: number,
    n: number,
    table: number,
  ): void;
  transpose(from: number, rows: number, columns: number, to: number): void;
  relu(x: number, y: number, n: number): void;
  reluGradient(dy: number, y: number, dz: number, n: number): void;
  sumRows(x: number, rows: number, columns: number, out: number): void;
  addSegments(x: number, ids: number, rows: number, width: number, segments: number, out: number): void;
  copyRows(from: number, fromStride: number, to: number, toStride: number, rows: number, bytes: number): void;
  addRows(from: number, fromStride: number, to: number, toStride: number, rows: number, n: number): void;
  fillZero(to: number, bytes: number): void;
  maxPoolGradient(x: number, dy: number, dx: number, ...window: PoolWindow): void;
  averagePoolGradient(dy: number, dx: number, ...window: PoolWindow): void;
  maxPool(x: number, y: number, places: number, ...window: InnerWindow): void;
  maxUnpool(dy: number, places: number, dx: number, ...window: InnerWindow): void;
  depthwiseGradients(x: number, filter: number, dy: number, dx: number, dFilter: number, ...window: DepthwiseWindow): void;
  moments(x: number, rows: number, channels: number, mean: number, variance: number): void;
  normalise(x: number, y: number, rows: number, channels: number, mean: number, scale: number, gamma: number, beta: number): void;
  normaliseSums(x: number, dy: number, rows: number, channels: number, mean: number, scale: number, dGamma: number, dBeta: number): void;
  normaliseGradient(
    x: number,
    dy: number,
    dx: number,
    rows: number,
    channels: number,
    mean: number,
    scale: number,
    gamma: number,
    dGamma: number,
    dBeta: number,
  ): void;
  softmaxRows(x: number, rows: number, columns: number, scale: number, causal: number): void;
  softmaxRowsGradient(p: number, dp: number, rows: number, columns: number, scale: number, causal: number): void;
  layerNorm(x: number, y: number, rows: number, width: number, gamma: number, beta: number, epsilon: number, moments: number): void;
  layerNormGradient(
    x: number,
    dy: number,
    dx: number,
    rows: number,
    width: number,
    gamma: number,
    moments: number,
    dGamma: number,
    dBeta: number,
    run: number,
  ): void;
  gelu(x: number, y: number, n: number): void;
  geluGradient(x: number, dy: number, dx: number, n: number): void;
  lstmForward(gates: number, before: number, c: number, h: number, batch: number, units: number, hard: number): void;
  lstmBackward(
    gates: number,
    before: number,
    c: number,
    dh: number,
    dc: number,
    dz: number,
    batch: number,
    units: number,
    hard: number,
  ): void;
  gruForward(x: number, inner: number, before: number, h: number, batch: number, units: number, hard: number): void;
  gruBackward(
    gates: number,
    inner: number,
    before: number,
    dh: number,
    dx: number,
    dInner: number,
    batch: number,
    units: number,
    hard: number,
  ): void;
}

/** How a product begins. */
export enum ProductMode {
  /** C = A·B + bias */
  Bias = 0,
  /** C += A·B */
  Add = 1,
}

/** Scratch of the products: for the last columns of C, and for a packed tile of a transposed A, or two of windows that are pooled, per k. */
export const EDGE_BYTES = 192;
export const TILE_BYTES_PER_K = 16;
export const POOLED_TILE_BYTES_PER_K = 32;
/** A row of the panel that a product with lists copies B to. */
export const LISTED_ROW_BYTES = 64;

/** How a window goes over images [images, h, w, c] to outputs [images, p, q, c]. */
export type PoolWindow = [
  images: number,
  h: number,
  w: number,
  c: number,
  p: number,
  q: number,
  filterH: number,
  filterW: number,
  strideH: number,
  strideW: number,
  top: number,
  left: number,
];

/** The same where no window reaches over a border. */
export type InnerWindow = PoolWindow extends [...infer Inner, top: number, left: number] ? Inner : never;

export type DepthwiseWindow = [
  images: number,
  h: number,
  w: number,
  c: number,
  multiplier: number,
  p: number,
  q: number,
  filterH: number,
  filterW: number,
  strideH: number,
  strideW: number,
  top: number,
  left: number,
];

/** plain: one rounding per operation, the same on every machine. relaxed: fused multiply-add where the processor has it. */
export type TrainingVariant = 'plain' | 'relaxed';

/** v128.const of four times the same float32, by its bytes, the lowest first. */
const splat = (...float32: readonly number[]): number[] => [0xfd, 0x0c, ...float32, ...float32, ...float32, ...float32];
const ONE_AND_A_BIT = splat(0x00, 0x08, 0x80, 0x3f); // 1 + 2⁻¹²

/**
 * `probe(): f32` = f32x4.relaxed_madd(1 + 2⁻¹², 1 + 2⁻¹², −(1 + 2⁻¹¹)), lane 0: 2⁻²⁴ where the product is not rounded, 0 where it is.
 * Sections: types, functions, exports, code (WebAssembly core specification, chapter 5).
 */
// oxfmt-ignore
const RELAXED_PROBE = Uint8Array.of(0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 0x7d, 3, 2, 1, 0, 7, 9, 1, 5, 112, 114, 111, 98, 101, 0, 0,
  10, 64, 1, 62, 0, ...ONE_AND_A_BIT, ...ONE_AND_A_BIT, ...splat(0x00, 0x10, 0x80, 0xbf), 0xfd, 0x85, 0x02, 0xfd, 0x1f, 0, 0x0b);

let fuses: boolean | undefined;

/**
 * Whether relaxed SIMD is here (Node 22 on; before it V8 has it behind a flag, which is switched on) and multiplies and adds with one
 * rounding (processors of x86-64-v3 and arm64). Without that the kernels `relaxed` would compute the bits of `plain`.
 */
export function fusesMultiplyAdd(): boolean {
  fuses ??= probe();
  return fuses;
}

function probe(): boolean {
  if (!webAssembly.validate(RELAXED_PROBE)) setFlagsFromString('--experimental-wasm-relaxed-simd');
  if (!webAssembly.validate(RELAXED_PROBE)) return false;
  const { exports } = new webAssembly.Instance(new webAssembly.Module(RELAXED_PROBE), {});
  return (exports as { probe(): number }).probe() !== 0;
}

const FILES: Readonly<Record<TrainingVariant, string>> = { plain: 'training.wasm', relaxed: 'training-relaxed.wasm' };
const compiled = new Map<TrainingVariant, CompiledModule>();

/** The compiled module, for those who look into it (tests). */
export function readTrainingModule(variant: TrainingVariant): Uint8Array {
  try {
    return readFileSync(new URL(`../dist/${FILES[variant]}`, import.meta.url));
  } catch (cause) {
    throw new KernelsMissingError(`libs/kernels/dist/${FILES[variant]}`, cause);
  }
}

/**
 * The training kernels over `memory`.
 * @throws KernelsMissingError when the package was not built; WebAssembly.CompileError for `relaxed` where Node has no relaxed SIMD
 */
export function instantiateTrainingKernels(memory: PlainMemory, variant: TrainingVariant = 'plain'): TrainingKernels {
  let module = compiled.get(variant);
  if (!module) compiled.set(variant, (module = new webAssembly.Module(readTrainingModule(variant))));
  return new webAssembly.Instance(module, { env: { memory } }).exports as TrainingKernels;
}
