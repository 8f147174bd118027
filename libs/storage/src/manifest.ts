/**
 * The manifest of a checkpoint: what the run was when it was taken, and the files that hold it. It is written last, and a
 * checkpoint exists when its manifest does.
 *
 * On disk: canonical JSON `{"manifest":{…},"sha256":"…"}`, the hash over the canonical JSON of the manifest. A file that differs in
 * any byte from what its own content is written as is refused, so no flipped bit of it goes unseen.
 */
import { z } from 'zod';
import { LIMITS, MODES } from '@paceline/spec';
import { canonicalJson, sha256Of } from './canonical-json.js';
import { StorageError } from './errors.js';

export const MANIFEST_VERSION = 1;
export const MANIFEST_MAX_BYTES = 64 << 20;
export const LEDGER_EXCEPTIONS_MAX = 10_000;

const count = z.int().min(0);
const sha256 = z.string().regex(/^[0-9a-f]{64}$/);
const name = z.string().min(1).max(300);
const runId = z.string().regex(/^[A-Za-z0-9][A-Za-z0-9-]{0,99}$/);

export const shardFileSchema = z.strictObject({
  server: count,
  key: z.string().min(1).max(900),
  bytes: count,
  sha256,
  /** Names of its tensors, in the order of their data. */
  tensors: z.array(name).max(1_000_000),
});

export const manifestSchema = z.strictObject({
  version: z.literal(MANIFEST_VERSION),
  runId,
  attempt: count,
  /** Generation: rounds that are committed in it. */
  round: count,
  /** The checkpoints that this attempt descends from, oldest first; `runId` where the first one belongs to another run. */
  lineage: z.array(z.strictObject({ runId: runId.optional(), attempt: count, round: count })).max(1000),
  createdAtMs: count,
  servers: z.int().min(1).max(LIMITS.servers),
  replicas: z.int().min(1).max(LIMITS.replicas),
  layoutHash: z.string().min(1).max(128),
  /** Number of chunks in the whole layout. */
  chunks: count,
  configHash: sha256,
  /** `comparableConfig` of the spec: so that a difference can be shown, not only found. */
  config: z.record(z.string(), z.json()),
  mode: z.enum(MODES),
  schedule: z.strictObject({ totalRounds: count, roundsPerEpoch: count }),
  sampler: z.strictObject({ epoch: count, roundInEpoch: count }),
  ledger: z.strictObject({
    examples: count,
    /** Rows that were not trained on, or only by some: skipped rounds, dropped replicas. */
    exceptions: z
      .array(z.strictObject({ round: count, replica: count.optional(), examples: count, why: z.string().max(200) }))
      .max(LEDGER_EXCEPTIONS_MAX),
  }),
  optimizer: z.strictObject({ name: name, slots: z.array(name).max(16) }),
  /** Replicas of which it has what the codec has kept. */
  residuals: z.array(count).max(LIMITS.replicas),
  /** Mean training loss since the checkpoint before; null where there is none. */
  loss: z.number().nullable(),
  reason: z.enum(['cadence', 'best', 'pause', 'final', 'shutdown']),
  /** Decisions of all validations so far (validation-course.ts in libs/hosting). */
  course: z.string().max(262_144).optional(),
  /** True if it is the best generation that was validated so far. */
  isBest: z.literal(true).optional(),
  shards: z.array(shardFileSchema).min(1).max(LIMITS.servers),
});
export type Manifest = z.output<typeof manifestSchema>;
export type ShardFile = z.output<typeof shardFileSchema>;

export interface CheckpointId {
  readonly runId: string;
  readonly attempt: number;
  /** Generation: rounds that are committed in it. */
  readonly round: number;
}

