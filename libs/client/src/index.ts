export * from './api-error.js';
export { createClient, PacelineClient, type ClientOptions, type FollowOptions, type MetricsQuery } from './client.js';
export * from './schema-types.js';
export type { RetryOptions } from './http.js';
export { DOCUMENTS } from './documents.js';
