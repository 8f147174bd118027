/**
 * The process that reads a manifest and checks its shards: JSON, schema, canonical text and hash first, then, when the api has found every
 * shard in its tables, their structure. It also answers questions about a manifest that lies in the store. A manifest has up to 32 MiB, and its author
 * is not trusted: the api itself never holds one that is large, and its loop goes on meanwhile.
 */
import {
  DATASET_LIMITS,
  datasetManifestKey,
  givenManifestSchema,
  datasetShardKey,
  plainIssues,
  SPLITS,
  type DatasetManifest,
  type Features,
  type SpecIssue,
} from '@paceline/spec';
import { canonicalJson, openStore, sha256Of, StorageError, type ObjectStore } from '@paceline/storage';
import { Fault, type FaultCode } from '../fault.js';
import { ANSWERS, HELD_BYTES, PROCESS_HEADER_BYTES, type Asked, type Question } from './manifest-questions.js';
import { checkShard, ShardFault } from './shard-structure.js';

export interface ReadRequest {
  readonly kind: 'read';
  readonly json: Uint8Array;
}
export interface CheckRequest {
  readonly kind: 'check';
  readonly storeUrl: string;
  readonly teamId: string;
}
/** The manifest that was read goes into the store. */
export interface PutRequest {
  readonly kind: 'put';
  readonly storeUrl: string;
  readonly teamId: string;
}
export interface AnswerRequest {
  readonly kind: 'answer';
  readonly storeUrl: string;
  readonly teamId: string;
  readonly version: string;
  readonly question: Question;
  readonly asked: Asked<Question>;
}
export interface LearnRequest {
  readonly kind: 'learn';
  readonly storeUrl: string;
  readonly teamId: string;
  readonly version: string;
  readonly features: Features | undefined;
}
export type ManifestRequest = ReadRequest | CheckRequest | PutRequest | AnswerRequest | LearnRequest;
export interface ShardPlace {
  readonly sha256: string;
  readonly bytes: number;
  /** Where the manifest names it first: `splits.train.shards.3`. */
  readonly path: string;
}
export interface ReadManifest {
  readonly kind: 'read';
  readonly version: string;
  /** The canonical text, unless it is large: then it lies in the store alone. */
  readonly text: string | undefined;
  readonly rows: number;
  readonly trainRows: number;
  /** Rows of the split that a run is measured on by default. */
  readonly evalRows: number;
  readonly bytes: number;
  /** Length of the canonical text in UTF-8. */
  readonly manifestBytes: number;
  readonly columns: number;
  /** Each once, however often it is named. */
  readonly shards: readonly ShardPlace[];
}
export type ManifestReply =
  | ReadManifest
  | { readonly kind: 'checked' }
  | { readonly kind: 'stored' }
  | { readonly kind: 'answered'; readonly answer: unknown }
  | { readonly kind: 'refused'; readonly code: FaultCode; readonly message: string }
  | { readonly kind: 'learned'; readonly features: Features | undefined }
  | { readonly kind: 'issues'; readonly issues: readonly SpecIssue[] }
  | { readonly kind: 'failed'; readonly code: string; readonly message: string };

const CHECKED_AT_ONCE = 8;
const MAX_ISSUES = 20;

let manifest: DatasetManifest | undefined;
let canonical: { readonly text: string; readonly version: string } | undefined;

function readManifest({ json }: ReadRequest): ManifestReply {
  let value: unknown;
  try {
    value = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(json));
  } catch (error) {
    return { kind: 'issues', issues: [{ path: '(manifest)', message: `is not JSON: ${(error as Error).message.slice(0, 200)}` }] };
  }
  const parsed = givenManifestSchema.safeParse(value);
  if (!parsed.success) return { kind: 'issues', issues: plainIssues(givenManifestSchema, value, parsed.error.issues) };
  manifest = parsed.data;
  const shards = new Map<string, ShardPlace>();
  for (const place of placesOf(manifest)) {
    const known = shards.get(place.sha256);
    if (known === undefined) shards.set(place.sha256, place);
    else if (known.bytes !== place.bytes)
      return { kind: 'issues', issues: [{ path: place.path, message: 'is listed twice with different sizes' }] };
  }
  const text = canonicalJson(manifest);
  const manifestBytes = Buffer.byteLength(text);
  if (manifestBytes > DATASET_LIMITS.manifestBytes)
    return {
      kind: 'issues',
      issues: [{ path: '(manifest)', message: `has ${manifestBytes} bytes; at most ${DATASET_LIMITS.manifestBytes}` }],
    };
  canonical = { text, version: sha256Of(text) };
  return {
    kind: 'read',
    version: canonical.version,
    text: manifestBytes <= HELD_BYTES ? text : undefined,
    rows: SPLITS.reduce((sum, split) => sum + (manifest!.splits[split]?.rows ?? 0), 0),
    trainRows: manifest.splits.train.rows,
    evalRows: manifest.splits.test?.rows || manifest.splits.validation?.rows || manifest.splits.train.rows,
    manifestBytes,
    bytes: [...shards.values()].reduce((sum, { bytes }) => sum + bytes, 0),
    columns: manifest.columns.length,
    shards: [...shards.values()],
  };
}

