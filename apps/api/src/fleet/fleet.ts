/**
 * The fleet: the workers and servers that are there. They send a heartbeat every second; the newest is kept in memory and written to PostgreSQL at most
 * every 2 s, so that other apis and the next start know it too. Nothing for 5 s means LOST.
 *
 * Silence proves nothing while nobody could hear: `ReportContinuity` (libs/control-plane) says when it does.
 */
import { Inject, Injectable, type OnModuleDestroy } from '@nestjs/common';
import { ReportContinuity, LOST_AFTER_MS, type EngineDeviceRecord, type EngineRecord, type FleetMember } from '@paceline/control-plane';
import { PROTOCOL_VERSION } from '@paceline/protocol';
import type { Logger } from '@paceline/runtime';
import { databaseNow, steadyNow } from '../database/database-clock.js';
import { BackgroundDatabase } from '../database/database.js';
import type { Server, Worker } from '../generated/prisma/client.js';
import { LOGGER } from '../logger.js';
import { storable } from '../text-input.js';

export type FleetRole = 'worker' | 'server';
export interface FleetRow extends Omit<FleetMember, 'startedAtMs'> {
  readonly startedAtMs: number;
  /** On the clock of the database: apis tell each other. */
  readonly lastSeenMs: number;
  readonly hasLeft: boolean;
}

const FLUSH_EVERY_MS = 2_000;
const REFRESH_EVERY_MS = 1_000;
const SHOWN_FOR_MS = 600_000;
const MAX_MEMBERS = 5_000;
const TABLES = { worker: 'Worker', server: 'Server' } as const;
const readOf = (role: FleetRole): string => `SELECT * FROM "${TABLES[role]}" WHERE "lastSeenAt" >= $1 LIMIT ${MAX_MEMBERS}`;
const READ = { worker: readOf('worker'), server: readOf('server') };
type StoredWorker = Worker & Record<string, unknown>;
type StoredServer = Server & Record<string, unknown>;

/** Columns of workers, and what is stored where a heartbeat leaves one out. */
const DEFAULTS: ReadonlyMap<string, string> = new Map([
  ['"engines"', "'[]'"],
  ['"devices"', "'[]'"],
  ['"holdsShards"', 'true'],
]);

interface Entry {
  row: FleetRow;
  isDirty: boolean;
}

@Injectable()
export class Fleet implements OnModuleDestroy {
  private readonly known: Record<FleetRole, Map<string, Entry>> = { worker: new Map(), server: new Map() };
  private readonly continuity = new ReportContinuity();
  /** What keeps everybody from being heard, as far as that is known. */
  private deafness: string | undefined;
  private refreshedAt = 0;
  private refreshing: Promise<void> | undefined;
  private timer: NodeJS.Timeout | undefined;
  private flushing: Promise<void> | undefined;

  constructor(
    private readonly database: BackgroundDatabase,
    @Inject(LOGGER) private readonly log: Logger,
  ) {}

  start(): void {
    this.timer = setInterval(() => void (this.flushing ??= this.flush().finally(() => (this.flushing = undefined))), FLUSH_EVERY_MS);
  }

  async onModuleDestroy(): Promise<void> {
    clearInterval(this.timer);
    await this.flushing;
    await this.flush(); // so that the next start knows whom this one heard last
  }

  heartbeat(role: FleetRole, member: FleetMember): void {
    const members = this.known[role];
    if (!members.has(member.id) && members.size >= MAX_MEMBERS) this.forgetOldest(members);
    // One that was read late does not undo the goodbye of the same process.
    const known = members.get(member.id)?.row;
    const hasLeft = known?.hasLeft === true && known.startedAtMs === member.startedAtMs;
    members.set(member.id, { row: { ...storable(member), lastSeenMs: databaseNow(), hasLeft }, isDirty: true });
  }

