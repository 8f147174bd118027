export * from './errors.js';
export * from './disk.js';
export {
  checkKey,
  MARKER_KEY as STORE_MARKER_KEY,
  type ObjectBody,
  type ObjectStore,
  type PutOptions,
  type StoredObject,
} from './object-store.js';
export { LocalStore } from './local-store.js';
export { S3Store, type ObjectVersion } from './s3-store.js';
export { parseS3Url, type S3Location } from './s3-location.js';
export { openStore } from './open-store.js';
export * from './safetensors.js';
export * from './safetensors-reader.js';
export { canonicalJson, configHash, sha256Of } from './canonical-json.js';
export {
  checkpointPrefix,
  checkpointsPrefix,
  initialWeightsKey,
  LEDGER_EXCEPTIONS_MAX,
  MANIFEST_VERSION,
  manifestKey,
  manifestSchema,
  predictionsKey,
  predictionsPrefix,
  shardKey,
  unclaimedWeightsPrefix,
  uploadedWeightsPrefix,
  type CheckpointId,
  type Manifest,
  type ShardFile,
} from './manifest.js';
export { isInLineage, type Lineage, type RetentionPolicy } from './retention.js';
export { Checkpoints, type CheckpointSummary, type TensorSource, type WriterTime, type WriteShardOptions } from './checkpoints.js';
export { CheckpointReader } from './checkpoint-reader.js';
