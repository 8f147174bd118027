export * from './augmentation.js';
export type * from './contract.js';
export * from './dataset-error.js';
export * from './dataset.js';
export type { ImageBytes } from './image-split.js';