  goodbye(role: FleetRole, id: string): void {
    const entry = this.known[role].get(id);
    // It is newer than any heartbeat, also where another api has read the last of those.
    if (entry) this.known[role].set(id, { row: { ...entry.row, lastSeenMs: databaseNow(), hasLeft: true }, isDirty: true });
  }

  /** The report stream was read just now, whatever was in it. */
  heard(): void {
    if (this.deafness === undefined) this.continuity.heard(steadyNow());
  }

  /** @param why in the words of a status reason; reports are not believed to come until `hears` */
  deaf(why = this.deafness): void {
    this.deafness = why;
    this.continuity.lost();
  }

  hears(): void {
    this.deafness = undefined;
  }

  /** What runs wait for while nobody can be heard. */
  get waitsFor(): string | undefined {
    return this.deafness;
  }

  /** Whether silence means something now. */
  isReliable(now = steadyNow()): boolean {
    return this.continuity.isReliable(now);
  }

  /** For how long reports have been read without a gap. */
  reliableForMs(now = steadyNow()): number {
    return this.continuity.forMs(now);
  }

  /** Everybody who was seen lately, those who left excepted. @throws when PostgreSQL is away */
  async list(role: FleetRole): Promise<FleetRow[]> {
    return (await this.members(role)).filter((row) => !row.hasLeft);
  }

  /** Those who left included. @throws when PostgreSQL is away */
  async members(role: FleetRole): Promise<FleetRow[]> {
    await this.refresh();
    const since = databaseNow() - SHOWN_FOR_MS;
    return [...this.known[role].values()].map(({ row }) => row).filter((row) => row.lastSeenMs >= since);
  }

  async find(role: FleetRole, id: string): Promise<FleetRow | undefined> {
    return (await this.list(role)).find((row) => row.id === id);
  }

  isAlive(row: FleetRow, now = databaseNow(), silenceMs = LOST_AFTER_MS): boolean {
    return !row.hasLeft && now - row.lastSeenMs <= silenceMs;
  }

  /** A part of a run is placed on it: servers, and workers that say so. */
  holdsShards({ holdsShards = true }: FleetRow): boolean {
    return holdsShards;
  }

  isCompatible(row: FleetRow): boolean {
    return row.protocolVersion === PROTOCOL_VERSION;
  }

  /** What other apis wrote, and what this one knew before its start. */
  private async refresh(): Promise<void> {
    if (steadyNow() - this.refreshedAt < REFRESH_EVERY_MS) return;
    // One tick asks for the members of both roles, and twice.
    await (this.refreshing ??= this.read().finally(() => (this.refreshing = undefined)));
  }

  private async read(): Promise<void> {
    const now = steadyNow();
    const since = [new Date(databaseNow() - SHOWN_FOR_MS)];
    const [workers, servers] = await Promise.all([
      this.database.statement<StoredWorker>('workers-seen', READ.worker, since),
      this.database.statement<StoredServer>('servers-seen', READ.server, since),
    ]);
    this.refreshedAt = now;
    for (const [role, rows] of [
      ['worker', workers],
      ['server', servers],
    ] as const) {
      for (const row of rows) {
        const newest = this.known[role].get(row.id)?.row;
        const lastSeenMs = row.lastSeenAt.getTime();
        const tellsGoodbye = row.leftAt !== null && newest?.hasLeft === false && newest.startedAtMs === row.startedAt.getTime();
        if (newest && newest.lastSeenMs >= lastSeenMs && !tellsGoodbye) continue;
        const { id, host, pid, version, protocolVersion, runId } = row;
        this.known[role].set(id, {
          isDirty: false,
          row: {
            id,
            host,
            pid,
            version,
            protocolVersion,
            runId,
            rssBytes: Number(row.rssBytes),
            ...(row.memoryBytes === null ? {} : { memoryBytes: Number(row.memoryBytes) }),
            startedAtMs: row.startedAt.getTime(),
            lastSeenMs,
            hasLeft: row.leftAt !== null,
            ...('fingerprint' in row ? engineOf(row as StoredWorker) : { fingerprint: null }),
          },
        });
      }
    }
  }

