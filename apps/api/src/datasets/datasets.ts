/**
 * Datasets that runs can name: those of the release, which every team sees, and the team's own. Another team's names, versions and hashes are
 * not there. What a version holds stands in its manifest; lists are read without it.
 */
import { Injectable } from '@nestjs/common';
import { datasetInfo } from '@paceline/data';
import {
  BUILT_IN_DATASETS,
  closest,
  DATASET_NAME,
  datasetManifestKey,
  DATASET_LIMITS,
  parseDatasetReference,
  type DatasetManifest,
} from '@paceline/spec';
import { Database } from '../database/database.js';
import type { Prisma } from '../generated/prisma/client.js';
import { encodeCursor, readPage, toConnection, type PageArgs } from '../graphql/cursor-pages.js';
import type { Viewer } from '../teams/authentication.js';
import { isUuid } from '../text-input.js';
import { DataStore } from './data-store.js';
import { Dataset, DatasetVersion } from './dataset.types.js';
import { ManifestChild } from './manifest-child.js';
import { ANSWERS, HELD_BYTES, HELD_COLUMNS, HELD_HEADER_BYTES, type Answer, type Asked, type Question } from './manifest-questions.js';
import { ManifestReads } from './manifest-reads.js';

const MAX_OWN = 1000;
const WITHOUT_MANIFEST = { manifest: true } as const satisfies Prisma.DatasetVersionOmit;
type VersionRow = Prisma.DatasetVersionGetPayload<{ omit: typeof WITHOUT_MANIFEST }>;
/** Built-in ones come first, each part by name. */
const CURSOR = [(part: string) => /^[01]$/.test(part), (part: string) => /^[a-z0-9._-]{1,64}$/.test(part)];

/** A version that a reference names. */
export interface FoundVersion {
  readonly id: string;
  readonly name: string;
  readonly version: string;
}

@Injectable()
export class Datasets {
  private readonly reads = new ManifestReads();

  constructor(
    private readonly database: Database,
    private readonly data: DataStore,
  ) {}

  /** At the start of the api: the rows follow the release. */
  async register(): Promise<void> {
    for (const name of BUILT_IN_DATASETS) {
      const { title, trainExamples, evalExamples, format, license, source } = datasetInfo(name);
      const data = { title, trainExamples, evalExamples, format, license, source };
      await this.database.dataset.upsert({ where: { name }, create: Object.assign({ name }, data), update: data });
    }
  }

  /** @throws Fault INVALID_INPUT */
  async list(viewer: Viewer, args: PageArgs) {
    const page = readPage('datasets', CURSOR, args, 50);
    const [builtIn, own] = await Promise.all([this.builtIn(), this.own(viewer)]);
    const keyOf = ({ isBuiltIn, name }: Dataset): readonly [string, string] => [isBuiltIn ? '0' : '1', name];
    const before = (a: readonly string[], b: readonly string[]): boolean => a[0]! < b[0]! || (a[0] === b[0] && a[1]! < b[1]!);
    const all = [...builtIn, ...own].sort((a, b) => (before(keyOf(a), keyOf(b)) ? -1 : 1));
    const rows = all.filter(
      (row) => !(page.after && !before(page.after, keyOf(row))) && !(page.before && !before(keyOf(row), page.before)),
    );
    if (page.backward) rows.reverse();
    return Object.assign(
      toConnection(
        page,
        rows.slice(0, page.size + 1),
        (row) => encodeCursor('datasets', ...keyOf(row)),
        (row) => row,
      ),
      { totalCount: all.length },
    );
  }

  /** @param idOrName of a built-in one the name is the id */
  async find(viewer: Viewer, idOrName: string): Promise<Dataset | null> {
    if (isUuid(idOrName)) return (await this.own(viewer, { id: idOrName }))[0] ?? null;
    if (!DATASET_NAME.test(idOrName)) return null;
    const row = await this.database.dataset.findUnique({ where: { name: idOrName } });
    if (row) return builtInDataset(row);
    return (await this.own(viewer, { name: idOrName }))[0] ?? null;
  }

  async versions(viewer: Viewer, datasetId: string, first: number): Promise<DatasetVersion[]> {
    if (!isUuid(datasetId)) return [];
    const rows = await this.database.datasetVersion.findMany({
      where: { datasetId, dataset: { teamId: viewer.teamId } },
      orderBy: [{ committedAt: 'desc' }, { id: 'desc' }],
      take: first,
      omit: WITHOUT_MANIFEST,
    });
    return rows.map(toVersion);
  }

  /** @param reference a version's id */
  async versionById(viewer: Viewer, id: string): Promise<DatasetVersion | null> {
    const row = isUuid(id)
      ? await this.database.datasetVersion.findFirst({ where: { id, dataset: { teamId: viewer.teamId } }, omit: WITHOUT_MANIFEST })
      : null;
    return row && toVersion(row);
  }

  /**
   * The version that a reference names: the newest, or the one whose hash begins so.
   * @returns what is wrong with the reference, for people
   */
  async resolve(teamId: string, reference: string): Promise<FoundVersion | { readonly message: string }> {
    const { name, version } = parseDatasetReference(reference);
    const rows = await this.database.datasetVersion.findMany({
      where: Object.assign({ dataset: { teamId, name } }, version === undefined ? {} : { version: { startsWith: version } }),
      orderBy: [{ committedAt: 'desc' }, { id: 'desc' }],
      take: 2,
      select: { id: true, version: true },
    });
    const [found] = rows;
    if (found && (rows.length === 1 || version === undefined)) return { id: found.id, name, version: found.version };
    if (found) return { message: `${rows.length} versions of ${name} begin with ${version}; write more of its digits` };
    return { message: await this.whyUnknown(teamId, name, version) };
  }

