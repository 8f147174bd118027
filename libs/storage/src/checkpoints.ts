/**
 * Checkpoints in an object store.
 *
 *   every server    writeShard   its tensors, streamed into one safetensors file
 *   coordinator     publish      the manifest that names the files with their hashes, last and only if there is none
 *   anybody         list, open   what is complete; a file's hash is verified before a tensor of it is handed out
 *   coordinator     sweep        manifests first, then files, so that what is half removed is no checkpoint either
 *
 * A checkpoint without a manifest does not exist for anybody. Nothing here is locked: two coordinators of different attempts write under
 * different keys, and of two manifests for one key the first wins.
 *
 * Memory of a write: one tensor, and what the store buffers (nothing locally, one part with S3). Time and sleeping are arguments,
 * for the simulator.
 */
import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises';
import { CheckpointReader } from './checkpoint-reader.js';
import { surveyCheckpoints, type FoundCheckpoint } from './checkpoint-survey.js';
import { StorageError } from './errors.js';
import {
  checkpointPrefix,
  checkpointsPrefix,
  decodeManifest,
  encodeManifest,
  MANIFEST_MAX_BYTES,
  manifestFault,
  manifestKey,
  manifestSchema,
  shardKey,
  type CheckpointId,
  type Manifest,
  type ShardFile,
} from './manifest.js';
import type { ObjectStore } from './object-store.js';
import { chooseForRemoval, compareIds, isInLineage, type Lineage, type RetentionPolicy } from './retention.js';
import { safetensorsHeader, tensorBytes } from './safetensors.js';

export interface TensorSource {
  readonly name: string;
  readonly shape: readonly number[];
  readonly dtype?: 'F32';
  /** Little-endian float32 bytes, asked for when it is this tensor's turn. */
  read(): Uint8Array | Promise<Uint8Array>;
  /** Called once after `read` when the bytes are not needed any more, also when the write fails. */
  done?(): void;
}

export interface WriteShardOptions {
  /** Servers of the attempt: part of the file's name. */
  readonly servers: number;
  readonly signal?: AbortSignal;
  /** Writes no faster than this, so that training keeps its disk and its processor. */
  readonly bytesPerSecond?: number;
}

export interface CheckpointSummary extends CheckpointId {
  readonly key: string;
  /** Hash of the manifest. */
  readonly sha256: string;
  /** Size of all shard files and the manifest. */
  readonly bytes: number;
  readonly createdAtMs: number;
  readonly loss: number | null;
  readonly reason: Manifest['reason'];
  readonly servers: number;
  readonly lineage: Manifest['lineage'];
}

/** Time for the writer: real by default, the simulator brings its own. */
export interface WriterTime {
  nowMs(): number;
  /** Ends early when the signal is raised. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
  /** Lets other work of the process run. */
  yield(): Promise<void>;
}

const REAL_TIME: WriterTime = {
  nowMs: () => performance.now(),
  sleep: async (ms, signal) => {
    // An aborted sleep is a short one: the write itself looks at the signal and says what was given up.
    await sleep(ms, undefined, signal ? { signal } : {}).catch((error: unknown) => {
      if (!signal?.aborted) throw error;
    });
  },
  yield: () => nextTurn(),
};

/** Hashing and writing this much takes well under a millisecond or two: the pauses of the event loop stay short. */
const SLICE_BYTES = 1 << 18;
/** A writer that has not written for this long is dead; what it left may be removed. */
export const UNFINISHED_IDLE_MS = 3_600_000;

export class Checkpoints {
  /** Checkpoints that this process is writing now: never swept. */
  private readonly writing = new Map<string, number>();

  constructor(
    readonly store: ObjectStore,
    private readonly time: WriterTime = REAL_TIME,
  ) {}

