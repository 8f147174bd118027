/**
 * Reading a checkpoint. Before the first tensor of a file is handed out, the whole file is read once: its SHA-256 is held to the
 * manifest, its header to the rules of the format and to the names in the manifest, and a CRC-32 of every tensor is noted. A
 * tensor is then read by its range and held to that CRC, so that a bit that flips between the two readings is found as well.
 */
import { createHash } from 'node:crypto';
import { crc32 } from 'node:zlib';
import { StorageError } from './errors.js';
import type { Manifest, ShardFile } from './manifest.js';
import type { ObjectStore } from './object-store.js';
import { parseSafetensorsHeader, safetensorsHeaderBytes, type TensorRange } from './safetensors-reader.js';

interface VerifiedTensor extends TensorRange {
  readonly crc32: number;
}

const invalid = (key: string, reason: string, cause?: unknown): StorageError =>
  new StorageError('CHECKPOINT_INVALID', `${key}: ${reason}`, { cause });

export class CheckpointReader {
  private readonly shardOf = new Map<string, ShardFile>();
  /** One verification per file, however many tensors are asked for at once; a failed one may be tried again. */
  private readonly verified = new Map<string, Promise<ReadonlyMap<string, VerifiedTensor>>>();

  constructor(
    private readonly store: ObjectStore,
    readonly manifest: Manifest,
    /** Hash of the manifest. */
    readonly sha256: string,
  ) {
    for (const shard of manifest.shards) for (const name of shard.tensors) this.shardOf.set(name, shard);
  }

  get tensorNames(): string[] {
    return [...this.shardOf.keys()];
  }

  has(name: string): boolean {
    return this.shardOf.has(name);
  }

  async shape(name: string): Promise<readonly number[]> {
    return (await this.find(name)).tensor.shape;
  }

  /**
   * Little-endian float32 bytes.
   * @param signal nobody wants them any more: also the verification of the file ends, for all that wait for it
   * @throws StorageError CHECKPOINT_INVALID naming the file and the reason, STORE_UNAVAILABLE
   */
  async tensor(name: string, signal?: AbortSignal): Promise<Uint8Array> {
    signal?.throwIfAborted();
    const { shard, tensor } = await this.find(name, signal);
    const bytes = await this.store.read(shard.key, tensor.from, tensor.to);
    if (bytes.length !== tensor.to - tensor.from || crc32(bytes) !== tensor.crc32)
      throw invalid(shard.key, `the data of ${name} differs from what was verified`);
    return bytes;
  }

  private async find(name: string, signal?: AbortSignal): Promise<{ shard: ShardFile; tensor: VerifiedTensor }> {
    const shard = this.shardOf.get(name);
    if (!shard) throw invalid(this.place, `it has no tensor ${name}`);
    let verification = this.verified.get(shard.key);
    if (!verification) {
      verification = verifyShard(this.store, shard, signal);
      this.verified.set(shard.key, verification);
      verification.catch(() => this.verified.delete(shard.key));
    }
    return { shard, tensor: (await verification).get(name)! };
  }

  private get place(): string {
    const { runId, attempt, round } = this.manifest;
    return `checkpoint a${attempt}-r${round} of run ${runId}`;
  }
}

async function verifyShard(store: ObjectStore, shard: ShardFile, signal?: AbortSignal): Promise<ReadonlyMap<string, VerifiedTensor>> {
  try {
    const headerBytes = safetensorsHeaderBytes(await store.read(shard.key, 0, 8), shard.bytes);
    const header = await store.read(shard.key, 8, 8 + headerBytes);
    if (header.length !== headerBytes) throw invalid(shard.key, 'it ends within its header');
    const ranges = parseSafetensorsHeader(header, shard.bytes);
    const crcs = new RangeChecks([...ranges.values()]);
    const hash = createHash('sha256');
    let position = 0;
    for await (const piece of store.stream(shard.key)) {
      signal?.throwIfAborted();
      hash.update(piece);
      crcs.add(position, piece);
      position += piece.length;
      if (position > shard.bytes) break;
    }
    if (position !== shard.bytes) throw invalid(shard.key, `it has ${position} bytes, the manifest says ${shard.bytes}`);
    if (hash.digest('hex') !== shard.sha256) throw invalid(shard.key, 'its SHA-256 is not the one of the manifest');
    const isAsNamed = ranges.size === shard.tensors.length && shard.tensors.every((name) => ranges.get(name)?.dtype === 'F32');
    if (!isAsNamed) throw invalid(shard.key, 'it holds other tensors than the manifest names');
    return new Map([...ranges.values()].map((range, i) => [range.name, { ...range, crc32: crcs.values[i]! }]));
  } catch (error) {
    if (error instanceof StorageError && (error.code === 'SAFETENSORS_INVALID' || error.code === 'NO_SUCH_OBJECT'))
      throw invalid(shard.key, error.message, error);
    throw error;
  }
}

/** CRC-32 of consecutive ranges of a stream that comes in pieces of any size. */
class RangeChecks {
  readonly values: number[];
  private current = 0;

  constructor(private readonly ranges: readonly TensorRange[]) {
    this.values = ranges.map(() => 0);
  }

  add(position: number, piece: Uint8Array): void {
    const end = position + piece.length;
    for (; this.current < this.ranges.length; this.current++) {
      const { from, to } = this.ranges[this.current]!;
      if (from >= end) return;
      const slice = piece.subarray(Math.max(0, from - position), Math.min(piece.length, to - position));
      this.values[this.current] = crc32(slice, this.values[this.current]);
      if (to > end) return;
    }
  }
}
