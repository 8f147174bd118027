export * from './digest.js';
export * from './errors.js';
export { computeFans, createInitialValues, initialValues, INITIALIZERS, type InitialValues } from './initializers.js';
export * from './layout.js';
export * from './optimizers.js';
export { CounterStream, normalQuantile, streamKey, type StreamKey } from './random.js';
export * from './sampler.js';
export * from './tree.js';
export * from './layout-hash.js';
