/** The rows of a run, whatever they come from: opened by its loader thread, and by nobody else. */
import { isDeepStrictEqual } from 'node:util';
import {
  datasetManifestKey,
  datasetManifestSchema,
  fieldLength,
  type RowFormat,
  type RunData,
  type RunSpec,
  type SplitName,
} from '@paceline/spec';
import { openStore, StorageError, type ObjectStore } from '@paceline/storage';
import { BUILT_IN_TABLES, builtInTable } from './built-in/tables.js';
import type { RowBuffers, RowSplit, RunRows } from './contract.js';
import { DatasetError } from './dataset-error.js';
import { openBuiltIn } from './dataset.js';
import { resolveFeatures } from './features/resolve-features.js';
import { cachedShardSource } from './prepared/disk-cache.js';
import { MemoryBudget } from './prepared/memory-budget.js';
import { openPreparedRows } from './prepared/prepared-rows.js';
import { SeriesExamples } from './series.js';
import { shownRows, type ShownCell } from './prepared/shown-rows.js';
import { codeOf, sha256Of, storeShardSource, type ShardSource } from './prepared/shard-source.js';

/** Where prepared datasets lie and how much of them is kept. Plain data: it goes to the loader thread. */
export interface RunRowsSettings {
  /** The data store: a folder, or the URL of a bucket. */
  readonly dataStore?: string | undefined;
  /** A folder for shards of a bucket; left out, each is fetched whenever it is needed. */
  readonly cacheFolder?: string | undefined;
  readonly cacheBytes?: number | undefined;
  /** What the shards in memory may take. 0: rows are read by position. */
  readonly memoryBytes?: number | undefined;
}

/**
 * Opens the data of a run.
 * @param told hears, once, that the cache is not used any more, and why
 * @throws DatasetError that names the dataset; so do the gathers
 */
export async function openRunRows(
  data: RunData,
  spec: RunSpec,
  settings: RunRowsSettings,
  told?: (reason: string) => void,
): Promise<RunRows> {
  const { source } = data;
  switch (source.kind) {
    case 'built-in':
      return agreed(data, spec, await openBuiltIn({ dataset: source.name, features: spec.features }));
    case 'prepared':
      return agreed(data, spec, await openPrepared(source, spec, settings, told));
  }
}

/** Another release may resolve features in another way: it would train on other numbers without a word. */
async function agreed({ format, trainExamples, heldOutExamples = 0 }: RunData, { dataset }: RunSpec, rows: RunRows): Promise<RunRows> {
  const examples = trainExamples + heldOutExamples;
  const differs = !isDeepStrictEqual(JSON.parse(JSON.stringify(rows.format)), JSON.parse(JSON.stringify(format)))
    ? 'the fields of its rows'
    : rows.train.count !== examples && `its examples to train on (${rows.train.count} here, ${examples} there)`;
  if (!differs) return rows;
  await rows.close();
  throw new DatasetError(
    'DATASET_MALFORMED',
    `dataset ${dataset}`,
    `this worker and the api do not agree on ${differs}: run the same release on both`,
  );
}

/** The columns of a run's data, for people: cells of some rows of a split as they are in the dataset. */
export interface RunTable {
  /** @throws DatasetError */
  cells(split: SplitName, rows: readonly number[], columns: readonly string[]): Promise<ShownCell[][]>;
  /** Where examples of so many rows begin. */
  examples(split: SplitName, span: number): SeriesExamples;
}

/** @returns undefined for images of the release, which have no columns @throws DatasetError */
export async function openRunTable({ source }: RunData, spec: RunSpec, settings: RunRowsSettings): Promise<RunTable | undefined> {
  if (source.kind === 'built-in' && !BUILT_IN_TABLES.includes(source.name)) return undefined;
  const made = source.kind === 'built-in' ? builtInTable(source.name) : await preparedTable(source, spec, settings);
  return {
    cells: (split, rows, columns) => shownRows(made.manifest, split, made.source, rows, columns),
    examples: (split, span) => new SeriesExamples(made.manifest.splits[split]!, span),
  };
}

async function preparedTable(source: PreparedData, spec: RunSpec, settings: RunRowsSettings) {
  const { store, manifest } = await manifestOf(source, spec, settings);
  return { manifest, source: shardsOf(store, source.teamId, settings, undefined) };
}

type PreparedData = Extract<RunData['source'], { kind: 'prepared' }>;

