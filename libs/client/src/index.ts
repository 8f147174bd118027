export * from './api-error.js';
export { createClient, PacelineClient, type ClientOptions, type FollowOptions, type KeyLimits, type MetricsQuery } from './client.js';
export * from './schema-types.js';
export type { ModelsClient, UploadedWeights } from './models.js';
export type { CommittedVersion, DatasetsClient, ServerImport, ShardSink, Verification } from './datasets.js';
export type { RetryOptions } from './http.js';
export { DOCUMENTS } from './documents.js';
