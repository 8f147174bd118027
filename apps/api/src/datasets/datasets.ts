/**
 * Datasets that runs can name: those of the release, which every team sees, and the team's own. Another team's names, versions and hashes are
 * not there. What a version holds stands in its manifest; lists are read without it.
 */
import { Injectable } from '@nestjs/common';
import { datasetInfo } from '@paceline/data';
import { BUILT_IN_DATASETS, closest, DATASET_NAME, parseDatasetReference, SPLITS, type Column, type DatasetManifest } from '@paceline/spec';
import { Database } from '../database/database.js';
import type { Prisma } from '../generated/prisma/client.js';
import { encodeCursor, readPage, toConnection, type PageArgs } from '../graphql/cursor-pages.js';
import type { Viewer } from '../teams/authentication.js';
import { isUuid } from '../text-input.js';
import { ManifestReads } from './manifest-reads.js';
import { Dataset, DatasetColumn, DatasetSchema, DatasetVersion } from './dataset.types.js';

const MAX_OWN = 1000;
const SHOWN_ENTRIES = 100;
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

  constructor(private readonly database: Database) {}

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

  /** @param work gets null when the team has no such version; what it returns must not keep the manifest @throws Fault TOO_BUSY */
  withManifest<T>(teamId: string, versionId: string, work: (manifest: DatasetManifest | null) => T | Promise<T>): Promise<T> {
    const read = async (): Promise<DatasetManifest | null> => {
      const where = { id: versionId, dataset: { teamId } };
      const row = isUuid(versionId) ? await this.database.datasetVersion.findFirst({ where, select: { manifest: true } }) : null;
      return row && (row.manifest as unknown as DatasetManifest);
    };
    return this.reads.use(teamId, versionId, read, work);
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

/** @param first columns that are shown, from `offset` on */
export function schemaOf(manifest: DatasetManifest, first: number, offset: number): DatasetSchema {
  const splits = SPLITS.flatMap((name) => {
    const split = manifest.splits[name];
    if (!split) return [];
    const bytes = split.shards.reduce((sum, shard) => sum + shard.bytes, 0);
    return [{ name, rows: split.rows, bytes, shards: split.shards.length }];
  });
  return {
    columns: manifest.columns.slice(offset, offset + first).map(columnOf),
    label: manifest.label ?? null,
    untrainedClasses: untrainedClassesOf(manifest),
    splits,
    isOrdered: manifest.isOrdered,
    droppedRows: manifest.dropped.missing,
  };
}

function untrainedClassesOf({ columns, label }: DatasetManifest): string[] {
  const column = columns.find(({ name }) => name === label);
  if (column?.kind !== 'category') return [];
  return column.vocabulary.filter((_, code) => column.statistics.counts[code] === 0).slice(0, SHOWN_ENTRIES);
}

function columnOf(column: Column): DatasetColumn {
  const { name, kind } = column;
  const shown: DatasetColumn = {
    name,
    kind,
    dtype: 'dtype' in column ? column.dtype : null,
    shape: 'shape' in column ? column.shape : null,
    vocabularySize: kind === 'category' ? column.vocabulary.length : null,
    vocabulary: kind === 'category' ? column.vocabulary.slice(0, SHOWN_ENTRIES) : null,
    statistics: statisticsOf(column),
  };
  return Object.assign(new DatasetColumn(), shown);
}

function statisticsOf(column: Column): unknown {
  switch (column.kind) {
    case 'number':
    case 'array':
      return column.statistics;
    case 'category': {
      const { count, missing, counts } = column.statistics;
      return { count, missing, counts: counts.slice(0, SHOWN_ENTRIES) };
    }
    case 'sequence':
      return { values: column.statistics, lengths: column.lengths };
    case 'text':
      return { lengths: column.lengths };
    case 'image':
      return { heights: column.heights, widths: column.widths, channels: column.channels };
  }
}