export const checkpointsPrefix = (run: string): string => `runs/${runId.parse(run)}/checkpoints/`;
export const checkpointPrefix = (id: CheckpointId): string => `${checkpointsPrefix(id.runId)}a${id.attempt}-r${id.round}/`;
export const manifestKey = (id: CheckpointId): string => `${checkpointPrefix(id)}manifest.json`;
/** Uploaded weights of a team; without a team, of all teams. */
export const uploadedWeightsPrefix = (team?: string): string => (team === undefined ? 'uploads/' : `uploads/${team}/`);
export const initialWeightsKey = (run: string): string => `runs/${runId.parse(run)}/initial-weights.safetensors`;
/** Notes of initial weights whose run is not there yet: what an api leaves that ends between the two. */
export const unclaimedWeightsPrefix = 'unclaimed-weights/';
/** Predictions of a result on the evaluation split: made at the first look, and made anew if they are gone. */
export const predictionsPrefix = (run: string): string => `runs/${runId.parse(run)}/predictions/`;
export const predictionsKey = (run: string, sha256: string): string => `${predictionsPrefix(run)}${sha256}.json`;
export const shardKey = (id: CheckpointId, server: number, servers: number): string =>
  `${checkpointPrefix(id)}shard-${server}-of-${servers}.safetensors`;

/** The checkpoint that a key belongs to, or undefined when it is no key of one of the run. */
export function idOfKey(run: string, key: string): CheckpointId | undefined {
  const prefix = checkpointsPrefix(run);
  const match = key.startsWith(prefix) ? /^a(0|[1-9]\d{0,14})-r(0|[1-9]\d{0,14})\//.exec(key.slice(prefix.length)) : null;
  return match ? { runId: run, attempt: Number(match[1]), round: Number(match[2]) } : undefined;
}

export function encodeManifest(manifest: Manifest): { bytes: Uint8Array; sha256: string } {
  const hash = sha256Of(canonicalJson(manifest));
  return { bytes: Buffer.from(canonicalJson({ manifest, sha256: hash })), sha256: hash };
}

/**
 * Reads a manifest and holds it to its hash, its schema, its own place and itself.
 * @throws StorageError CHECKPOINT_INVALID
 */
export function decodeManifest(id: CheckpointId, bytes: Uint8Array): { manifest: Manifest; sha256: string } {
  const refuse = (reason: string): never => {
    throw new StorageError('CHECKPOINT_INVALID', `${manifestKey(id)}: ${reason}`);
  };
  let json: unknown;
  let isCanonical = false;
  try {
    const text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
    json = JSON.parse(text);
    isCanonical = canonicalJson(json) === text;
  } catch {
    refuse('it is not JSON in UTF-8');
  }
  const outer = z.strictObject({ manifest: z.unknown(), sha256 }).safeParse(json);
  if (!outer.success || !isCanonical) return refuse('it is not in its canonical form');
  if (sha256Of(canonicalJson(outer.data.manifest)) !== outer.data.sha256) refuse('its hash does not fit its content');
  const { version } = outer.data.manifest as { version?: unknown };
  if (version !== MANIFEST_VERSION) refuse(`it is of version ${String(version)}, this release reads version ${MANIFEST_VERSION}`);
  const parsed = manifestSchema.safeParse(outer.data.manifest);
  if (!parsed.success)
    return refuse(parsed.error.issues.map(({ path, message }) => `${path.join('.')}: ${message}`)[0] ?? 'it does not fit');
  const fault = manifestFault(id, parsed.data);
  if (fault !== undefined) refuse(fault);
  return { manifest: parsed.data, sha256: outer.data.sha256 };
}

/** Finds a contradiction in a manifest that fits the schema. */
export function manifestFault(id: CheckpointId, manifest: Manifest): string | undefined {
  const { servers, shards } = manifest;
  if (manifest.runId !== id.runId || manifest.attempt !== id.attempt || manifest.round !== id.round)
    return `it is of a${manifest.attempt}-r${manifest.round} of run ${manifest.runId}`;
  if (sha256Of(canonicalJson(manifest.config)) !== manifest.configHash) return 'its configHash does not fit its config';
  if (shards.length !== servers) return `it names ${shards.length} files for ${servers} servers`;
  if (new Set(shards.map(({ server }) => server)).size !== servers) return 'it names a server twice';
  const misplaced = shards.find(({ server, key }) => server >= servers || key !== shardKey(id, server, servers));
  if (misplaced) return `it names ${misplaced.key} for server ${misplaced.server}`;
  const names = shards.flatMap(({ tensors }) => tensors);
  if (new Set(names).size !== names.length) return 'it names a tensor twice';
  return undefined;
}
