export * from './api-error.js';
export {
  createClient,
  PacelineClient,
  type ClientOptions,
  type FollowOptions,
  type KeyLimits,
  type MetricsQuery,
  type RunTrace,
} from './client.js';
export * from './types.js';
export { TrainError, type TrainErrorCode } from './training/train-error.js';
export type { StrategyObject, TrainedRun, TrainingSource, Training } from './training/train.js';
export type { TrainOptions } from './training/train-options.js';
export type { Rows, TensorData } from './training/training-data.js';
export type { LayerLike, ModelLike, TensorLike } from './training/tf-shapes.js';
export type { ModelsClient, UploadedWeights } from './models.js';
export type { CommittedVersion, DatasetsClient, ServerImport, ShardSink, Verification } from './datasets.js';
export type { RetryOptions } from './http.js';
// What a program with documents of its own is made of.
export { ApiConnection, newIdempotencyKey, type ConnectionOptions } from './api-connection.js';
export { Backoff } from './backoff.js';
export { follow } from './follow.js';
export type { TypedDocument } from './graphql.js';
export { refusalOf } from './http.js';
export type { SocketState } from './socket.js';
