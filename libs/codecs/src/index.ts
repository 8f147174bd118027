export { codecKey, type Codec } from './codec.js';
export { codecOf } from './codecs.js';
export { GradientEncoder, type EncodedChunk, type EncodedVector } from './gradient-encoder.js';