  /**
   * What the manifest of a version says, without holding it where it is large.
   * @returns null when the team has no such version @throws Fault TOO_BUSY, TOO_LARGE; what the answer throws
   */
  async ask<Q extends Question>(teamId: string, versionId: string, question: Q, asked: Asked<Q>): Promise<Answer<Q> | null> {
    const row = await this.sizeOf(teamId, versionId);
    if (!row) return null;
    if (Number(row.manifestBytes) > HELD_BYTES || row.columns > HELD_COLUMNS)
      return this.reads.inProcess(teamId, () => this.askProcess(teamId, row.version, question, asked));
    const finish = await this.reads.held(teamId, async () => {
      const manifest = await this.stored(versionId);
      return manifest && ANSWERS[question](manifest, asked);
    });
    if (!finish) return null;
    return this.reads.rows(teamId, () => finish({ teamId, headerBytes: HELD_HEADER_BYTES, use: (work) => this.data.use(work) }));
  }

  /**
   * @param work gets null when the team has no such version; what it returns must not keep the manifest
   * @throws Fault TOO_BUSY; TOO_LARGE when the manifest does not fit in the memory of the api
   */
  async withManifest<T>(teamId: string, versionId: string, work: (manifest: DatasetManifest | null) => T | Promise<T>): Promise<T> {
    const row = await this.sizeOf(teamId, versionId);
    if (!row) return work(null);
    if (Number(row.manifestBytes) <= HELD_BYTES) return this.reads.held(teamId, async () => work(await this.stored(versionId)));
    return this.reads.large(teamId, Number(row.manifestBytes), async () => {
      const key = datasetManifestKey(teamId, row.version);
      const bytes = await this.data.use((store) => store.read(key, 0, DATASET_LIMITS.manifestBytes));
      const text = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('utf8');
      return work(JSON.parse(text) as DatasetManifest);
    });
  }

  private async sizeOf(teamId: string, versionId: string): Promise<{ version: string; manifestBytes: bigint; columns: number } | null> {
    if (!isUuid(versionId)) return null;
    const where = { id: versionId, dataset: { teamId } };
    return this.database.datasetVersion.findFirst({ where, select: { version: true, manifestBytes: true, columns: true } });
  }

  private async stored(versionId: string): Promise<DatasetManifest | null> {
    const row = await this.database.datasetVersion.findUnique({ where: { id: versionId }, select: { manifest: true } });
    return row && (row.manifest as unknown as DatasetManifest);
  }

  private async askProcess<Q extends Question>(teamId: string, version: string, question: Q, asked: Asked<Q>): Promise<Answer<Q>> {
    const { url: storeUrl } = this.data;
    const child = new ManifestChild();
    try {
      return await this.data.use(() => child.answer({ storeUrl, teamId, version }, question, asked));
    } finally {
      await child.end();
    }
  }

  private async whyUnknown(teamId: string, name: string, version: string | undefined): Promise<string> {
    const own = await this.database.teamDataset.findMany({ where: { teamId }, select: { name: true }, take: MAX_OWN });
    if (own.some((row) => row.name === name)) return `${name} has no version that begins with ${version}; see paceline data show ${name}`;
    const names = [...own.map((row) => row.name), ...BUILT_IN_DATASETS];
    const meant = closest(name, names);
    const known = names.slice(0, 5).join(', ') + (names.length > 5 ? `, and ${names.length - 5} more` : '');
    return `there is no dataset ${JSON.stringify(name)}${meant === undefined ? `; there are ${known}` : `: did you mean ${meant}?`}`;
  }

  private async builtIn(): Promise<Dataset[]> {
    return (await this.database.dataset.findMany({ orderBy: { name: 'asc' }, take: MAX_OWN })).map(builtInDataset);
  }

  private async own({ teamId }: Viewer, which: Prisma.TeamDatasetWhereInput = {}): Promise<Dataset[]> {
    const rows = await this.database.teamDataset.findMany({
      where: Object.assign({ teamId, versions: { some: {} } }, which),
      orderBy: { name: 'asc' },
      take: MAX_OWN,
    });
    if (rows.length === 0) return [];
    const newest = await this.database.$queryRaw<Omit<VersionRow, 'manifestBytes'>[]>`
      SELECT DISTINCT ON ("datasetId") "id", "datasetId", "version", "rows", "trainRows", "evalRows", "bytes", "columns", "source",
             "createdAt", "committedAt", "createdBy"
        FROM "DatasetVersion" WHERE "datasetId" = ANY(${rows.map(({ id }) => id)}::uuid[])
       ORDER BY "datasetId", "committedAt" DESC, "id" DESC`;
    const byDataset = new Map(newest.map((row) => [row.datasetId, row]));
    return rows.flatMap(({ id, name, createdAt }) => {
      const version = byDataset.get(id);
      if (!version) return [];
      return [
        Object.assign(new Dataset(), {
          id,
          name,
          isBuiltIn: false,
          title: name,
          trainExamples: Number(version.trainRows),
          evalExamples: Number(version.evalRows),
          format: null,
          license: null,
          source: version.source,
          createdAt,
          newest: toVersion(version),
        }),
      ];
    });
  }
}

function builtInDataset(row: Prisma.DatasetGetPayload<object>): Dataset {
  return Object.assign(new Dataset(), row, { id: row.name, isBuiltIn: true, createdAt: null, newest: null });
}

function toVersion(row: Omit<VersionRow, 'manifestBytes'>): DatasetVersion {
  const { id, version, rows, bytes, columns, source, createdAt, createdBy } = row;
  return Object.assign(new DatasetVersion(), {
    id,
    version,
    rows: Number(rows),
    bytes: Number(bytes),
    columnCount: columns,
    source,
    createdAt,
    createdBy,
  });
}