  private async flush(): Promise<void> {
    for (const role of ['worker', 'server'] as const) {
      const dirty = [...this.known[role].values()].filter((entry) => entry.isDirty);
      if (dirty.length === 0) continue;
      for (const entry of dirty) entry.isDirty = false;
      try {
        await this.write(
          role,
          dirty.map(({ row }) => row),
        );
      } catch (error) {
        for (const entry of dirty) entry.isDirty = true;
        this.log.debug({ err: (error as Error).message }, 'heartbeats wait for PostgreSQL');
      }
    }
    this.forgetOld();
  }

  /** One statement for all; an older heartbeat never overwrites a newer one, nor the goodbye of the same process. */
  private async write(role: FleetRole, rows: readonly FleetRow[]): Promise<void> {
    const table = TABLES[role];
    const columns = role === 'worker' ? ['"fingerprint"', '"engines"', '"devices"', '"dataStore"', '"holdsShards"'] : [];
    const [own, given, replaced] = [
      columns.map((column) => `${column}, `),
      columns.map((column) => (DEFAULTS.has(column) ? `coalesce(x.${column}, ${DEFAULTS.get(column)}), ` : `x.${column}, `)),
      columns.map((column) => `${column} = excluded.${column}, `),
    ].map((texts) => texts.join(''));
    await this.database.statement(
      `${role}s-heard`,
      `INSERT INTO "${table}" ("id", "host", "pid", ${own}"version", "protocolVersion", "rssBytes", "memoryBytes", "startedAt", "lastSeenAt", "leftAt", "runId")
       SELECT x."id", x."host", x."pid", ${given}x."version", x."protocolVersion", x."rssBytes", x."memoryBytes", to_timestamp(x."startedAtMs" / 1000.0),
              to_timestamp(x."lastSeenMs" / 1000.0), CASE WHEN x."hasLeft" THEN now() END, x."runId"
       FROM jsonb_to_recordset($1::jsonb) AS x("id" text, "host" text, "pid" int, "fingerprint" text, "engines" jsonb, "devices" jsonb, "dataStore" text, "holdsShards" boolean, "version" text, "protocolVersion" int,
            "rssBytes" bigint, "memoryBytes" bigint, "startedAtMs" float8, "lastSeenMs" float8, "hasLeft" boolean, "runId" uuid)
       ON CONFLICT ("id") DO UPDATE SET "host" = excluded."host", "pid" = excluded."pid", ${replaced}"version" = excluded."version",
         "protocolVersion" = excluded."protocolVersion", "rssBytes" = excluded."rssBytes", "memoryBytes" = excluded."memoryBytes", "startedAt" = excluded."startedAt",
         "lastSeenAt" = excluded."lastSeenAt", "runId" = excluded."runId",
         "leftAt" = CASE WHEN "${table}"."startedAt" = excluded."startedAt" THEN coalesce("${table}"."leftAt", excluded."leftAt") ELSE excluded."leftAt" END
       WHERE "${table}"."lastSeenAt" <= excluded."lastSeenAt"`,
      [JSON.stringify(rows)],
    );
  }

  private forgetOld(): void {
    const since = databaseNow() - SHOWN_FOR_MS;
    for (const members of Object.values(this.known)) {
      for (const [id, { row, isDirty }] of members) if (row.lastSeenMs < since && !isDirty) members.delete(id);
    }
  }

  private forgetOldest(members: Map<string, Entry>): void {
    const [oldest] = [...members].sort(([, a], [, b]) => a.row.lastSeenMs - b.row.lastSeenMs);
    if (oldest) members.delete(oldest[0]);
  }
}

/** Written by heartbeats, which were checked. */
const engineOf = ({ fingerprint, engines, devices, dataStore, holdsShards }: Worker) => ({
  fingerprint,
  dataStore,
  holdsShards,
  engines: engines as unknown as EngineRecord[],
  devices: devices as unknown as EngineDeviceRecord[],
});
