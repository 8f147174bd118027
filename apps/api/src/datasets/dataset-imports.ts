/**
 * Imports that the api carries out: asked for, they wait as rows; an api with a free place takes the oldest, beats while its process converts
 * it, and commits the version. An api that dies stops beating: another one, or the same after its restart, begins the import again, and finds
 * the shards that were stored. After so many beginnings it has failed.
 *
 *     PENDING -> IMPORTING -> READY | FAILED          IMPORTING -> PENDING when its api has died
 */
import { rm } from 'node:fs/promises';
import { setTimeout as pause } from 'node:timers/promises';
import { Inject, Injectable, type OnApplicationBootstrap, type OnModuleDestroy } from '@nestjs/common';
import type { Logger } from '@paceline/runtime';
import { WorkFailedError } from '../child-process.js';
import { BackgroundDatabase, Database } from '../database/database.js';
import { isDatabaseOutage } from '../database/outage.js';
import { Settings } from '../environment.js';
import { Fault } from '../fault.js';
import type { Prisma } from '../generated/prisma/client.js';
import { Conflict, InvalidInput, NotFound } from '../graphql/result.types.js';
import { IdempotencyKeys } from '../idempotency/idempotency-keys.js';
import { LOGGER } from '../logger.js';
import type { Viewer } from '../teams/authentication.js';
import { lockTeam } from '../teams/team-limits.js';
import { isUuid, storable } from '../text-input.js';
import { openWorkFolder } from '../work-folder.js';
import { CommitVersion, requireDatasetName } from './commit-version.js';
import { DataStore } from './data-store.js';
import { DatasetShards } from './dataset-shards.js';
import { DatasetImport, ImportDatasetSuccess } from './dataset.types.js';
import { importInProcess, type ImportPorts } from './import-child.js';
import { readImportRequest, type GivenImport, type ImportRequest } from './import-request.js';
import { uploadKey } from './raw-uploads.js';
import { databaseDate, databaseNow } from '../database/database-clock.js';

const AT_ONCE = 2;
const MAX_WAITING_OF_TEAM = 20;
const MAX_ATTEMPTS = 3;
const LOOK_EVERY_MS = 1_000;
const BEAT_EVERY_MS = 2_000;
const HAS_OPEN = `SELECT EXISTS (SELECT FROM "DatasetImport" WHERE "state" IN ('PENDING', 'IMPORTING')) AS "hasOpen"`;
const DEAD_AFTER_MS = 30_000;
/** Longer than an import may take. */
const LEFT_AFTER_MS = 86_400_000;

/** How long an outage may take before an import fails for it. */
const OUTLASTED_MS = 30 * 60_000;
const RETRY_PAUSE_MS = 2_000;
const MAX_SOURCE_CHARACTERS = 1000;

type Progress = Parameters<ImportPorts['progress']>[0];
interface Conversion {
  progress(of: Progress): void;
  /** @throws WorkFailedError when another api has it */
  requireMine(): Promise<void>;
  readonly signal: AbortSignal;
}
type Row = Prisma.DatasetImportGetPayload<object>;
type Outcome = ImportDatasetSuccess | InvalidInput | NotFound | Conflict;

@Injectable()
export class DatasetImports implements OnApplicationBootstrap, OnModuleDestroy {
  private timer: NodeJS.Timeout | undefined;
  private readonly stopping = new AbortController();
  private readonly running = new Map<string, Promise<void>>();
  private looking: Promise<void> | undefined;

  constructor(
    private readonly database: Database,
    private readonly background: BackgroundDatabase,
    private readonly keys: IdempotencyKeys,
    private readonly data: DataStore,
    private readonly shards: DatasetShards,
    private readonly commits: CommitVersion,
    private readonly settings: Settings,
    @Inject(LOGGER) private readonly log: Logger,
  ) {}

  onApplicationBootstrap(): void {
    if (this.data.isThere) this.timer = setInterval(() => this.look(), LOOK_EVERY_MS);
  }

  async onModuleDestroy(): Promise<void> {
    clearInterval(this.timer);
    this.stopping.abort();
    await this.looking;
    await Promise.all(this.running.values());
  }