async function openPrepared(
  source: PreparedData,
  spec: RunSpec,
  settings: RunRowsSettings,
  told: ((reason: string) => void) | undefined,
): Promise<RunRows> {
  const name = nameOf(source, spec);
  const { store, manifest } = await manifestOf(source, spec, settings);
  const resolved = resolveFeatures(manifest, spec.features);
  if (!resolved.ok)
    throw new DatasetError('DATASET_MALFORMED', name, resolved.issues.map((issue) => `${issue.path}: ${issue.message}`).join('; '));
  const memory = settings.memoryBytes === undefined ? undefined : new MemoryBudget(settings.memoryBytes);
  const rows = openPreparedRows(manifest, resolved.plan, shardsOf(store, source.teamId, settings, told), memory ? { memory } : {});
  return {
    format: rows.format,
    train: named(name, rows.train),
    evaluation: named(name, rows.evaluation),
    close: () => rows.close(),
  };
}

const nameOf = ({ version }: PreparedData, { dataset }: RunSpec): string => `dataset ${dataset.split('@')[0]}@${version.slice(0, 12)}`;

/** The manifest is held to the version, and resolved as the api has: the plan is a function of both. */
async function manifestOf(source: PreparedData, spec: RunSpec, { dataStore }: RunRowsSettings) {
  const { teamId, version } = source;
  const name = nameOf(source, spec);
  if (dataStore === undefined)
    throw new DatasetError('DATASET_UNREADABLE', name, 'this worker has no data store: set PACELINE_DATA_STORE to what the api has');
  const store = openStore(dataStore);
  const bytes = await store.read(datasetManifestKey(teamId, version)).catch((cause: unknown) => {
    throw new DatasetError(codeOf(cause), name, manifestAway(store, cause), { cause });
  });
  if (sha256Of(bytes) !== version) throw new DatasetError('DATASET_MALFORMED', name, `its manifest in ${store.place} has another hash`);
  return { store, manifest: datasetManifestSchema.parse(JSON.parse(Buffer.from(bytes).toString('utf8'))) };
}

/** A folder is on this machine or mounted: a copy of it would only take room. */
function shardsOf(
  store: ObjectStore,
  teamId: string,
  { cacheFolder, cacheBytes }: RunRowsSettings,
  onOff: ((reason: string) => void) | undefined,
): ShardSource {
  const source = storeShardSource(store, teamId);
  if (store.kind !== 's3' || cacheFolder === undefined || cacheBytes === 0) return source;
  const limits = cacheBytes === undefined ? {} : { maxBytes: cacheBytes };
  return cachedShardSource(source, Object.assign({ folder: cacheFolder }, limits, onOff ? { onOff } : {}));
}

function manifestAway(store: ObjectStore, cause: unknown): string {
  if (cause instanceof StorageError && cause.code === 'NO_SUCH_OBJECT')
    return `it is not in ${store.place}, the data store of this worker: the api has another one, or the dataset was removed; set PACELINE_DATA_STORE of the worker to what the api has`;
  return `its manifest cannot be read from ${store.place}: ${(cause as Error).message}`;
}

/** Errors of a split name its dataset. */
function named(dataset: string, split: RowSplit): RowSplit {
  const withName = (error: unknown): unknown =>
    error instanceof DatasetError
      ? new DatasetError(error.code, `${error.subject} of ${dataset}`, error.message.slice(error.subject.length + 2), { cause: error })
      : error;
  return {
    count: split.count,
    gather(indices, from, to, into) {
      try {
        const waiting = split.gather(indices, from, to, into);
        return waiting?.catch((error: unknown) => {
          throw withName(error);
        });
      } catch (error) {
        throw withName(error);
      }
    },
  };
}

/** Buffers for so many examples. @param memory makes the memory of one: shared between threads, where others read it */
export function rowBuffers(
  { inputs, targets, isWeighted }: RowFormat,
  examples: number,
  memory: (bytes: number) => ArrayBufferLike = (bytes) => new ArrayBuffer(bytes),
): RowBuffers {
  const buffer = (floats: number): Float32Array => new Float32Array(memory(floats * 4));
  return {
    inputs: inputs.map((field) => buffer(examples * fieldLength(field))),
    targets: targets.map((field) => buffer(examples * fieldLength(field))),
    weights: isWeighted ? buffer(examples) : undefined,
  };
}

/** Views of the examples `from` to `to` of buffers. */
export function rowsWithin({ inputs, targets }: RowFormat, rows: RowBuffers, from: number, to: number): RowBuffers {
  const part = (fields: RowFormat['inputs'] | RowFormat['targets'], buffers: readonly Float32Array[]): Float32Array[] =>
    fields.map((field, i) => buffers[i]!.subarray(from * fieldLength(field), to * fieldLength(field)));
  return { inputs: part(inputs, rows.inputs), targets: part(targets, rows.targets), weights: rows.weights?.subarray(from, to) };
}
