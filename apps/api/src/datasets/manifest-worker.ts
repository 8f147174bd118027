/**
 * The thread that reads a manifest and checks its shards: JSON, schema, canonical text and hash first, then, when the api has found every
 * shard in its tables, their structure. A manifest has up to 32 MiB, and its author is not trusted; the loop of the api goes on meanwhile.
 */
import { parentPort } from 'node:worker_threads';
import {
  datasetManifestSchema,
  datasetShardKey,
  plainIssues,
  SPLITS,
  type DatasetManifest,
  type Features,
  type SpecIssue,
} from '@paceline/spec';
import { canonicalJson, openStore, sha256Of, StorageError, type ObjectStore } from '@paceline/storage';
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
export interface LearnRequest {
  readonly kind: 'learn';
  readonly storeUrl: string;
  readonly teamId: string;
  readonly manifest: DatasetManifest;
  readonly features: Features | undefined;
}
export interface ShardPlace {
  readonly sha256: string;
  readonly bytes: number;
  /** Where the manifest names it: `splits.train.shards.3`. */
  readonly path: string;
}
export interface ReadManifest {
  readonly kind: 'read';
  readonly version: string;
  readonly text: string;
  readonly rows: number;
  readonly trainRows: number;
  /** Rows of the split that a run is measured on by default. */
  readonly evalRows: number;
  readonly bytes: number;
  /** Length of `text` in UTF-8. */
  readonly manifestBytes: number;
  readonly columns: number;
  readonly shards: readonly ShardPlace[];
}
export type ManifestReply =
  | ReadManifest
  | { readonly kind: 'checked' }
  | { readonly kind: 'learned'; readonly features: Features | undefined }
  | { readonly kind: 'issues'; readonly issues: readonly SpecIssue[] }
  | { readonly kind: 'failed'; readonly code: string; readonly message: string };

const CHECKED_AT_ONCE = 8;
const MAX_ISSUES = 20;

let manifest: DatasetManifest | undefined;

function readManifest({ json }: ReadRequest): ManifestReply {
  let value: unknown;
  try {
    value = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(json));
  } catch (error) {
    return { kind: 'issues', issues: [{ path: '(manifest)', message: `is not JSON: ${(error as Error).message.slice(0, 200)}` }] };
  }
  const parsed = datasetManifestSchema.safeParse(value);
  if (!parsed.success) return { kind: 'issues', issues: plainIssues(datasetManifestSchema, value, parsed.error.issues) };
  manifest = parsed.data;
  const shards = placesOf(manifest);
  const sizes = new Map(shards.map(({ sha256, bytes }) => [sha256, bytes]));
  const twice = shards.find(({ sha256, bytes }) => sizes.get(sha256) !== bytes);
  if (twice) return { kind: 'issues', issues: [{ path: twice.path, message: 'is listed twice with different sizes' }] };
  const text = canonicalJson(manifest);
  return {
    kind: 'read',
    version: sha256Of(text),
    text,
    rows: SPLITS.reduce((sum, split) => sum + (manifest!.splits[split]?.rows ?? 0), 0),
    trainRows: manifest.splits.train.rows,
    evalRows: manifest.splits.test?.rows || manifest.splits.validation?.rows || manifest.splits.train.rows,
    manifestBytes: Buffer.byteLength(text),
    bytes: [...sizes.values()].reduce((sum, bytes) => sum + bytes, 0),
    columns: manifest.columns.length,
    shards,
  };
}

const placesOf = ({ splits }: DatasetManifest): ShardPlace[] =>
  SPLITS.flatMap((split) =>
    (splits[split]?.shards ?? []).map(({ sha256, bytes }, i) => ({ sha256, bytes, path: `splits.${split}.shards.${i}` })),
  );

async function learn({ storeUrl, teamId, manifest: of, features }: LearnRequest): Promise<ManifestReply> {
  const { learnVocabularies, storeShardSource } = await import('@paceline/data');
  const learned = await learnVocabularies(of, features, storeShardSource(openStore(storeUrl), teamId));
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

async function answerTo(request: ReadRequest | CheckRequest | LearnRequest): Promise<ManifestReply> {
  if (request.kind === 'read') return readManifest(request);
  return request.kind === 'check' ? checkAll(request) : learn(request);
}

parentPort!.on('message', (request: ReadRequest | CheckRequest | LearnRequest) => {
  void answerTo(request)
    .catch((error: unknown): ManifestReply => ({
      kind: 'failed',
      code: error instanceof StorageError ? error.code : 'INTERNAL',
      message: (error as Error).message,
    }))
    .then((reply) => parentPort!.postMessage(reply));
});