  /** Whether it is this api that does. */
  carriesOut(id: string): boolean {
    return this.running.has(id);
  }

  /** @throws Fault INVALID_INPUT, SERVICE_UNAVAILABLE */
  start(viewer: Viewer, given: GivenImport, keyed: { key?: string | undefined; onReplay?: (() => void) | undefined }): Promise<Outcome> {
    return this.keys.once<Outcome>(
      viewer,
      { operation: 'importDataset', key: keyed.key, input: JSON.parse(JSON.stringify(given)) as unknown, onReplay: keyed.onReplay },
      async (remember) => {
        void this.data.url;
        const read = readImportRequest(given);
        if ('issues' in read) return new InvalidInput(read.issues);
        try {
          requireDatasetName(given.name);
        } catch (error) {
          if (error instanceof Fault && error.issues) return new InvalidInput(error.issues);
          throw error;
        }
        return this.database.transact(async (transaction) => {
          await lockTeam(transaction, viewer.teamId);
          const { teamId } = viewer;
          const touched = await transaction.datasetUpload.updateMany({
            where: { teamId, id: { in: [...read.uploads] }, isComplete: true },
            data: { touchedAt: new Date() },
          });
          if (touched.count !== read.uploads.length)
            return new NotFound('upload with one of these ids; it was imported, or is older than a day');
          const waiting = await transaction.datasetImport.count({ where: { teamId, state: { in: ['PENDING', 'IMPORTING'] } } });
          if (waiting >= MAX_WAITING_OF_TEAM) return new Conflict(`${waiting} imports of the team are under way; wait for one of them.`);
          const data = {
            teamId,
            name: given.name,
            request: storable(read) as unknown as Prisma.InputJsonObject,
            createdBy: viewer.apiKeyId,
          };
          const row = await transaction.datasetImport.create({ data });
          await remember(transaction, row.id);
          return new ImportDatasetSuccess(toImport(row));
        });
      },
      async (id) => new ImportDatasetSuccess(toImport(await this.database.datasetImport.findUniqueOrThrow({ where: { id } }))),
    );
  }

  async list({ teamId }: Viewer, first: number): Promise<DatasetImport[]> {
    const orderBy = [{ createdAt: 'desc' as const }, { id: 'desc' as const }];
    return (await this.database.datasetImport.findMany({ where: { teamId }, orderBy, take: first })).map(toImport);
  }

  async find({ teamId }: Viewer, id: string): Promise<DatasetImport | null> {
    const row = isUuid(id) ? await this.database.datasetImport.findFirst({ where: { id, teamId } }) : null;
    return row && toImport(row);
  }

  /** Takes what waits, as far as there is a free place; and gives back what a dead api holds. */
  private look(): void {
    if (this.looking || this.stopping.signal.aborted) return;
    this.looking = this.take()
      .catch((err: Error) => this.log.warn({ err: err.message }, 'imports could not be looked for'))
      .finally(() => (this.looking = undefined));
  }

  private async take(): Promise<void> {
    const [{ hasOpen } = { hasOpen: true }] = await this.background.statement<{ hasOpen: boolean }>('open-imports', HAS_OPEN);
    if (!hasOpen) return;
    // After an outage of the database this api's own imports look dead, and are not.
    const here = [...this.running.keys()];
    const dead = { id: { notIn: here }, state: 'IMPORTING' as const, beatAt: { lt: new Date(databaseNow() - DEAD_AFTER_MS) } };
    const tried = `It was begun ${MAX_ATTEMPTS} times, and each time the api that carried it out ended. Import it from your machine: paceline data import.`;
    for (const row of await this.background.datasetImport.findMany({ where: Object.assign({ attempts: { gte: MAX_ATTEMPTS } }, dead) }))
      await this.background.datasetImport.updateMany({
        where: Object.assign({}, dead, { id: row.id }),
        data: Object.assign({ state: 'FAILED' as const, reason: tried, finishedAt: new Date() }, forgotten(row)),
      });
    await this.background.datasetImport.updateMany({ where: dead, data: { state: 'PENDING', reason: 'the api was started again' } });
    while (this.running.size < AT_ONCE) {
      // One of each team at a time, the oldest first.
      const [taken] = await this.background.$queryRaw<{ id: string }[]>`
        UPDATE "DatasetImport" SET "state" = 'IMPORTING', "attempts" = "attempts" + 1, "startedAt" = coalesce("startedAt", now()), "beatAt" = now(), "reason" = NULL
         WHERE "id" = (SELECT "id" FROM "DatasetImport" AS waiting WHERE "state" = 'PENDING' AND "id" <> ALL(${[...this.running.keys()]}::uuid[])
                          AND NOT EXISTS (SELECT 1 FROM "DatasetImport" AS busy WHERE busy."teamId" = waiting."teamId" AND busy."state" = 'IMPORTING')
                        ORDER BY "createdAt" LIMIT 1 FOR UPDATE SKIP LOCKED)
        RETURNING "id"::text AS "id"`;
      if (!taken) return;
      const row = await this.background.datasetImport.findUniqueOrThrow({ where: { id: taken.id } });
      this.running.set(
        row.id,
        this.carryOut(row).finally(() => this.running.delete(row.id)),
      );
    }
  }

