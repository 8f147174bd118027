/**
 * Removing a dataset, or one version of it. A run that is not over needs its data; one that is over could be resumed or looked up, so it is
 * named too, and `force` lets go of those, and of what their predictions show of the data. Rows go first, then their manifests, then, after a day, the
 * shards that no version refers to (data-sweep.ts).
 */
import { Inject, Injectable } from '@nestjs/common';
import { isOver } from '@paceline/control-plane';
import type { Logger } from '@paceline/runtime';
import { datasetManifestKey, datasetReferenceSchema, parseDatasetReference } from '@paceline/spec';
import { Database, type Transaction } from '../database/database.js';
import { Conflict, NotFound } from '../graphql/result.types.js';
import { LOGGER } from '../logger.js';
import type { Viewer } from '../teams/authentication.js';
import { RunPredictions } from '../models/run-predictions.js';
import { lockTeam } from '../teams/team-limits.js';
import { DataStore } from './data-store.js';
import { UnusedManifests } from './unused-manifests.js';

export interface Removed {
  readonly name: string;
  readonly versions: readonly string[];
}

const MAX_NAMED = 10;

@Injectable()
export class RemoveDataset {
  private removing: Promise<void> = Promise.resolve();

  constructor(
    private readonly database: Database,
    private readonly predictions: RunPredictions,
    private readonly data: DataStore,
    private readonly unused: UnusedManifests,
    @Inject(LOGGER) private readonly log: Logger,
  ) {}

  /** @param reference a name, or name@version for one version */
  async remove(viewer: Viewer, reference: string, force = false): Promise<Removed | NotFound | Conflict> {
    if (!datasetReferenceSchema.safeParse(reference).success) return new NotFound('dataset of this name');
    const trained: string[] = [];
    const removed = await this.removeRows(viewer, reference, force, trained);
    this.predictions.forget(trained);
    if ('versions' in removed) this.removing = this.removing.then(() => this.removeManifests(viewer.teamId, removed.versions));
    return removed;
  }

  /** One removal after the other, which nobody waits for: what cannot be removed now is by the sweep. */
  private async removeManifests(teamId: string, versions: readonly string[]): Promise<void> {
    if (!this.data.isThere) return;
    const keys = versions.map((version) => datasetManifestKey(teamId, version));
    await this.unused
      .removeManifests(teamId, keys)
      .catch((err: Error) => this.log.warn({ err: err.message }, 'manifests of a removed dataset could not be removed'));
  }

  /** @param trained hears of the runs that were trained on it */
  private removeRows(viewer: Viewer, reference: string, force: boolean, trained: string[]): Promise<Removed | NotFound | Conflict> {
    const { name, version } = parseDatasetReference(reference);
    return this.database.transact(async (transaction) => {
      await lockTeam(transaction, viewer.teamId);
      const dataset = await transaction.teamDataset.findUnique({ where: { teamId_name: { teamId: viewer.teamId, name } } });
      const versions = dataset
        ? await transaction.datasetVersion.findMany({
            where: Object.assign({ datasetId: dataset.id }, version === undefined ? {} : { version: { startsWith: version } }),
            select: { id: true, version: true },
            take: 2000,
          })
        : [];
      if (!dataset || versions.length === 0) return new NotFound(`dataset ${JSON.stringify(reference.slice(0, 130))} of your team`);
      if (version !== undefined && versions.length > 1)
        return new Conflict(`${versions.length} versions of ${name} begin with ${version}; write more of its digits.`);
      const ids = versions.map(({ id }) => id);
      const refused = await this.refused(transaction, ids, force);
      if (refused) return refused;
      if (force) {
        const where = { datasetVersionId: { in: ids } };
        const runs = await transaction.run.findMany({ where, select: { id: true } });
        trained.splice(0, trained.length, ...runs.map(({ id }) => id));
        await transaction.run.updateMany({ where, data: { datasetVersionId: null } });
      }
      // What it alone refers to is kept for a day from now.
      await transaction.$executeRaw`
        UPDATE "DatasetShard" SET "touchedAt" = now() FROM "DatasetVersionShard" AS named
         WHERE named."versionId" = ANY(${ids}::uuid[]) AND "DatasetShard"."teamId" = named."teamId" AND "DatasetShard"."sha256" = named."sha256"`;
      await transaction.datasetVersion.deleteMany({ where: { id: { in: ids } } });
      if ((await transaction.datasetVersion.count({ where: { datasetId: dataset.id } })) === 0)
        await transaction.teamDataset.delete({ where: { id: dataset.id } });
      return { name, versions: versions.map((row) => row.version) };
    });
  }

  private async refused(transaction: Transaction, ids: string[], force: boolean): Promise<Conflict | undefined> {
    const runs = await transaction.run.findMany({
      where: { datasetVersionId: { in: ids } },
      select: { id: true, status: true },
      orderBy: { createdAt: 'desc' },
      take: 1000,
    });
    const active = runs.filter(({ status }) => !isOver(status));
    const named = (rows: readonly { id: string }[]): string =>
      rows
        .slice(0, MAX_NAMED)
        .map(({ id }) => id)
        .join(', ') + (rows.length > MAX_NAMED ? ` and ${rows.length - MAX_NAMED} more` : '');
    if (active.length > 0) return new Conflict(`Runs that are not over train on it: ${named(active)}. Cancel them or wait for their end.`);
    if (runs.length > 0 && !force)
      return new Conflict(
        `Runs that are over were trained on it, and could not be extended or repeated any more: ${named(runs)}. Remove it all the same with force.`,
      );
    return undefined;
  }
}
