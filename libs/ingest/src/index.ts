export * from './import-dataset.js';
export * from './ingest-error.js';
export {
  COLUMN_TYPES,
  DEFAULT_LIMITS,
  FORMATS,
  MISSING_POLICIES,
  type Access,
  type ColumnType,
  type FormatName,
  type ImportOptions,
  type IngestLimits,
  type MissingPolicy,
  type Source,
} from './options.js';
export { DECIMAL_SIGNS, type DecimalSign } from './number-text.js';
export type { ShardSink } from './shard-writer.js';
export type { Fractions } from './splits.js';
export { readRows, type ReadRows, type ReadRowsOptions } from './read-rows.js';
