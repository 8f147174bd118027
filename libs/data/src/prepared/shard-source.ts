/** Shards of a team in an object store. What fails for the moment is tried again; what comes whole is held against its hash. */
import { createHash } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { datasetShardKey, type DatasetShard } from '@paceline/spec';
import { StorageError, type ObjectStore } from '@paceline/storage';
import { DatasetError } from '../dataset-error.js';

export interface ShardSource {
  /** For messages: where the shards lie. */
  readonly place: string;
  /** Over a network: rows that are needed now are read by position, and the shard that they are of meanwhile. */
  readonly isFar?: boolean;
  /** All bytes, whose hash is that of the shard. @throws DatasetError */
  whole(shard: DatasetShard): Promise<Uint8Array>;
  /** Bytes [from, to), not more than the shard has. @throws DatasetError */
  range(shard: DatasetShard, from: number, to: number): Promise<Uint8Array>;
}

export interface ShardSourceOptions {
  /** Before the second try; doubled before the third. */
  readonly backoffMs?: number;
}

const TRIES = 3;
const BACKOFF_MS = 200;
/** A shard from S3 comes in parts of this size, so many at a time. */
const PART_BYTES = 8 << 20;
const PARTS_AT_ONCE = 4;

export const sha256Of = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex');
export const nameOfShard = ({ sha256 }: DatasetShard): string => `shard ${sha256.slice(0, 12)}`;

export function storeShardSource(store: ObjectStore, teamId: string, { backoffMs = BACKOFF_MS }: ShardSourceOptions = {}): ShardSource {
  const keyOf = (shard: DatasetShard): string => datasetShardKey(teamId, shard.sha256);
  const range = (shard: DatasetShard, from: number, to: number): Promise<Uint8Array> =>
    withRetries(shard, store.place, backoffMs, async () => {
      const bytes = await store.read(keyOf(shard), from, to);
      if (bytes.length === to - from) return bytes;
      throw new DatasetError(
        'DATASET_MALFORMED',
        nameOfShard(shard),
        `it ends at byte ${from + bytes.length} in ${store.place}, and the manifest says ${shard.bytes} bytes: import the data again`,
      );
    });
  return {
    place: store.place,
    isFar: store.kind === 's3',
    range,
    whole: (shard) =>
      withRetries(shard, store.place, backoffMs, async () => {
        const bytes = store.kind === 's3' ? await inParts(shard, range) : await range(shard, 0, shard.bytes);
        if (sha256Of(bytes) === shard.sha256) return bytes;
        throw new HashDiffers(
          'DATASET_MALFORMED',
          nameOfShard(shard),
          `its bytes in ${store.place} do not have the SHA-256 that the manifest names: the file was changed or is damaged; import the data again`,
        );
      }),
  };
}

/** Perhaps of the way and not of the file, so it is read once more. */
class HashDiffers extends DatasetError {}

async function inParts(shard: DatasetShard, range: ShardSource['range']): Promise<Uint8Array> {
  const bytes = new Uint8Array(shard.bytes);
  let next = 0;
  const reader = async (): Promise<void> => {
    for (let from = next; from < shard.bytes; from = next) {
      next = from + PART_BYTES;
      bytes.set(await range(shard, from, Math.min(next, shard.bytes)), from);
    }
  };
  await Promise.all(Array.from({ length: PARTS_AT_ONCE }, reader));
  return bytes;
}

async function withRetries<T>(shard: DatasetShard, place: string, backoffMs: number, read: () => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries++) {
    try {
      return await read();
    } catch (error) {
      const mayPass = error instanceof HashDiffers || (error instanceof StorageError && error.code === 'STORE_UNAVAILABLE');
      if (!mayPass || tries === TRIES) throw asDatasetError(shard, place, tries, error);
      await sleep(backoffMs * 2 ** (tries - 1));
    }
  }
}

/** Whether it may be read later, where it lies. */
export const codeOf = (error: unknown): 'DATASET_AWAY' | 'DATASET_UNREADABLE' =>
  error instanceof StorageError && error.code === 'STORE_UNAVAILABLE' ? 'DATASET_AWAY' : 'DATASET_UNREADABLE';

function asDatasetError(shard: DatasetShard, place: string, tries: number, error: unknown): unknown {
  if (!(error instanceof StorageError)) return error;
  const what =
    error.code === 'NO_SUCH_OBJECT'
      ? `it is not in ${place}: the dataset was removed, or this process has another data store than the api; give all of them the same one`
      : `it cannot be read from ${place} (${tries} ${tries === 1 ? 'try' : 'tries'}): ${error.message}`;
  return new DatasetError(codeOf(error), nameOfShard(shard), what, { cause: error });
}
