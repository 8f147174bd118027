/**
 * Shards of prepared datasets on their way into the data store. A row is written before the first byte, so nothing lies in the store that
 * no row knows of; it counts from then on, so many uploads at once do not pass the limit of the team. The hash is checked while the bytes
 * go by, and a body whose hash is another one leaves no object.
 *
 * What is asked for (HEAD) or uploaded is kept for a day at least: a client that goes on after a break finds what it has sent.
 */
import type { Readable } from 'node:stream';
import { Injectable } from '@nestjs/common';
import { DATASET_LIMITS, datasetManifestKey, datasetShardKey } from '@paceline/spec';
import { Database } from '../database/database.js';
import { Settings } from '../environment.js';
import { Fault } from '../fault.js';
import { uploadTurns } from '../turns.js';
import { lockTeam, refusedBytes } from '../teams/team-limits.js';
import { checked, declaredBytes } from './upload-body.js';
import { DataStore } from './data-store.js';

export interface StoredShard {
  readonly bytes: number;
}

/** The team whose datasets the shard is a part of. */
interface Owner {
  readonly teamId: string;
}

const SHA256 = /^[0-9a-f]{64}$/;

@Injectable()
export class DatasetShards {
  private readonly turns = uploadTurns();

  constructor(
    private readonly database: Database,
    private readonly data: DataStore,
    private readonly settings: Settings,
  ) {}

  /** Whether it is stored whole; then it stays for another day. */
  async find(viewer: Owner, sha256: string): Promise<StoredShard | undefined> {
    if (!SHA256.test(sha256)) return undefined;
    const where = { teamId: viewer.teamId, sha256, isComplete: true };
    const { count } = await this.database.datasetShard.updateMany({ where, data: { touchedAt: new Date() } });
    if (count === 0) return undefined;
    const row = await this.database.datasetShard.findUnique({ where: { teamId_sha256: { teamId: viewer.teamId, sha256 } } });
    return row ? { bytes: Number(row.bytes) } : undefined;
  }

  /**
   * @param bytes that the client has declared
   * @returns whether it is new @throws Fault INVALID_INPUT for another hash or size, LIMIT_REACHED, TOO_BUSY, SERVICE_UNAVAILABLE
   */
  async put(viewer: Owner, sha256: string, bytes: number | undefined, body: Readable): Promise<'stored' | 'present'> {
    if (!SHA256.test(sha256)) throw new Fault('INVALID_INPUT', 'sha256: must be the SHA-256 of the body, 64 lower-case hexadecimal digits');
    const size = declaredBytes(bytes, DATASET_LIMITS.shardBytes);
    const store = this.data.store;
    return this.turns.run(viewer.teamId, async () => {
      if ((await this.announce(viewer, sha256, size)) === 'present') return 'present';
      await this.data.use(() => store.put(datasetShardKey(viewer.teamId, sha256), checked(body, size, sha256)));
      await this.complete(viewer, sha256, size);
      return 'stored';
    });
  }

  /**
   * The object lies in the store, whole.
   * @param bytes that it has, whatever was announced
   * @throws Fault LIMIT_REACHED when it is larger than what was announced, and too large; then it is kept for the sweep
   */
  async complete({ teamId }: Owner, sha256: string, bytes: number): Promise<void> {
    const key = { teamId, sha256 };
    const refused = await this.database.transact(async (transaction) => {
      await lockTeam(transaction, teamId);
      const found = await transaction.datasetShard.findUnique({ where: { teamId_sha256: key } });
      const more = found?.isComplete ? 0 : bytes - Number(found?.bytes ?? 0);
      const over = more > 0 ? await refusedBytes(transaction, teamId, this.settings, more) : undefined;
      const stored = { bytes: BigInt(bytes), isComplete: over === undefined, touchedAt: new Date() };
      await transaction.datasetShard.upsert({ where: { teamId_sha256: key }, create: Object.assign({}, key, stored), update: stored });
      return over;
    });
    if (refused) throw new Fault('LIMIT_REACHED', refused.message);
  }

  /** @throws Fault NOT_FOUND, SERVICE_UNAVAILABLE */
  async open(viewer: Owner, sha256: string): Promise<{ readonly bytes: number; readonly stream: AsyncIterable<Uint8Array> }> {
    const found = await this.find(viewer, sha256);
    if (!found) throw new Fault('NOT_FOUND', 'There is no shard with this hash.');
    return { bytes: found.bytes, stream: await this.begun(datasetShardKey(viewer.teamId, sha256)) };
  }

  /** The canonical text of a manifest, as it was committed. @throws Fault NOT_FOUND, SERVICE_UNAVAILABLE */
  openManifest(teamId: string, version: string): Promise<AsyncIterable<Uint8Array>> {
    return this.begun(datasetManifestKey(teamId, version));
  }

  /** What the store has against it is known with the first piece, before an answer has begun. */
  private async begun(key: string): Promise<AsyncIterable<Uint8Array>> {
    const pieces = this.data.store.stream(key)[Symbol.asyncIterator]();
    const first = await this.data.use(() => pieces.next());
    return (async function* () {
      try {
        for (let next = first; !next.done; next = await pieces.next()) yield next.value;
      } finally {
        await pieces.return?.(); // who goes away in between leaves no file open
      }
    })();
  }

  /** From here on it counts. @throws Fault LIMIT_REACHED */
  announce({ teamId }: Owner, sha256: string, bytes: number): Promise<'present' | 'announced'> {
    return this.database.transact(async (transaction) => {
      await lockTeam(transaction, teamId);
      const found = await transaction.datasetShard.findUnique({ where: { teamId_sha256: { teamId, sha256 } } });
      const touchedAt = new Date();
      // Several uploads of one shard may be under way, with different claims: the largest counts until one of them is whole.
      const more = found?.isComplete ? 0 : bytes - Number(found?.bytes ?? 0);
      const refused = more > 0 ? await refusedBytes(transaction, teamId, this.settings, more) : undefined;
      if (refused) throw new Fault('LIMIT_REACHED', refused.message);
      if (found) {
        const counted = more > 0 ? { touchedAt, bytes: BigInt(bytes) } : { touchedAt };
        await transaction.datasetShard.update({ where: { teamId_sha256: { teamId, sha256 } }, data: counted });
        return found.isComplete ? 'present' : 'announced';
      }
      await transaction.datasetShard.create({ data: { teamId, sha256, bytes: BigInt(bytes), touchedAt } });
      return 'announced';
    });
  }
}