function* placesOf({ splits }: DatasetManifest): Generator<ShardPlace, void, void> {
  for (const split of SPLITS)
    for (const [i, { sha256, bytes }] of (splits[split]?.shards ?? []).entries())
      yield { sha256, bytes, path: `splits.${split}.shards.${i}` };
}

async function putManifest({ storeUrl, teamId }: PutRequest): Promise<ManifestReply> {
  const { text, version } = canonical!;
  await openStore(storeUrl).put(datasetManifestKey(teamId, version), [Buffer.from(text)]);
  return { kind: 'stored' };
}

async function storedManifest(store: ObjectStore, teamId: string, version: string): Promise<DatasetManifest> {
  const bytes = await store.read(datasetManifestKey(teamId, version), 0, DATASET_LIMITS.manifestBytes);
  return JSON.parse(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('utf8')) as DatasetManifest;
}

async function answer({ storeUrl, teamId, version, question, asked }: AnswerRequest): Promise<ManifestReply> {
  const store = openStore(storeUrl);
  const found = await storedManifest(store, teamId, version);
  const answering = ANSWERS[question] as (of: DatasetManifest, asked: Asked<Question>) => ReturnType<(typeof ANSWERS)[Question]>;
  const finish = await answering(found, asked);
  return { kind: 'answered', answer: await finish({ teamId, headerBytes: PROCESS_HEADER_BYTES, use: (work) => work(store) }) };
}

async function learn({ storeUrl, teamId, version, features }: LearnRequest): Promise<ManifestReply> {
  const { learnVocabularies, storeShardSource } = await import('@paceline/data');
  const store = openStore(storeUrl);
  const learned = await learnVocabularies(await storedManifest(store, teamId, version), features, storeShardSource(store, teamId));
  return learned.ok ? { kind: 'learned', features: learned.features } : { kind: 'issues', issues: learned.issues };
}

async function checkAll({ storeUrl, teamId }: CheckRequest): Promise<ManifestReply> {
  const { columns, splits } = manifest!;
  const store = openStore(storeUrl);
  const waiting = SPLITS.flatMap((split) =>
    (splits[split]?.shards ?? []).map((shard, i) => ({ shard, path: `splits.${split}.shards.${i}` })),
  );
  // A shard may be named many times; it is read once for each number of rows that is claimed, and all but one of those are wrong.
  const found = new Map<string, Promise<string | undefined>>();
  const checkOnce = (shard: (typeof waiting)[number]['shard']): Promise<string | undefined> => {
    const key = `${shard.sha256} ${shard.rows}`;
    const known = found.get(key) ?? faultOf(store, teamId, columns, shard);
    found.set(key, known);
    return known;
  };
  const issues: SpecIssue[] = [];
  const next = async (): Promise<void> => {
    for (let one = waiting.shift(); one && issues.length < MAX_ISSUES; one = waiting.shift()) {
      const message = await checkOnce(one.shard);
      if (message !== undefined) issues.push({ path: one.path, message });
    }
  };
  await Promise.all(Array.from({ length: CHECKED_AT_ONCE }, next));
  return issues.length > 0 ? { kind: 'issues', issues } : { kind: 'checked' };
}

async function faultOf(
  store: ObjectStore,
  teamId: string,
  columns: DatasetManifest['columns'],
  { sha256, rows, bytes }: { sha256: string; rows: number; bytes: number },
): Promise<string | undefined> {
  const key = datasetShardKey(teamId, sha256);
  try {
    await checkShard(columns, rows, bytes, (from, to) => store.read(key, from, to));
    return undefined;
  } catch (error) {
    if (error instanceof ShardFault) return error.message;
    if (error instanceof StorageError && error.code === 'SAFETENSORS_INVALID')
      return `is not a complete safetensors file: ${error.message.replace(/^SAFETENSORS_INVALID: /, '')}`;
    throw error;
  }
}

async function answerTo(request: ManifestRequest): Promise<ManifestReply> {
  switch (request.kind) {
    case 'read':
      return readManifest(request);
    case 'check':
      return checkAll(request);
    case 'put':
      return putManifest(request);
    case 'learn':
      return learn(request);
    case 'answer':
      return answer(request);
  }
}

function failure(error: unknown): ManifestReply {
  const { message } = error as Error;
  if (error instanceof Fault) return { kind: 'refused', code: error.code, message };
  return { kind: 'failed', code: error instanceof StorageError ? error.code : 'INTERNAL', message };
}

process.on('message', (request: ManifestRequest) => {
  void answerTo(request)
    .catch(failure)
    .then((reply) => process.send!(reply));
});
process.on('disconnect', () => process.exit(0));
