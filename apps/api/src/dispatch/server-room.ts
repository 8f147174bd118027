/** Reads what the servers hold of all runs, for `memoryWaits` (libs/control-plane): why a placement that waits is taken by nobody. */
import { Injectable } from '@nestjs/common';
import { memoryWaits, type MemoryWait, type ObservedRun, type RunStatus, type UnplacedRun } from '@paceline/control-plane';
import { serverPartBytes } from '@paceline/spec';
import { BackgroundDatabase } from '../database/database.js';
import { Fleet } from '../fleet/fleet.js';
import type { ShortSpec } from '../runs/run-columns.js';
import { LIVE_STATUSES } from './shares.js';
import { databaseNow } from '../database/database-clock.js';

/** A server that takes a part says so long before. */
const EXPECTED_WITHIN_MS = 3_000;
const READ_EVERY_MS = 1_000;
/** What a run needs is remembered, per attempt: its model is large, and PostgreSQL reads it for the number that is asked for. */
const MAX_REMEMBERED = 10_000;
const PAGE = 100;
const READ = `
  SELECT "id", "attempt", "shortSpec", "parameterCount", ("model"->>'stateCount')::bigint AS "stateCount" FROM "Run" WHERE "id" = ANY($1::uuid[])`;

interface Read {
  readonly id: string;
  readonly attempt: number;
  readonly shortSpec: ShortSpec;
  readonly parameterCount: string;
  readonly stateCount: string;
}

@Injectable()
export class ServerRoom {
  private readonly bytesOf = new Map<string, number>();
  private last: { readonly of: string; readonly waits: ReadonlyMap<string, MemoryWait>; readonly atMs: number } | undefined;

  constructor(
    private readonly database: BackgroundDatabase,
    private readonly fleet: Fleet,
  ) {}

  /** @throws when PostgreSQL is away */
  async waits(runs: readonly ObservedRun[], now = databaseNow()): Promise<ReadonlyMap<string, MemoryWait> | undefined> {
    const unplaced = runs.filter((run) => isUnplaced(run, now));
    if (unplaced.length === 0) return undefined;
    // The dispatcher asks with one page of runs after the other: the answer stands for one page.
    const of = unplaced.map(({ runId, attempt }) => keyOf(runId, attempt)).join();
    if (this.last?.of !== of || now - this.last.atMs >= READ_EVERY_MS) this.last = { of, waits: await this.read(unplaced), atMs: now };
    return this.last.waits;
  }

  private async read(unplaced: readonly ObservedRun[]): Promise<ReadonlyMap<string, MemoryWait>> {
    const { fleet } = this;
    const servers = (await fleet.list('server')).filter((row) => fleet.isAlive(row) && fleet.isCompatible(row));
    const rows = await this.database.runServer.findMany({
      where: { serverId: { in: servers.map(({ id }) => id) }, droppedAt: null, run: { status: { in: LIVE_STATUSES } } },
      select: {
        runId: true,
        attempt: true,
        serverId: true,
        claimedAt: true,
        run: { select: { attempt: true, status: true, serverCount: true } },
      },
    });
    const present = rows.filter(({ attempt, run }) => run.attempt === attempt);
    await this.remember([...present, ...unplaced]);
    const bytesOf = ({ runId, attempt }: { runId: string; attempt: number }): number => this.bytesOf.get(keyOf(runId, attempt)) ?? 0;
    const waiting: UnplacedRun[] = unplaced.map((run) => ({ runId: run.runId, bytes: bytesOf(run) }));
    const parts = present.map((row) => ({
      runId: row.runId,
      serverId: row.serverId!,
      bytes: bytesOf(row),
      waitsSinceMs: waitsSince(row, present),
    }));
    return memoryWaits(
      waiting,
      servers,
      parts.filter(({ bytes }) => bytes > 0),
    );
  }

  private async remember(runs: readonly { readonly runId: string; readonly attempt: number }[]): Promise<void> {
    const unknown = (): string[] => [
      ...new Set(runs.filter((run) => !this.bytesOf.has(keyOf(run.runId, run.attempt))).map(({ runId }) => runId)),
    ];
    // What is forgotten and needed now is read again.
    if (this.bytesOf.size + unknown().length > MAX_REMEMBERED) this.bytesOf.clear();
    const ids = unknown();
    for (let i = 0; i < ids.length; i += PAGE) {
      for (const row of await this.database.statement<Read & Record<string, unknown>>('server-room', READ, [ids.slice(i, i + PAGE)])) {
        const model = { parameterCount: Number(row.parameterCount), stateCount: Number(row.stateCount) };
        this.bytesOf.set(keyOf(row.id, row.attempt), serverPartBytes(row.shortSpec, model));
      }
    }
  }
}

interface PlacedRow {
  readonly runId: string;
  readonly claimedAt: Date | null;
  readonly run: { readonly status: RunStatus; readonly serverCount: number };
}

/** The last claim of a run that has not all of its servers. */
function waitsSince({ runId, run }: PlacedRow, rows: readonly PlacedRow[]): number | undefined {
  if (run.status !== 'QUEUED') return undefined;
  const own = rows.filter((row) => row.runId === runId);
  return own.length < run.serverCount ? Math.max(...own.map(({ claimedAt }) => claimedAt?.getTime() ?? 0)) : undefined;
}

const keyOf = (runId: string, attempt: number): string => `${runId}/${attempt}`;

const isUnplaced = ({ status, shardHosts, servers }: ObservedRun, now: number): boolean =>
  status === 'QUEUED' &&
  shardHosts !== 'workers' &&
  servers.some(({ claim, madeAtMs }) => claim === null && now - madeAtMs > EXPECTED_WITHIN_MS);
