/**
 * A manifest becomes a version of a dataset. Nothing of it is seen before everything is right:
 *
 *     schema and hash (process) -> every shard is there, in the size named (tables) -> structure of every shard (process)
 *       -> there is room for it -> the manifest lies in the store -> dataset, version and references in one transaction, under the lock of the team
 *
 * Equal content under one name is one version: committing it again changes nothing but makes it the newest.
 */
import { Injectable } from '@nestjs/common';
import { BUILT_IN_DATASETS, DATASET_NAME, datasetManifestKey } from '@paceline/spec';
import { Database, type Transaction } from '../database/database.js';
import { Settings } from '../environment.js';
import { Fault } from '../fault.js';
import { lockTeam, refusedBytes } from '../teams/team-limits.js';
import { Turns } from '../turns.js';
import { DataStore } from './data-store.js';
import { issuesFault, ManifestChild } from './manifest-child.js';
import type { ReadManifest } from './manifest-process.js';

export interface Committed {
  readonly datasetId: string;
  readonly name: string;
  readonly version: string;
  readonly rows: number;
  readonly bytes: number;
  /** False when the dataset had this version already. */
  readonly isNew: boolean;
}

/** The team that gets the version, and the key that commits it. */
export interface Committer {
  readonly teamId: string;
  readonly apiKeyId: string;
}

export interface CommitRequest {
  readonly name: string;
  readonly manifest: Uint8Array;
  /** Where the data came from, in words. */
  readonly source: string;
}

const MAX_SOURCE_CHARACTERS = 1000;
const MAX_DATASETS = 1000;
const MAX_VERSIONS = 1000;
const MAX_PUTS = 3;
const LOOKED_UP_AT_ONCE = 5_000;
const TURNS = { atOnce: 2, waiting: 16, waitMs: 120_000 };
/** One team checks one dataset at a time, so that another one always finds a place. */
const TURNS_OF_A_TEAM = { atOnceOfTeam: 1, waiting: Number.POSITIVE_INFINITY, waitingOfTeam: 4, waitMs: 120_000 };
const BUSY = 'datasets are being checked. Nothing was done; try again shortly.';

@Injectable()
export class CommitVersion {
  private readonly turns = new Turns(TURNS, () => new Fault('TOO_BUSY', `Other ${BUSY}`, 5));
  private readonly turnsOfATeam = new Turns(TURNS_OF_A_TEAM, () => new Fault('TOO_BUSY', `Other of your ${BUSY}`, 5));

  constructor(
    private readonly database: Database,
    private readonly data: DataStore,
    private readonly settings: Settings,
  ) {}

  /** @throws Fault INVALID_INPUT, CONFLICT, TOO_BUSY, TOO_LARGE, LIMIT_REACHED, SERVICE_UNAVAILABLE */
  async commit(by: Committer, { name, manifest, source }: CommitRequest): Promise<Committed> {
    requireDatasetName(name);
    const said = readSource(source);
    const storeUrl = this.data.url;
    return this.inTurn(by.teamId, async () => {
      const child = new ManifestChild();
      try {
        const read = await child.read(manifest);
        const earlier = await this.database.datasetVersion.findFirst({
          where: { version: read.version, dataset: { teamId: by.teamId } },
          select: { id: true },
        });
        // Which of the team's versions it is says nothing else: equal content was checked when it came first, and its shards are kept.
        if (!earlier) {
          await this.requireShards(by.teamId, read);
          await this.data.use(() => child.check(storeUrl, by.teamId));
        }
        await this.touchShards(by.teamId, read);
        // Before it lies in the store: what is refused leaves nothing there.
        await this.database.transact((transaction) => this.requireRoom(transaction, by.teamId, name, read));
        return await this.storeWhole(() => child.put(storeUrl, by.teamId), by, name, said, read);
      } finally {
        await child.end();
      }
    });
  }

  private inTurn<T>(teamId: string, work: () => Promise<T>): Promise<T> {
    return this.turnsOfATeam.run(teamId, () => this.turns.run(teamId, work));
  }

  /** @throws Fault INVALID_INPUT naming shards that are not there */
  private async requireShards(teamId: string, { shards }: ReadManifest): Promise<void> {
    const stored = await storedShards(
      this.database,
      teamId,
      shards.map(({ sha256 }) => sha256),
    );
    const issues = shards.flatMap(({ sha256, bytes, path }) => {
      const found = stored.get(sha256);
      if (found === undefined) return [{ path, message: `the shard ${sha256.slice(0, 12)} was not uploaded` }];
      return found === bytes ? [] : [{ path: `${path}.bytes`, message: `is ${bytes}, and the shard has ${found}` }];
    });
    if (issues.length > 0) throw issuesFault(issues.slice(0, 20));
  }

  /** From here on the sweep leaves them alone. */
  private touchShards(teamId: string, { shards }: ReadManifest): Promise<void> {
    return this.database.transact(async (transaction) => {
      await lockTeam(transaction, teamId);
      const hashes = [...new Set(shards.map(({ sha256 }) => sha256))];
      for (let at = 0; at < hashes.length; at += LOOKED_UP_AT_ONCE) {
        const sha256 = { in: hashes.slice(at, at + LOOKED_UP_AT_ONCE) };
        await transaction.datasetShard.updateMany({ where: { teamId, sha256 }, data: { touchedAt: new Date() } });
      }
    });
  }

