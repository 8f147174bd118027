/**
 * The three BullMQ queues as the api uses them: it adds jobs, looks at them and takes them back; it never processes any. The stalled
 * check, which gives jobs of dead workers back to the queue, runs here and nowhere else (docs/protocol.md §19).
 */
import { Inject, Injectable, type OnModuleDestroy } from '@nestjs/common';
import {
  PLACEMENT_QUEUE,
  priorityOf,
  STEP_TASK_QUEUE,
  withDeadline,
  jobKindOf,
  WORKER_PLACEMENT_QUEUE,
  type JobKind,
  type JobState,
  type PreparedJob,
  type StepTaskJob,
} from '@paceline/control-plane';
import type { Logger } from '@paceline/runtime';
import { Queue, Worker, type Job, type JobsOptions } from 'bullmq';
import { Redis } from 'ioredis';
import { Settings } from '../environment.js';
import { LOGGER } from '../logger.js';

const DEADLINE_MS = 2_000;
const STALLED_CHECK_EVERY_MS = 5_000;
/** Failures are counted by us, per run; BullMQ must not give up on a job by itself. */
const NEVER_TOO_OFTEN = 1_000_000;
/** Finished jobs stay for a while, so that a job that is enqueued twice stays done; older ones are swept. */
const JOB_OPTIONS: JobsOptions = {
  attempts: 1,
  removeOnComplete: { age: 3_600, count: 5_000 },
  removeOnFail: { age: 3_600, count: 1_000 },
};
/** A worker placement carries the key of its attempt, which every worker can read in the queue: it goes with its completion. What comes twice is settled by claims. */
const OPTIONS: Readonly<Record<JobKind, JobsOptions>> = {
  placement: JOB_OPTIONS,
  'worker-placement': { ...JOB_OPTIONS, removeOnComplete: true, removeOnFail: true },
  'step-task': JOB_OPTIONS,
};

@Injectable()
export class Queues implements OnModuleDestroy {
  private readonly connections: Redis[] = [];
  private readonly queues: Record<JobKind, Queue>;
  private readonly stalledCheckers: Worker[] = [];

  constructor(
    private readonly settings: Settings,
    @Inject(LOGGER) private readonly log: Logger,
  ) {
    this.queues = {
      placement: this.queue(PLACEMENT_QUEUE),
      'worker-placement': this.queue(WORKER_PLACEMENT_QUEUE),
      'step-task': this.queue(STEP_TASK_QUEUE),
    };
  }

  startStalledChecks(): void {
    for (const name of [PLACEMENT_QUEUE, WORKER_PLACEMENT_QUEUE, STEP_TASK_QUEUE]) {
      const worker = new Worker(name, null, {
        connection: this.connection(null),
        autorun: false,
        stalledInterval: STALLED_CHECK_EVERY_MS,
        maxStalledCount: NEVER_TOO_OFTEN,
      });
      worker.on('error', (err) => this.log.debug({ err: err.message, queue: name }, 'stalled check'));
      worker.on('stalled', (jobId) => this.log.info({ jobId, queue: name }, 'a job lost its worker and waits again'));
      worker
        .startStalledCheckTimer()
        .catch((err: Error) => this.log.warn({ err: err.message, queue: name }, 'the stalled check could not be started'));
      this.stalledCheckers.push(worker);
    }
  }

  /** Adding an id that is there already changes nothing. @throws RedisUnavailableError */
  async add(jobs: readonly PreparedJob[]): Promise<void> {
    for (const kind of ['placement', 'worker-placement', 'step-task'] as const) {
      const own = jobs.filter(({ payload }) => jobKindOf(payload) === kind);
      if (own.length === 0) continue;
      await withDeadline(`add ${own.length} ${kind} jobs`, DEADLINE_MS, () =>
        this.queues[kind].addBulk(
          own.map(({ jobId, payload, priority }) => ({
            name: kind,
            data: payload,
            opts: { ...OPTIONS[kind], jobId, ...(priority ? { priority } : {}) },
          })),
        ),
      );
    }
  }

  /** @throws RedisUnavailableError */
  async stateOf(kind: JobKind, jobId: string): Promise<Exclude<JobState, 'unsent'>> {
    const state = await withDeadline('state of a job', DEADLINE_MS, () => this.queues[kind].getJobState(jobId));
    if (state === 'active') return 'active';
    if (state === 'completed' || state === 'failed') return 'over';
    return state === 'unknown' ? 'missing' : 'waiting';
  }

  /** New data and priority for a job that still waits. @param ofTeam seats that all runs of the team hold @throws RedisUnavailableError */
  async reprioritise(jobId: string, heldSeats: number, ofTeam: number): Promise<void> {
    await withDeadline('priority of a job', DEADLINE_MS, async () => {
      const job = (await this.queues['step-task'].getJob(jobId)) as Job<StepTaskJob> | undefined;
      if (!job) return;
      await job.updateData({ ...job.data, heldSeats });
      await job.changePriority({ priority: priorityOf(heldSeats, ofTeam) });
    });
  }

  /** Takes a job back unless somebody holds it. @throws RedisUnavailableError */
  async remove(kind: JobKind, jobId: string): Promise<void> {
    await withDeadline('remove a job', DEADLINE_MS, async () => {
      await this.queues[kind].remove(jobId); // 0 when somebody holds it, who completes it
    });
  }

  /** Ids of jobs that wait, at most 1000. @throws RedisUnavailableError */
  async waitingIds(kind: JobKind): Promise<string[]> {
    return withDeadline('waiting jobs', DEADLINE_MS, () => this.queues[kind].getRanges(['waiting', 'prioritized', 'delayed'], 0, 999));
  }

  /** @throws RedisUnavailableError */
  counts(kind: JobKind): Promise<Record<string, number>> {
    return withDeadline('job counts', DEADLINE_MS, () =>
      this.queues[kind].getJobCounts('waiting', 'prioritized', 'active', 'failed', 'completed'),
    );
  }

  async onModuleDestroy(): Promise<void> {
    const closing = Promise.allSettled([
      ...this.stalledCheckers.map((worker) => worker.close(true)),
      ...Object.values(this.queues).map((queue) => queue.close()),
    ]);
    await Promise.race([closing, new Promise((resolve) => setTimeout(resolve, 1_000).unref())]);
    for (const connection of this.connections) connection.disconnect();
  }

  private queue(name: string): Queue {
    const queue = new Queue(name, { connection: this.connection(1) });
    queue.on('error', (err) => this.log.debug({ err: err.message, queue: name }, 'queue'));
    return queue;
  }

  private connection(maxRetriesPerRequest: number | null): Redis {
    const redis = new Redis(this.settings.redisUrl, {
      maxRetriesPerRequest,
      enableOfflineQueue: false,
      connectTimeout: 2_000,
      connectionName: 'paceline-api-queues',
      retryStrategy: () => 500,
    });
    redis.on('error', () => undefined); // failed calls carry the reason
    this.connections.push(redis);
    return redis;
  }
}