  private async carryOut(row: Row): Promise<void> {
    const { id, attempts } = row;
    // An api that was taken for dead has lost the import: what it still does with it changes nothing.
    const mine = { id, attempts, state: 'IMPORTING' as const };
    const lost = new AbortController();
    const signal = AbortSignal.any([this.stopping.signal, lost.signal]);
    const latest: { rows?: bigint; bytes?: bigint; totalBytes?: bigint | null } = {};
    const beat = setInterval(() => {
      this.background.datasetImport
        .updateMany({ where: mine, data: Object.assign({ beatAt: databaseDate() }, latest) })
        .then(({ count }) => void (count === 0 && lost.abort()))
        .catch((err: Error) => this.log.warn({ err: err.message, import: id }, 'the heartbeat of an import could not be stored'));
    }, BEAT_EVERY_MS);
    let end: Prisma.DatasetImportUpdateManyMutationInput;
    try {
      const requireMine = async (): Promise<void> => {
        if ((await this.background.datasetImport.count({ where: mine })) > 0) return;
        lost.abort();
        throw new WorkFailedError('another api carries the import out', false);
      };
      const progress = (of: Progress): void => {
        latest.rows = BigInt(of.rows);
        latest.bytes = BigInt(of.bytes);
        latest.totalBytes = of.totalBytes === null ? null : BigInt(of.totalBytes);
      };
      const { version, warnings } = await this.convert(row, { progress, requireMine, signal });
      const reason = warnings.length > 0 ? storable(warnings.join(' ').slice(0, 2000)) : null;
      end = Object.assign({ state: 'READY' as const, version, reason, finishedAt: new Date() }, forgotten(row), latest);
    } catch (error) {
      if (lost.signal.aborted) {
        this.log.warn({ import: id }, 'an import was taken over by another api');
        return;
      }
      end = this.ended(row, error);
    } finally {
      clearInterval(beat);
    }
    await outlasting(() => this.background.datasetImport.updateMany({ where: mine, data: end }), this.stopping.signal).catch((err: Error) =>
      this.log.error({ err: err.message, import: id }, 'the end of an import could not be stored; it is begun again'),
    );
  }

  private ended(row: Row, error: unknown): Prisma.DatasetImportUpdateManyMutationInput {
    if (this.stopping.signal.aborted)
      return { state: 'PENDING', reason: 'the api was stopped; it goes on with the next', attempts: { decrement: 1 } };
    const isSaid = error instanceof Fault || (error instanceof WorkFailedError && error.isOfUser);
    if (!isSaid) this.log.error({ err: error as Error, import: row.id }, 'an import failed');
    const reason = isSaid
      ? (error as Error).message
      : 'A fault in Paceline; the log of the api says more. Import it from your machine: paceline data import.';
    return Object.assign({ state: 'FAILED' as const, reason: storable(reason.slice(0, 2000)), finishedAt: new Date() }, forgotten(row));
  }

