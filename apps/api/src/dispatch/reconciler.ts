/**
 * Looks at every run that is not over, a few times a second: reads rows, control hash and fleet, asks `reconcile` (libs/jobs) what
 * to do next and has it done. What Redis lost comes back this way, and any api can take over.
 */
import { Injectable } from '@nestjs/common';
import { hasLiveAttempt, reconcile, RedisUnavailableError, type FleetPicture, type RunPicture } from '@paceline/jobs';
import { Database } from '../database/database.js';
import { isDatabaseOutage } from '../database/outage.js';
import { ServerSightings } from '../fleet/server-sightings.js';
import { Control } from './control.js';
import { Executor } from './executor.js';
import { JobSightings } from './job-sightings.js';
import { Queues } from './queues.js';
import { readActiveRuns, RUNS_PER_TICK, toPicture } from './run-picture.js';

const SWEEP_EVERY_MS = 2_000;
/** `placementJobId` and `stepTaskJobId`. */
const JOB_ID = /^(?:step|place)-([0-9a-f-]{36})-a(\d+)-[si](\d+)(-standby)?-[nm](\d+)$/;

@Injectable()
export class Reconciler {
  private position: string | undefined;
  private sweptAt = 0;

  constructor(
    private readonly database: Database,
    private readonly sightings: ServerSightings,
    private readonly control: Control,
    private readonly jobs: JobSightings,
    private readonly executor: Executor,
    private readonly queues: Queues,
  ) {}

  /** @returns runs that could not be looked at, with why @throws when PostgreSQL or Redis is away */
  async tick(): Promise<{ runId: string; error: Error }[]> {
    const runs = await this.read();
    const fleet = await this.sightings.picture(
      runs.flatMap(({ servers }) => servers.flatMap(({ claim }) => (claim ? [claim.address] : []))),
    );
    const failed: { runId: string; error: Error }[] = [];
    for (const run of runs) {
      try {
        await this.reconcile(run, fleet);
      } catch (error) {
        if (error instanceof RedisUnavailableError || isDatabaseOutage(error)) throw error; // the next run would meet it too
        failed.push({ runId: run.runId, error: error as Error });
      }
    }
    await this.sweepQueues();
    return failed;
  }

  private async read(): Promise<RunPicture[]> {
    const rows = await readActiveRuns(this.database, this.position);
    this.position = rows.length === RUNS_PER_TICK ? rows.at(-1)!.id : undefined;
    const controls = await this.control.read(rows.map(({ id }) => id));
    const pictures: RunPicture[] = [];
    for (const row of rows) {
      const hasFailures = row.attempts.some(({ number, seatFailures }) => number === row.attempt && seatFailures > 0);
      const failure = hasFailures ? await this.lastSeatFailure(row.id, row.attempt) : null;
      const picture = toPicture(row, controls.get(row.id) ?? {}, failure);
      if (picture) pictures.push(picture);
    }
    return pictures;
  }

  private async reconcile(run: RunPicture, fleet: FleetPicture): Promise<void> {
    const now = Date.now();
    const actions = reconcile(run, fleet, await this.jobs.of(run, now), now);
    // A worker that took a seat of the attempt before would look for servers that are gone.
    if (actions.some(({ kind }) => kind === 'begin-attempt')) this.sweptAt = 0;
    await this.sweepQueues();
    for (const action of actions) await this.executor.carryOut(run, action);
  }

  private async lastSeatFailure(runId: string, attempt: number): Promise<string | null> {
    const last = await this.database.runEvent.findFirst({ where: { runId, attempt, type: 'seat.failed' }, orderBy: { seq: 'desc' } });
    return last?.message ?? null;
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
    const [, runId, attempt, part, standby, n] = JOB_ID.exec(jobId) ?? [];
    if (!runId || attempt === undefined || part === undefined || n === undefined) return false;
    if (kind === 'step-task') {
      return (
        (await this.database.stepTask.count({
          where: { runId, attempt: Number(attempt), seat: Number(part), n: Number(n), state: 'OPEN' },
        })) > 0
      );
    }
    const server = await this.database.runServer.findUnique({
      where: { runId_attempt_index_role: { runId, attempt: Number(attempt), index: Number(part), role: standby ? 'standby' : 'primary' } },
      include: { run: { select: { status: true, attempt: true } } },
    });
    return (
      server !== null &&
      server.made === Number(n) &&
      !server.claimedAt &&
      server.run.attempt === Number(attempt) &&
      hasLiveAttempt(server.run.status)
    );
  }
}
