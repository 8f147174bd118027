/**
 * Jobs leave for Redis from here and nowhere else. A row is written in the transaction that decided the job; sending adds the job under
 * the row's id and then marks the row. A crash in between sends it again, and BullMQ ignores an id that it has: one job per row.
 *
 * The payload is put together when it is sent (spec, model, a fresh token), so rows stay small. A placement of a run with several servers
 * waits until as many servers are there, because a server that has claimed its part holds it only for a while.
 */
import { Inject, Injectable } from '@nestjs/common';
import {
  hasLiveAttempt,
  placementJobSchema,
  shardsOf,
  stepTaskJobSchema,
  type PlacementJob,
  type ServerAddress,
  type StepTaskJob,
} from '@paceline/jobs';
import type { ModelDescription } from '@paceline/spec';
import type { Logger } from '@paceline/runtime';
import { Database } from '../database/database.js';
import type { Prisma } from '../generated/prisma/client.js';
import { Fleet } from '../fleet/fleet.js';
import { LOGGER } from '../logger.js';
import { specOf } from '../runs/run-row.js';
import { addressOf, placeOf } from './run-picture.js';
import { priorityOf, Queues, type PreparedJob } from './queues.js';
import { Tokens } from './tokens.js';

type Row = Prisma.OutboxGetPayload<{ include: { run: true } }>;

const BATCH = 50;
/** A worker looks this often whether it should give its seat to another run. */
const SLICE_MS = 3_000;
const SWEEP_EVERY_MS = 60_000;
const KEPT_AFTER_SENDING_MS = 3_600_000;

@Injectable()
export class Outbox {
  private sweptAt = 0;

  constructor(
    private readonly database: Database,
    private readonly queues: Queues,
    private readonly tokens: Tokens,
    private readonly fleet: Fleet,
    @Inject(LOGGER) private readonly log: Logger,
  ) {}

  /** Sends what waits, at most one batch. @returns how many were sent @throws RedisUnavailableError, or when PostgreSQL is away */
  async send(): Promise<number> {
    const enough = Math.max(1, await this.liveServers());
    const rows = await this.database.outbox.findMany({
      where: { sentAt: null, NOT: { kind: 'placement', run: { serverCount: { gt: enough } } } },
      orderBy: { id: 'asc' },
      take: BATCH,
      include: { run: true },
    });
    const jobs: PreparedJob[] = [];
    for (const row of rows) {
      const job = row.run.attempt === row.attempt && hasLiveAttempt(row.run.status) ? await this.prepare(row) : undefined;
      if (job) jobs.push(job);
    }
    await this.queues.add(jobs);
    if (rows.length > 0)
      await this.database.outbox.updateMany({ where: { id: { in: rows.map(({ id }) => id) } }, data: { sentAt: new Date() } });
    await this.sweep();
    return jobs.length;
  }

  private async prepare(row: Row): Promise<PreparedJob | undefined> {
    const job = row.kind === 'placement' ? await this.placement(row) : await this.stepTask(row);
    if (!job) return undefined;
    const schema = job.payload.kind === 'placement' ? placementJobSchema : stepTaskJobSchema;
    const checked = schema.safeParse(job.payload);
    // Both sides check; a job that the other side would refuse is a fault of ours and must not be repeated for ever.
    if (checked.success) return job;
    this.log.error({ jobId: row.jobId, issue: checked.error.issues[0] }, 'a job does not fit its contract and was not sent');
    return undefined;
  }

  private async placement(row: Row): Promise<PreparedJob | undefined> {
    const { run, attempt, jobId } = row;
    // A row that was written before there were standbys names no role.
    const { index, role = 'primary' } = row.payload as { index: number; role?: PlacementJob['role'] };
    const spec = specOf(run);
    const origin = await this.database.attempt.findUnique({ where: { runId_number: { runId: run.id, number: attempt } } });
    if (!origin) return undefined;
    const { parentRunId, parentNumber, parentRound } = origin;
    const payload: PlacementJob = {
      kind: 'placement',
      runId: run.id,
      attempt,
      index,
      servers: spec.strategy.servers,
      role,
      spec,
      model: run.model as unknown as ModelDescription,
      trainExamples: run.trainExamples,
      evalExamples: run.evalExamples,
      restore: parentNumber === null ? null : { runId: parentRunId ?? run.id, attempt: parentNumber, round: Number(parentRound) },
      token: await this.tokens.sign({ run: run.id, attempt, role: 'server' }),
    };
    return { jobId, payload };
  }

  private async stepTask(row: Row): Promise<PreparedJob | undefined> {
    const { run, attempt, jobId } = row;
    const { stepTaskId } = row.payload as { stepTaskId: string };
    const task = await this.database.stepTask.findUnique({ where: { id: stepTaskId } });
    const { servers, standbys } = await this.addresses(run.id, attempt);
    if (task?.state !== 'OPEN' || servers.length === 0) return undefined;
    const payload: StepTaskJob = {
      kind: 'step-task',
      stepTaskId,
      runId: run.id,
      attempt,
      seat: task.seat,
      n: task.n,
      spec: specOf(run),
      model: run.model as unknown as ModelDescription,
      servers,
      ...(standbys.length > 0 ? { standbys } : {}),
      sliceMs: SLICE_MS,
      heldSeats: task.heldSeats,
      token: await this.tokens.sign({ run: run.id, attempt, role: 'worker' }),
    };
    return { jobId, payload, priority: priorityOf(task.heldSeats) };
  }

  /** Of those who lead now, and of the standbys that are left. */
  private async addresses(runId: string, attempt: number): Promise<{ servers: ServerAddress[]; standbys: ServerAddress[] }> {
    const rows = await this.database.runServer.findMany({ where: { runId, attempt, claimedAt: { not: null } } });
    const shards = shardsOf(rows.map((row) => ({ ...placeOf(row), address: addressOf(row) })));
    return {
      servers: shards.flatMap(({ primary }) => primary.address ?? []),
      standbys: shards.flatMap(({ standby }) => standby?.address ?? []),
    };
  }

  private async liveServers(): Promise<number> {
    return (await this.fleet.list('server')).filter((row) => this.fleet.isAlive(row) && this.fleet.isCompatible(row)).length;
  }

  private async sweep(): Promise<void> {
    if (Date.now() - this.sweptAt < SWEEP_EVERY_MS) return;
    this.sweptAt = Date.now();
    await this.database.outbox.deleteMany({ where: { sentAt: { lt: new Date(Date.now() - KEPT_AFTER_SENDING_MS) } } });
  }
}
