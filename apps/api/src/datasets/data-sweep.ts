/**
 * What nobody needs any more leaves the data store: shards that no version refers to and nobody has sent or asked for within a day,
 * raw files that no import took, manifests of versions that are gone, and rows of old imports. Everything happens under the lock of the team's row, as commits and the
 * beginnings of uploads do, so nothing is removed that comes into use at the same moment. Each step is small: an object gone and its row still
 * there is repeated by the next sweep.
 */
import { Inject, Injectable, type OnModuleDestroy, type OnModuleInit } from '@nestjs/common';
import type { Logger } from '@paceline/runtime';
import { datasetShardKey } from '@paceline/spec';
import { BackgroundDatabase } from '../database/database.js';
import type { Prisma } from '../generated/prisma/client.js';
import { KEPT_DAYS } from '../idempotency/idempotency-keys.js';
import { LOGGER } from '../logger.js';
import { lockTeam } from '../teams/team-limits.js';
import { DataStore } from './data-store.js';
import type { ImportRequest } from './import-request.js';
import { uploadKey } from './raw-uploads.js';
import { UnusedManifests } from './unused-manifests.js';

export const KEPT_UNUSED_MS = 86_400_000;
/** An import is shown until then; a day longer than an idempotency key answers with it. */
const KEPT_IMPORTS_MS = (KEPT_DAYS + 1) * 86_400_000;
const SWEEP_EVERY_MS = 3_600_000;
/** Removed in one transaction, whose locks others wait for. */
const AT_ONCE = 20;
const LOOKED_UP_AT_ONCE = 1_000;
const MAX_STEPS = 10_000;
/** Imports that are not over; a team has few at once. */
const MAX_WAITING = 10_000;

@Injectable()
export class DataSweep implements OnModuleInit, OnModuleDestroy {
  private timer: NodeJS.Timeout | undefined;

  constructor(
    private readonly database: BackgroundDatabase,
    private readonly data: DataStore,
    private readonly unused: UnusedManifests,
    @Inject(LOGGER) private readonly log: Logger,
  ) {}

  onModuleInit(): void {
    if (!this.data.isThere) return;
    this.timer = setInterval(() => {
      this.sweep().catch((err: Error) => this.log.warn({ err: err.message }, 'unused data could not be removed'));
    }, SWEEP_EVERY_MS);
  }

  onModuleDestroy(): void {
    clearInterval(this.timer);
  }

  /** @returns objects that were removed */
  async sweep(now = new Date()): Promise<number> {
    if (!this.data.isThere) return 0;
    const before = new Date(now.getTime() - KEPT_UNUSED_MS);
    await this.sweepImports(now); // it needs no store, which may be away
    let removed = 0;
    for (const step of [this.sweepShards, this.sweepUploads])
      for (let steps = 0; steps < MAX_STEPS; steps++) {
        const count = await step.call(this, before);
        removed += count;
        if (count === 0) break;
      }
    removed += await this.sweepManifests();
    await this.data.store.removeUnfinished('datasets', KEPT_UNUSED_MS);
    return removed;
  }

  /**
   * Three steps, so that a row never says of an object that it is there when it is gone: marked as not complete, the object removed, the
   * row removed. What is asked for or uploaded between them keeps its row; the upload finds nothing there and is sent again.
   */
  private async sweepShards(before: Date): Promise<number> {
    const unused = { touchedAt: { lt: before }, versions: { none: {} } };
    const first = await this.database.datasetShard.findFirst({ where: unused, select: { teamId: true } });
    if (!first) return 0;
    const { teamId } = first;
    const hashes = await this.database.transact(async (transaction) => {
      await lockTeam(transaction, teamId);
      const rows = await transaction.datasetShard.findMany({ where: Object.assign({ teamId }, unused), take: AT_ONCE });
      const found = rows.map(({ sha256 }) => sha256);
      await transaction.datasetShard.updateMany({ where: { teamId, sha256: { in: found } }, data: { isComplete: false } });
      return found;
    });
    for (const sha256 of hashes) await this.removeShard(teamId, sha256, unused);
    return hashes.length;
  }

  /** The object goes under the lock of the team, so an upload that has begun since then, which touched the row, keeps it. */
  private removeShard(teamId: string, sha256: string, unused: Prisma.DatasetShardWhereInput): Promise<void> {
    return this.database.transact(async (transaction) => {
      await lockTeam(transaction, teamId);
      const where = Object.assign({ teamId, sha256, isComplete: false }, unused);
      if ((await transaction.datasetShard.count({ where })) === 0) return;
      await this.data.store.remove([datasetShardKey(teamId, sha256)]);
      await transaction.datasetShard.deleteMany({ where });
    });
  }

  private async sweepUploads(before: Date): Promise<number> {
    const old = { touchedAt: { lt: before } };
    const waiting = await this.database.datasetImport.findMany({
      where: { state: { in: ['PENDING', 'IMPORTING'] } },
      select: { request: true },
      take: MAX_WAITING,
    });
    const named = waiting.flatMap(({ request }) => (request as unknown as ImportRequest).uploads);
    const first = await this.database.datasetUpload.findFirst({ where: Object.assign({ id: { notIn: named } }, old) });
    if (!first) return 0;
    const { teamId } = first;
    const ids = await this.database.transact(async (transaction) => {
      // Imports begin under this lock, and touch what they name.
      await lockTeam(transaction, teamId);
      const where = Object.assign({ teamId, id: { notIn: named } }, old);
      const rows = await transaction.datasetUpload.findMany({ where, take: AT_ONCE });
      const found = rows.map(({ id }) => id);
      await transaction.datasetUpload.updateMany({ where: { id: { in: found } }, data: { isComplete: false } });
      return found;
    });
    await this.data.store.remove(ids.map((id) => uploadKey(teamId, id)));
    await this.database.datasetUpload.deleteMany({ where: { id: { in: ids } } });
    return ids.length;
  }

  /** What a removal has left, or a commit that came to nothing. A commit that is under way puts its manifest there again. */
  private async sweepManifests(): Promise<number> {
    const teams = await this.database.team.findMany({ select: { id: true }, take: 100_000 });
    let removed = 0;
    for (const { id: teamId } of teams) {
      const found = (await this.data.store.list(`datasets/${teamId}/manifests/`)).map(({ key }) => key);
      for (let at = 0; at < found.length; at += LOOKED_UP_AT_ONCE)
        removed += await this.unused.removeManifests(teamId, found.slice(at, at + LOOKED_UP_AT_ONCE));
    }
    return removed;
  }

  /** Rows of imports that are over. */
  private async sweepImports(now: Date): Promise<void> {
    const before = new Date(now.getTime() - KEPT_IMPORTS_MS);
    await this.database.datasetImport.deleteMany({ where: { state: { in: ['READY', 'FAILED'] }, finishedAt: { lt: before } } });
  }
}
