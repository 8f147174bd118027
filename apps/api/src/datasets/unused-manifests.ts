/** Manifests that no version has any more leave the store. Versions with equal content, under several names, have one manifest in common. */
import { Injectable } from '@nestjs/common';
import { datasetManifestKey } from '@paceline/spec';
import { BackgroundDatabase } from '../database/database.js';
import { lockTeam } from '../teams/team-limits.js';
import { DataStore } from './data-store.js';

/** Removed in one transaction, whose locks others wait for. */
const AT_ONCE = 20;

@Injectable()
export class UnusedManifests {
  constructor(
    private readonly database: BackgroundDatabase,
    private readonly data: DataStore,
  ) {}

  /** Those of the keys that are of no version; under the lock of the team, so that none comes into use meanwhile. @returns how many */
  async removeManifests(teamId: string, keys: readonly string[]): Promise<number> {
    let removed = 0;
    for (const part of partsOf(await this.unused(teamId, keys)))
      removed += await this.database.transact(async (transaction) => {
        await lockTeam(transaction, teamId);
        const still = await this.unused(teamId, part, transaction);
        await this.data.use((store) => store.remove(still));
        return still.length;
      });
    return removed;
  }

  private async unused(
    teamId: string,
    keys: readonly string[],
    database: Pick<BackgroundDatabase, 'datasetVersion'> = this.database,
  ): Promise<string[]> {
    const named = keys.map((key) => /([^/]+)\.json$/.exec(key)?.[1]).filter((version) => version !== undefined);
    const where = { dataset: { teamId }, version: { in: named } };
    const used = await database.datasetVersion.findMany({ where, select: { version: true }, distinct: ['version'] });
    const known = new Set(used.map(({ version }) => datasetManifestKey(teamId, version)));
    return keys.filter((key) => !known.has(key));
  }
}

function* partsOf(keys: readonly string[]): Generator<readonly string[], void, void> {
  for (let at = 0; at < keys.length; at += AT_ONCE) yield keys.slice(at, at + AT_ONCE);
}