  /**
   * Streams the tensors of one server into its file. The same checkpoint may be written again as long as it has no manifest.
   * @throws StorageError ALREADY_EXISTS when the checkpoint has a manifest, DISK_FULL, STORE_UNAVAILABLE, WRITE_ABORTED; TypeError when a
   *   tensor has other bytes than its shape says
   */
  async writeShard(id: CheckpointId, server: number, tensors: Iterable<TensorSource>, options: WriteShardOptions): Promise<ShardFile> {
    const sources = [...tensors];
    const key = shardKey(id, server, options.servers);
    return this.whileWriting(id, async () => {
      if ((await this.store.list(manifestKey(id))).length > 0)
        throw new StorageError('ALREADY_EXISTS', `${manifestKey(id)} is there: the checkpoint is complete and is not written again`);
      const body = this.shardBody(id, server, sources, options);
      const { bytes, sha256 } = await this.store.put(key, body, options.signal ? { signal: options.signal } : {});
      return { server, key, bytes, sha256, tensors: sources.map(({ name }) => name) };
    });
  }

  /**
   * Makes the checkpoint exist. Publishing the same manifest again is fine (an answer may have been lost); another one is refused.
   * @throws StorageError ALREADY_EXISTS, CHECKPOINT_INVALID when it contradicts itself or a file is not there, DISK_FULL, STORE_UNAVAILABLE
   */
  async publish(manifest: Manifest): Promise<{ key: string; sha256: string }> {
    const id: CheckpointId = { runId: manifest.runId, attempt: manifest.attempt, round: manifest.round };
    const key = manifestKey(id);
    const parsed = manifestSchema.parse(manifest);
    const fault = manifestFault(id, parsed) ?? (await this.missing(id, parsed));
    if (fault !== undefined) throw new StorageError('CHECKPOINT_INVALID', `${key}: ${fault}`);
    const { bytes, sha256 } = encodeManifest(parsed);
    return this.whileWriting(id, async () => {
      try {
        await this.store.put(key, [bytes], { ifAbsent: true });
      } catch (error) {
        if (!(error instanceof StorageError) || error.code !== 'ALREADY_EXISTS') throw error;
        const present = await this.store.read(key, 0, MANIFEST_MAX_BYTES);
        if (Buffer.compare(present, bytes) !== 0) throw error;
      }
      return { key, sha256 };
    });
  }

  /** Complete checkpoints, newest first: the manifest holds and all files are there with their sizes. With a lineage, only those in it. */
  async list(runId: string, lineage?: Lineage): Promise<CheckpointSummary[]> {
    const found = await surveyCheckpoints(this.store, runId);
    return found
      .filter(({ id, manifest }) => manifest !== null && (!lineage || isInLineage(id, lineage)))
      .sort((a, b) => compareIds(b.id, a.id))
      .map(summaryOf);
  }

  /** Whether anything of the run's checkpoints lies here, whole or not. @throws StorageError STORE_UNAVAILABLE */
  async hasAny(runId: string): Promise<boolean> {
    return (await this.store.list(checkpointsPrefix(runId))).length > 0;
  }

  /** @throws StorageError CHECKPOINT_INVALID naming the file and the reason, STORE_UNAVAILABLE */
  async open(id: CheckpointId): Promise<CheckpointReader> {
    const key = manifestKey(id);
    const bytes = await this.store.read(key, 0, MANIFEST_MAX_BYTES).catch((error: unknown) => {
      if (!(error instanceof StorageError) || error.code !== 'NO_SUCH_OBJECT') throw error;
      throw new StorageError('CHECKPOINT_INVALID', `${key}: there is no manifest, so there is no such checkpoint`, { cause: error });
    });
    const { manifest, sha256 } = decodeManifest(id, bytes);
    const missing = await this.missing(id, manifest);
    if (missing !== undefined) throw new StorageError('CHECKPOINT_INVALID', missing);
    return new CheckpointReader(this.store, manifest, sha256);
  }

