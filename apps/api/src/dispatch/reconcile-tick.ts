/** One tick of the reconciler (libs/control-plane) over PostgreSQL, Redis and the fleet. */
import { Injectable } from '@nestjs/common';
import {
  isPlacementWanted,
  JobStates,
  observedRunOf,
  Reconciler,
  RedisUnavailableError,
  type ConfirmLock,
  type JobKind,
  type JobName,
  type RunPage,
  type ObservedFleet,
  type ObservedRun,
  type SeatFailure,
  type ServerHealth,
  type SpareWorkers,
  shardWorkersFor,
  spareWorkersFor,
} from '@paceline/control-plane';
import { BackgroundDatabase } from '../database/database.js';
import { isDatabaseOutage } from '../database/outage.js';
import { ServerHealthReader } from '../fleet/server-health.js';
import { ControlHashes } from './control-hashes.js';
import { Executor } from './executor.js';
import { OpenWork } from './open-work.js';
import { Queues } from './queues.js';
import { ServerRoom } from './server-room.js';
import { runsOn, Shares } from './shares.js';
import { readRunsInHand, RUNS_PER_TICK } from './runs-in-hand.js';
import { databaseNow } from '../database/database-clock.js';

/** Nothing is decided about who beats every second. */
const HEARD_WITHIN_MS = 1_200;
const isHeard = (seen: ServerHealth | undefined): boolean => seen !== undefined && !seen.hasLeft && seen.silentMs <= HEARD_WITHIN_MS;

@Injectable()
export class ReconcileTick {
  private readonly runs: Reconciler;
  private hasWorkerLimits = true;
  /** The last look found some: most likely there are some now. */
  private hasRuns = false;
  /** The runs are read in several pages. */
  private hasPages = false;

  constructor(
    private readonly database: BackgroundDatabase,
    sightings: ServerHealthReader,
    private readonly control: ControlHashes,
    executor: Executor,
    queues: Queues,
    shares: Shares,
    room: ServerRoom,
    private readonly openWork: OpenWork,
  ) {
    const jobs = new JobStates({
      stateOf: (kind, jobId) => queues.stateOf(kind, jobId),
      isUnsent: async (jobId) => (await database.outbox.count({ where: { jobId, sentAt: null } })) > 0,
    });
    this.runs = new Reconciler({
      now: databaseNow,
      readRuns: (afterId, confirmLock) => this.read(afterId, confirmLock),
      fleet: async (placed, runs) => {
        const [fleet, waiting, seatRoom, memory] = await Promise.all([
          sightings.observe(placed),
          // Others have their places.
          runs.some(({ status }) => status === 'QUEUED') ? shares.read().then((read) => read.waiting) : undefined,
          this.hasWorkerLimits || shares.isEveryTeamLimited ? shares.seatRoom() : undefined,
          room.waits(runs),
        ]);
        const quiet = placed.filter(({ serverId }) => !isHeard(fleet.servers.get(serverId)));
        return {
          ...fleet,
          shardWorkersFor: shardWorkersFor(runs, fleet.counts.shardWorkers ?? fleet.counts.liveWorkers),
          // Where there are more runs than a page, others may wait.
          ...(this.hasPages ? {} : { spareWorkersFor: spareWorkersFor(runs, this.spare(fleet, seatRoom, waiting)) }),
          ...(waiting ? { waiting } : {}),
          ...(seatRoom ? { seatRoom } : {}),
          ...(memory ? { memory } : {}),
          runsOn: await runsOn(
            database,
            quiet.map(({ serverId }) => serverId),
          ),
        };
      },
      jobs: (run, now, confirmLock) => jobs.of(run, now, confirmLock),
      carryOut: (run, action) => executor.carryOut(run, action),
      waitingIds: (kind) => queues.waitingIds(kind),
      isWanted: (kind, name) => this.isWanted(kind, name),
      remove: (kind, jobId) => queues.remove(kind, jobId),
      isOutage: (error) => error instanceof RedisUnavailableError || isDatabaseOutage(error),
    });
  }

  /** @returns runs that could not be looked at, with why @throws when PostgreSQL or Redis is away, or the lock is lost */
  tick(confirmLock: ConfirmLock): Promise<{ runId: string; error: Error }[]> {
    return this.runs.tick(confirmLock);
  }

  /** How many were carried out so far. */
  get actions(): number {
    return this.runs.actions;
  }

  private spare({ counts }: ObservedFleet, seatRoom: SpareWorkers['seatRoom'], waiting: SpareWorkers['waiting']): SpareWorkers {
    return {
      idle: counts.shardWorkersIdle ?? 0,
      connected: counts.shardWorkers ?? counts.liveWorkers,
      now: databaseNow(),
      ...(seatRoom ? { seatRoom } : {}),
      ...(waiting ? { waiting } : {}),
    };
  }

  private async read(afterId: string | undefined, confirmLock: ConfirmLock): Promise<RunPage> {
    if (!this.hasRuns && !(await this.openWork.hasRuns())) return { runs: [], nextAfterId: undefined };
    const { rows, hasWorkerLimits } = await readRunsInHand(this.database, afterId);
    this.hasRuns = rows.length > 0 || afterId !== undefined;
    this.hasWorkerLimits = hasWorkerLimits;
    const nextAfterId = rows.length === RUNS_PER_TICK ? rows.at(-1)!.id : undefined;
    this.hasPages = afterId !== undefined || nextAfterId !== undefined;
    await confirmLock();
    const controls = await this.control.read(rows.map(({ id }) => id));
    const observedRuns: ObservedRun[] = [];
    for (const row of rows) {
      await confirmLock();
      const hasFailures = row.attempts.some(({ number, seatFailures }) => number === row.attempt && seatFailures > 0);
      const failure = hasFailures ? await this.lastSeatFailure(row.id, row.attempt) : null;
      const observed = observedRunOf(row, controls.get(row.id) ?? {}, failure);
      if (observed) observedRuns.push(observed);
    }
    return { runs: observedRuns, nextAfterId };
  }

  private async lastSeatFailure(runId: string, attempt: number): Promise<SeatFailure | null> {
    const last = await this.database.runEvent.findFirst({ where: { runId, attempt, type: 'seat.failed' }, orderBy: { seq: 'desc' } });
    if (!last) return null;
    const { code } = last.data as { code?: unknown };
    return { code: typeof code === 'string' ? code : '', message: last.message };
  }

  private async isWanted(kind: JobKind, name: JobName): Promise<boolean> {
    const { runId, attempt, part, role, incarnation } = name;
    if (kind === 'step-task')
      return (await this.database.stepTask.count({ where: { runId, attempt, seat: part, incarnation, state: 'OPEN' } })) > 0;
    const server = await this.database.runServer.findUnique({
      where: { runId_attempt_index_role: { runId, attempt, index: part, role } },
      include: { run: { select: { status: true, attempt: true } } },
    });
    return isPlacementWanted(server, server?.run, name);
  }
}