  /** A manifest that no version has yet may be removed with one that had it, or by the sweep: then it is put there again. */
  private async storeWhole(put: () => Promise<void>, by: Committer, name: string, source: string, read: ReadManifest): Promise<Committed> {
    for (let attempt = 1; ; attempt++) {
      await this.data.use(put);
      const committed = await this.database.transact((transaction) => this.store(transaction, by, name, source, read));
      if (committed) return committed;
      if (attempt === MAX_PUTS)
        throw new Fault('TOO_BUSY', 'Versions with this content are being removed. Nothing was done; try again shortly.', 5);
    }
  }

  /**
   * Under the lock of the team.
   * @returns the dataset, if there is one, and whether it has this version already @throws Fault CONFLICT, LIMIT_REACHED
   */
  private async requireRoom(
    transaction: Transaction,
    teamId: string,
    name: string,
    { version, manifestBytes }: ReadManifest,
  ): Promise<{ readonly dataset: { readonly id: string } | null; readonly isThere: boolean }> {
    await lockTeam(transaction, teamId);
    const dataset = await transaction.teamDataset.findUnique({ where: { teamId_name: { teamId, name } } });
    if (!dataset && (await transaction.teamDataset.count({ where: { teamId } })) >= MAX_DATASETS)
      throw new Fault('CONFLICT', `The team has ${MAX_DATASETS} datasets; remove some first.`);
    if (dataset) {
      const datasetId = dataset.id;
      if ((await transaction.datasetVersion.count({ where: { datasetId, version } })) > 0) return { dataset, isThere: true };
      if ((await transaction.datasetVersion.count({ where: { datasetId } })) >= MAX_VERSIONS)
        throw new Fault('CONFLICT', `The dataset has ${MAX_VERSIONS} versions; remove some first.`);
    }
    const refused = await refusedBytes(transaction, teamId, this.settings, manifestBytes);
    if (refused) throw new Fault('LIMIT_REACHED', refused.message);
    return { dataset, isThere: false };
  }

  /** @returns undefined when the manifest is not in the store any more */
  private async store(
    transaction: Transaction,
    { teamId, apiKeyId }: Committer,
    name: string,
    source: string,
    read: ReadManifest,
  ): Promise<Committed | undefined> {
    const room = await this.requireRoom(transaction, teamId, name, read);
    const { version, rows, bytes, columns } = read;
    const key = datasetManifestKey(teamId, version);
    if (!(await this.data.use((store) => store.list(key))).some((object) => object.key === key)) return undefined;
    const dataset = room.dataset ?? (await transaction.teamDataset.create({ data: { teamId, name } }));
    const answer = { datasetId: dataset.id, name, version, rows, bytes };
    if (room.isThere) {
      await transaction.datasetVersion.updateMany({ where: { datasetId: dataset.id, version }, data: { committedAt: new Date() } });
      return Object.assign(answer, { isNew: false });
    }
    const hashes = [...new Set(read.shards.map(({ sha256 }) => sha256))];
    const stored = await storedShards(transaction, teamId, hashes);
    // Between the check and the lock a day could have gone by.
    if (stored.size !== hashes.length) throw new Fault('CONFLICT', 'Shards were removed meanwhile; upload them again.');
    const made = await transaction.datasetVersion.create({
      data: {
        datasetId: dataset.id,
        version,
        manifest: {},
        rows: BigInt(rows),
        trainRows: BigInt(read.trainRows),
        evalRows: BigInt(read.evalRows),
        bytes: BigInt(bytes),
        manifestBytes: BigInt(read.manifestBytes),
        columns,
        source,
        createdBy: apiKeyId,
      },
      select: { id: true },
    });
    // As text: it would be parsed and written again here, on the loop that serves everybody. A large one lies in the store alone.
    if (read.text !== undefined)
      await transaction.$executeRaw`UPDATE "DatasetVersion" SET "manifest" = ${read.text}::json WHERE "id" = ${made.id}::uuid`;
    for (let at = 0; at < hashes.length; at += LOOKED_UP_AT_ONCE) {
      const part = hashes.slice(at, at + LOOKED_UP_AT_ONCE);
      await transaction.datasetVersionShard.createMany({ data: part.map((sha256) => ({ versionId: made.id, teamId, sha256 })) });
    }
    return Object.assign(answer, { isNew: true });
  }
}

/** Bytes by hash, of those that are stored whole. */
async function storedShards(database: Database | Transaction, teamId: string, hashes: readonly string[]): Promise<Map<string, number>> {
  const found = new Map<string, number>();
  for (let at = 0; at < hashes.length; at += LOOKED_UP_AT_ONCE) {
    const sha256 = { in: hashes.slice(at, at + LOOKED_UP_AT_ONCE) };
    const rows = await database.datasetShard.findMany({
      where: { teamId, isComplete: true, sha256 },
      select: { sha256: true, bytes: true },
    });
    for (const row of rows) found.set(row.sha256, Number(row.bytes));
  }
  return found;
}

/** @throws Fault INVALID_INPUT */
export function requireDatasetName(name: string): void {
  const message = DATASET_NAME.test(name)
    ? (BUILT_IN_DATASETS as readonly string[]).includes(name)
      ? `${name} is a built-in dataset; choose another name`
      : undefined
    : 'must be a name of 1 to 64 lower-case letters, digits, dots, dashes and underscores';
  if (message !== undefined) throw issuesFault([{ path: 'name', message }]);
}

/** @throws Fault INVALID_INPUT */
function readSource(source: string): string {
  const text = source.trim();
  if (text.length > MAX_SOURCE_CHARACTERS || /[\p{Cc}\p{Cf}\p{Cs}]/u.test(text))
    throw issuesFault([{ path: 'source', message: `must have at most ${MAX_SOURCE_CHARACTERS} characters, and no control characters` }]);
  return text;
}
