/**
 * BullMQ by hand (ROUNDS §7): a Worker without processor. After a processor returns, BullMQ's own loop takes the next job
 * even while a seat still trains; here the caller asks for one job, keeps its lock as long as Redis lets it, and completes
 * it without fetching the next. A completion whose lock or key has gone is normal: the job was given to somebody else, or
 * Redis was flushed.
 */
import { Queue, Worker, type Job } from 'bullmq';
import { Redis } from 'ioredis';
import type { z } from 'zod';
import type { HeldJob, JobQueue } from './control-plane.js';
import { withDeadline } from './redis.js';

const LOCK_MS = 30_000;
const DEADLINE_MS = 2_000;

export class HandQueue<T> implements JobQueue<T> {
  private readonly worker: Worker;
  private readonly queue: Queue;
  private taken = 0;
  /** Jobs refused because their payload does not fit the schema. */
  refused = 0;

  constructor(
    name: string,
    private readonly schema: z.ZodType<T>,
    redisUrl: string,
    private readonly owner: string,
  ) {
    const connection = () => {
      const redis = new Redis(redisUrl, {
        maxRetriesPerRequest: null,
        enableOfflineQueue: false,
        connectTimeout: 2_000,
        retryStrategy: () => 500,
      });
      redis.on('error', () => undefined); // failed calls carry the reason
      return redis;
    };
    // The stalled check runs in the api only; this Worker object just owns the scripts.
    this.worker = new Worker(name, null, {
      connection: connection(),
      autorun: false,
      skipStalledCheck: true,
      lockDuration: LOCK_MS,
      drainDelay: 1,
    });
    this.queue = new Queue(name, { connection: connection() });
    this.worker.on('error', () => undefined);
    this.queue.on('error', () => undefined);
  }

  /** The next job, or undefined when none waits. A job with a bad payload is failed for good. @throws RedisUnavailableError */
  async take(): Promise<HeldJob<T> | undefined> {
    const token = `${this.owner}-${++this.taken}`;
    const job = (await withDeadline('next job', DEADLINE_MS, () => this.worker.getNextJob(token, { block: false }))) as Job | undefined;
    if (!job) return undefined;
    const parsed = this.schema.safeParse(job.data);
    if (!parsed.success) {
      this.refused++;
      const reason = new Error(`refused payload: ${parsed.error.issues[0]?.path.join('.')}: ${parsed.error.issues[0]?.message}`);
      await withDeadline('fail job', DEADLINE_MS, () => job.moveToFailed(reason, token, false));
      return undefined;
    }
    const gone = () => false;
    return {
      id: job.id!,
      payload: parsed.data,
      keep: () => withDeadline('extend lock', DEADLINE_MS, () => job.extendLock(token, LOCK_MS)).then((kept) => kept === 1, gone),
      complete: (result) =>
        withDeadline('complete job', DEADLINE_MS, () => job.moveToCompleted(result, token, false)).then(() => true, gone),
      giveBack: () => withDeadline('give a job back', DEADLINE_MS, () => job.moveToWait(token)).then(() => true, gone),
    };
  }

  /** The payload of the job that waits first, without taking it. @throws RedisUnavailableError */
  async peek(): Promise<T | undefined> {
    const [waiting] = await withDeadline('waiting jobs', DEADLINE_MS, () => this.queue.getJobs(['waiting', 'prioritized'], 0, 0, true));
    const parsed = waiting ? this.schema.safeParse(waiting.data) : undefined;
    return parsed?.success ? parsed.data : undefined;
  }

  async close(): Promise<void> {
    await withDeadline('close the queue', DEADLINE_MS, async () => {
      await this.worker.close(true);
      await this.queue.close();
    }).catch(() => undefined); // Redis may be gone already
    this.worker.disconnect().catch(() => undefined);
  }
}
