/**
 * Compares what should be with what is, for every active run, a few times a second: servers claimed, seat open, control hash there, wish
 * to cancel fulfilled, status right. It repairs what Redis lost and needs no memory of its own, so any api can take over.
 */
import { Injectable } from '@nestjs/common';
import { RedisUnavailableError } from '@paceline/jobs';
import { Database } from '../database/database.js';
import { isDatabaseOutage } from '../database/outage.js';
import { Fleet } from '../fleet/fleet.js';
import { isOver } from '../runs/run-status.js';
import { StatusMoves } from '../runs/status-moves.js';
import { readActiveRuns, RUNS_PER_TICK, type ActiveRun } from './active-run.js';
import { ackField, cancelField, Control } from './control.js';
import { Placements } from './placements.js';
import { Queues } from './queues.js';
import { Seats } from './seats.js';
import { queuedReason, waitsForWorker, type FleetCounts } from './waiting-reason.js';

/** A coordinator that does not answer to a cancel for this long is not waited for. */
export const CANCEL_DEADLINE_MS = 10_000;
const SWEEP_EVERY_MS = 2_000;

@Injectable()
export class Reconciler {
  private position: string | undefined;
  private sweptAt = 0;

  constructor(
    private readonly database: Database,
    private readonly fleet: Fleet,
    private readonly control: Control,
    private readonly placements: Placements,
    private readonly seats: Seats,
    private readonly queues: Queues,
    private readonly moves: StatusMoves,
  ) {}

  /** @returns runs that could not be looked at, with why @throws when PostgreSQL or Redis is away */
  async tick(): Promise<{ runId: string; error: Error }[]> {
    const rows = await readActiveRuns(this.database, this.position);
    this.position = rows.length === RUNS_PER_TICK ? rows.at(-1)!.row.id : undefined;
    const controls = await this.control.read(rows.map(({ row }) => row.id));
    const servers = await this.fleet.members('server');
    const counts = await this.fleetCounts();
    const failed: { runId: string; error: Error }[] = [];
    for (const row of rows) {
      const run: ActiveRun = { ...row, control: controls.get(row.row.id) ?? {} };
      try {
        await this.reconcile(run, servers, counts);
      } catch (error) {
        if (error instanceof RedisUnavailableError || isDatabaseOutage(error)) throw error; // the next run would meet it too
        failed.push({ runId: run.row.id, error: error as Error });
      }
    }
    await this.sweepQueues();
    return failed;
  }

  private async reconcile(run: ActiveRun, servers: Awaited<ReturnType<Fleet['members']>>, counts: FleetCounts): Promise<void> {
    const { row, attempt, control } = run;
    if (row.cancelRequestedAt) return this.cancel(run);
    const hasStarted = await this.placements.reconcile(run, servers);
    if (!control.ack && attempt.storedN > 0n) await this.control.write(row.id, { ack: ackField(row.attempt, attempt.storedN) });
    if (hasStarted) await this.seats.reconcile(run);
    if (row.status !== 'QUEUED' && row.status !== 'PROVISIONING') return;
    const noWorker = waitsForWorker(counts);
    if (row.status === 'QUEUED') {
      if (hasStarted && !noWorker)
        await this.moves.move(row.id, row.attempt, {
          to: 'PROVISIONING',
          reason: 'its servers are set up; a worker is about to take the first seat',
        });
      else await this.moves.explain(row.id, row.attempt, 'QUEUED', queuedReason(counts, run.serversNeeded, run.claimed.length));
    } else await this.moves.explain(row.id, row.attempt, 'PROVISIONING', noWorker ?? this.provisioningReason(run, counts));
  }

  private provisioningReason(run: ActiveRun, counts: FleetCounts): string {
    if ((run.coordinator?.seats.length ?? 0) > 0) return 'a worker has its seat and loads parameters and data';
    return counts.idleWorkers > 0
      ? 'its servers are set up; a worker is about to take the first seat'
      : 'waits for a worker: all are busy with other runs';
  }

  private async cancel(run: ActiveRun): Promise<void> {
    const { row, control } = run;
    const action = cancelField(row.attempt);
    if (control.action !== action) await this.control.write(row.id, { action });
    const waitedMs = Date.now() - row.cancelRequestedAt!.getTime();
    const hasCoordinator = run.claimed.some(({ index }) => index === 0);
    if (hasCoordinator && waitedMs < CANCEL_DEADLINE_MS) return;
    const reason = hasCoordinator
      ? `cancelled; its coordinator did not confirm within ${CANCEL_DEADLINE_MS / 1000} s`
      : 'cancelled before it began';
    await this.moves.move(row.id, row.attempt, { to: 'CANCELLED', reason });
  }

  private async fleetCounts(): Promise<FleetCounts> {
    const [workers, servers] = await Promise.all([this.fleet.list('worker'), this.fleet.list('server')]);
    const alive = { worker: workers.filter((row) => this.fleet.isAlive(row)), server: servers.filter((row) => this.fleet.isAlive(row)) };
    const right = alive.worker.filter((row) => this.fleet.isCompatible(row));
    return {
      liveWorkers: right.length,
      idleWorkers: right.filter(({ runId }) => runId === null).length,
      liveServers: alive.server.filter((row) => this.fleet.isCompatible(row)).length,
      incompatible: (['worker', 'server'] as const).flatMap((role) =>
        alive[role].filter((row) => !this.fleet.isCompatible(row)).map(({ id, protocolVersion }) => ({ role, id, protocolVersion })),
      ),
    };
  }

  /** Jobs that wait for nothing: of runs that are over, of seats that were closed while a dead worker held the job, forged ones. */
  private async sweepQueues(): Promise<void> {
    if (Date.now() - this.sweptAt < SWEEP_EVERY_MS) return;
    this.sweptAt = Date.now();
    for (const kind of ['step-task', 'placement'] as const) {
      const ids = await this.queues.waitingIds(kind);
      for (const id of ids) if (!(await this.isWanted(kind, id))) await this.queues.remove(kind, id);
    }
  }

  private async isWanted(kind: 'step-task' | 'placement', jobId: string): Promise<boolean> {
    const [, runId, attempt, part, n] = /^(?:step|place)-([0-9a-f-]{36})-a(\d+)-[si](\d+)-[nm](\d+)$/.exec(jobId) ?? [];
    if (!runId || attempt === undefined || part === undefined || n === undefined) return false;
    if (kind === 'step-task') {
      return (
        (await this.database.stepTask.count({
          where: { runId, attempt: Number(attempt), seat: Number(part), n: Number(n), state: 'OPEN' },
        })) > 0
      );
    }
    const server = await this.database.runServer.findUnique({
      where: { runId_attempt_index: { runId, attempt: Number(attempt), index: Number(part) } },
      include: { run: { select: { status: true, attempt: true } } },
    });
    return (
      server !== null &&
      server.made === Number(n) &&
      !server.claimedAt &&
      server.run.attempt === Number(attempt) &&
      !isOver(server.run.status)
    );
  }
}
