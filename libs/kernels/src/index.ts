export { Arena, ArenaFullError, ARENA_MAXIMUM_BYTES, type ArenaOptions } from './arena.js';
export { checksumOf, ChecksumStream, isSummedInPlace, sharedBuffer } from './checksum.js';
export { levelBytes, quantizedBytes, signBytes } from './codec-kernels.js';
export { lowRankScratchBytes } from './low-rank-kernels.js';
export type { LowRankShape } from './low-rank-references.js';
export { KernelsMissingError, type Kernels } from './kernels.js';
export {
  kernelsInTurn,
  measureChecksums,
  measureKernels,
  type ChecksumMeasurement,
  type KernelMeasurement,
  type MeasuredKernel,
  type MeasureOptions,
} from './measure.js';
export * as references from './references.js';
export {
  EDGE_BYTES,
  fusesMultiplyAdd,
  instantiateTrainingKernels,
  ProductMode,
  readTrainingModule,
  LISTED_ROW_BYTES,
  POOLED_TILE_BYTES_PER_K,
  TILE_BYTES_PER_K,
  type DepthwiseWindow,
  type InnerWindow,
  type PoolWindow,
  type TrainingKernels,
  type TrainingVariant,
} from './training.js';
export type { PlainMemory, SharedMemory } from './webassembly.js';
export { normal } from './normal.js';
