export { AUTO_CODECS, measureCodecs, pickCodec, type MeasuredRounds } from './auto.js';
export { codecKey, type Codec } from './codec.js';
export { parameterDeltasOf, type ParameterDeltas } from './parameter-deltas.js';
export { parameterCodecOf, type ParameterCodec } from './parameter-codec.js';
export type { Shapes } from './low-rank.js';
export { LowRankSum } from './low-rank-sum.js';
export { codecOf } from './codecs.js';
export { GradientEncoder, residualFloats, type EncodedChunk, type EncodedVector, type ResidualLoss } from './gradient-encoder.js';