  /**
   * Removes what the policy does not keep, and what checkpoints older than the newest complete checkpoint left without a manifest. Never
   * the newest complete one, never one that is being written: those are newer, or written by this process.
   * Returns those that were removed, oldest first.
   * @param mayRemove asked last of all, right before each removal
   */
  async sweep(runId: string, policy: RetentionPolicy, mayRemove: (id: CheckpointId) => boolean = () => true): Promise<CheckpointId[]> {
    const found = await surveyCheckpoints(this.store, runId);
    const removed: CheckpointId[] = [];
    for (const { id, objects } of chooseForRemoval(found, policy)) {
      if (this.writing.has(checkpointPrefix(id)) || !mayRemove(id)) continue;
      const manifest = manifestKey(id);
      const files = objects.map(({ key }) => key).filter((key) => key !== manifest);
      await this.store.remove([manifest, ...files]);
      removed.push(id);
    }
    await this.store.removeUnfinished(checkpointsPrefix(runId), UNFINISHED_IDLE_MS);
    return removed;
  }

  private async missing(id: CheckpointId, manifest: Manifest): Promise<string | undefined> {
    const there = new Map((await this.store.list(checkpointPrefix(id))).map(({ key, bytes }) => [key, bytes]));
    const fault = manifest.shards.find(({ key, bytes }) => there.get(key) !== bytes);
    return fault && `${fault.key}: it has ${there.get(fault.key) ?? 'no'} bytes, the manifest says ${fault.bytes}`;
  }

  private async whileWriting<T>(id: CheckpointId, work: () => Promise<T>): Promise<T> {
    const prefix = checkpointPrefix(id);
    this.writing.set(prefix, (this.writing.get(prefix) ?? 0) + 1);
    try {
      return await work();
    } finally {
      const others = this.writing.get(prefix)! - 1;
      if (others > 0) this.writing.set(prefix, others);
      else this.writing.delete(prefix);
    }
  }

  /** The bytes depend on the id and the tensors alone, so that a checkpoint written again gives the same file. */
  private async *shardBody(id: CheckpointId, server: number, sources: readonly TensorSource[], options: WriteShardOptions) {
    const { servers, signal, bytesPerSecond = Infinity } = options;
    const labels = { runId: id.runId, attempt: `${id.attempt}`, round: `${id.round}`, server: `${server}`, servers: `${servers}` };
    const startedAtMs = this.time.nowMs();
    let written = 0;
    for await (const slice of slicesOf(safetensorsHeader(sources, labels), sources)) {
      yield slice;
      written += slice.length;
      const aheadMs = (written / bytesPerSecond) * 1000 - (this.time.nowMs() - startedAtMs);
      if (aheadMs > 1) await this.time.sleep(aheadMs, signal);
      else await this.time.yield();
    }
  }
}

async function* slicesOf(header: Uint8Array, sources: readonly TensorSource[]): AsyncIterable<Uint8Array> {
  for (let from = 0; from < header.length; from += SLICE_BYTES) yield header.subarray(from, from + SLICE_BYTES);
  for (const source of sources) {
    const bytes = await source.read();
    try {
      const expected = tensorBytes(source.shape);
      if (bytes.length !== expected) throw new TypeError(`${source.name} has ${bytes.length} bytes, its shape says ${expected}`);
      for (let from = 0; from < bytes.length; from += SLICE_BYTES) yield bytes.subarray(from, from + SLICE_BYTES);
    } finally {
      source.done?.();
    }
  }
}

function summaryOf({ id, manifest, sha256, objects }: FoundCheckpoint): CheckpointSummary {
  const { createdAtMs, loss, reason, servers, lineage, shards } = manifest!;
  const named = new Set([manifestKey(id), ...shards.map(({ key }) => key)]);
  const bytes = objects.reduce((sum, object) => sum + (named.has(object.key) ? object.bytes : 0), 0);
  return { ...id, key: manifestKey(id), sha256, bytes, createdAtMs, loss, reason, servers, lineage };
}
