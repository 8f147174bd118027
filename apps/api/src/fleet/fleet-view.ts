/** The fleet as a team sees it: all processes, but runs of other teams stay unseen. */
import { Injectable } from '@nestjs/common';
import { Batch } from '../database/batch.js';
import { Database } from '../database/database.js';
import type { Viewer } from '../teams/authentication.js';
import { Fleet, type FleetRow } from './fleet.js';
import { Server, Worker, WorkerStatus } from './fleet.types.js';

@Injectable()
export class FleetView {
  /** A run's step tasks ask for their workers one by one. */
  private readonly teamOfRun: Batch<string, { id: string; teamId: string }>;

  constructor(
    private readonly fleet: Fleet,
    database: Database,
  ) {
    const read = (ids: readonly string[]) =>
      database.rows<{ id: string; teamId: string }>('run-teams', 'SELECT "id", "teamId" FROM "Run" WHERE "id" = ANY($1::uuid[])', [ids]);
    this.teamOfRun = new Batch(read, { ofKey: (id) => id, ofRow: ({ id }) => id });
  }

  async workers(viewer: Viewer): Promise<Worker[]> {
    const rows = await this.fleet.list('worker');
    const own = await this.ownRuns(viewer, rows);
    return rows.map((row) => this.toWorker(row, own));
  }

  async servers(viewer: Viewer): Promise<Server[]> {
    const rows = await this.fleet.list('server');
    const own = await this.ownRuns(viewer, rows);
    return rows.map((row) => this.toServer(row, own));
  }

  async worker(viewer: Viewer, id: string): Promise<Worker | null> {
    const row = await this.fleet.find('worker', id);
    return row ? this.toWorker(row, await this.ownRuns(viewer, [row])) : null;
  }

  async server(viewer: Viewer, id: string): Promise<Server | null> {
    const row = await this.fleet.find('server', id);
    return row ? this.toServer(row, await this.ownRuns(viewer, [row])) : null;
  }

  private async ownRuns({ teamId }: Viewer, rows: readonly FleetRow[]): Promise<ReadonlySet<string>> {
    const ids = [...new Set(rows.flatMap(({ runId }) => runId ?? []))];
    const runs = await Promise.all(ids.map((id) => this.teamOfRun.load(id)));
    return new Set(runs.flat().flatMap((run) => (run.teamId === teamId ? [run.id] : [])));
  }

  private process(row: FleetRow, own: ReadonlySet<string>) {
    const status = !this.fleet.isAlive(row)
      ? WorkerStatus.LOST
      : !this.fleet.isCompatible(row)
        ? WorkerStatus.INCOMPATIBLE
        : row.runId
          ? WorkerStatus.BUSY
          : WorkerStatus.IDLE;
    const { id, host, pid, version, protocolVersion, rssBytes, runId } = row;
    return {
      id,
      name: id,
      host,
      pid,
      version,
      protocolVersion,
      rssBytes,
      status,
      lastSeenAt: new Date(row.lastSeenMs),
      startedAt: new Date(row.startedAtMs),
      runId: runId !== null && own.has(runId) ? runId : null,
    };
  }

  private toWorker(row: FleetRow, own: ReadonlySet<string>): Worker {
    return Object.assign(new Worker(), this.process(row, own), {
      engine: row.fingerprint,
      engines: row.engines ?? [],
      devices: row.devices ?? [],
    });
  }

  private toServer(row: FleetRow, own: ReadonlySet<string>): Server {
    return Object.assign(new Server(), this.process(row, own));
  }
}