  private async convert(
    row: Row,
    { progress, requireMine, signal }: Conversion,
  ): Promise<{ version: string; warnings: readonly string[] }> {
    const { teamId, createdBy: apiKeyId, name } = row;
    const { sources, uploads, options } = row.request as unknown as ImportRequest;
    const where = { teamId, id: { in: [...uploads] }, isComplete: true };
    const files = await outlasting(() => this.background.datasetUpload.findMany({ where }), signal);
    if (files.length !== uploads.length) throw new WorkFailedError('A file that was uploaded for it is gone. Upload it again.', true);
    const inOrder = uploads.map((id) => files.find((file) => file.id === id)!);
    const by = { teamId, apiKeyId };
    const folder = await openWorkFolder(this.settings, 'imports', LEFT_AFTER_MS);
    const { manifest, warnings } = await importInProcess(
      {
        kind: 'begin',
        folder,
        storeUrl: this.data.url,
        teamId,
        sources,
        allowedHosts: this.settings.importHosts?.length ? this.settings.importHosts : undefined,
        uploads: inOrder.map(({ id, fileName }) => ({ key: uploadKey(teamId, id), fileName })),
        options,
      },
      {
        answer: (what, sha256, bytes) =>
          outlasting(async () => {
            await requireMine();
            if (what === 'has') return (await this.shards.find(by, sha256)) ? 'present' : 'go';
            if (what === 'announce') return (await this.shards.announce(by, sha256, bytes)) === 'present' ? 'present' : 'go';
            await this.shards.complete(by, sha256, bytes);
            return 'stored';
          }, signal),
        progress,
      },
      signal,
    ).finally(() => rm(folder, { recursive: true, force: true }));
    const source = inOrder.length > 0 ? inOrder.map(({ fileName }) => fileName).join(', ') : sources.map(withoutSecrets).join(', ');
    const { version } = await outlasting(async () => {
      await requireMine();
      return this.commits.commit(by, { name, manifest: Buffer.from(manifest), source: storable(cut(source)) });
    }, signal);
    try {
      await this.data.use((store) => store.remove(inOrder.map(({ id }) => uploadKey(teamId, id))));
      await this.background.datasetUpload.deleteMany({ where: { teamId, id: { in: [...uploads] } } });
    } catch (err) {
      // The version is there; the sweep removes them in a day.
      this.log.warn({ err: (err as Error).message, import: row.id }, 'files of an import could not be removed');
    }
    return { version, warnings };
  }
}

/** Waits out an outage of the database, and a line that is full: what an import has done in hours is not lost to them. */
async function outlasting<T>(work: () => Promise<T>, signal: AbortSignal): Promise<T> {
  const untilMs = Date.now() + OUTLASTED_MS;
  for (;;) {
    try {
      return await work();
    } catch (error) {
      const passes = isDatabaseOutage(error) || (error instanceof Fault && error.code === 'TOO_BUSY');
      if (!passes || signal.aborted || Date.now() > untilMs) throw error;
      await pause(RETRY_PAUSE_MS, undefined, { signal });
    }
  }
}

/** Characters of two units stay whole. */
const cut = (source: string): string => source.slice(0, MAX_SOURCE_CHARACTERS).replace(/[\ud800-\udbff]$/, '');

/** An import that is over needs its addresses no more, with what lets read there. */
function forgotten({ request }: Row): { request: Prisma.InputJsonObject } {
  const asked = request as unknown as ImportRequest;
  const kept: ImportRequest = Object.assign({}, asked, { sources: asked.sources.map(withoutSecrets) });
  return { request: kept as unknown as Prisma.InputJsonObject };
}

/** An address may carry a signature or a password. */
function withoutSecrets(address: string): string {
  if (!URL.canParse(address)) return address;
  const url = new URL(address);
  return `${url.protocol}//${url.host}${url.pathname}`;
}

function toImport(row: Row): DatasetImport {
  const { id, name, state, reason, rows, bytes, totalBytes, version, createdAt, finishedAt } = row;
  return Object.assign(new DatasetImport(), {
    id,
    name,
    state,
    reason,
    rows: Number(rows),
    bytes: Number(bytes),
    totalBytes: totalBytes === null ? null : Number(totalBytes),
    version,
    createdAt,
    finishedAt,
  });
}
