/**
 * BullMQ by hand (docs/protocol.md §19): a Worker without processor. After a processor returns, BullMQ's own loop takes the next job
 * even while a seat still trains; here the caller asks for one job, keeps its lock as long as Redis lets it, and completes
 * it without fetching the next. A completion whose lock or key has gone is normal: the job was given to somebody else, or
 * Redis was flushed.
 */
import { Queue, Worker, type Job } from 'bullmq';
import { Redis } from 'ioredis';
import type { z } from 'zod';
import type { HeldJob, JobQueue } from './process-ports.js';
import { withDeadline } from './redis.js';

const LOCK_MS = 30_000;
const DEADLINE_MS = 2_000;
/** A job that came after the deadline is kept this long for the next call. */
const KEPT_MS = 5_000;

/** A process does not live on for it. */
function unheldTimer(ms: number, act: () => void): () => void {
  const timer = setTimeout(act, ms).unref();
  return () => clearTimeout(timer);
}

/** A question for the next job that Redis has not answered yet, or whose answer nobody has taken. */
interface PendingFetch {
  readonly token: string;
  readonly answer: Promise<Job | undefined>;
  /** Set when the deadline has passed. */
  cancelKeep: (() => void) | undefined;
}

export class ManualQueue<T> implements JobQueue<T> {
  private readonly worker: Worker;
  private readonly queue: Queue;
  /** The connection of `queue`. */
  private readonly redis: Redis;
  private taken = 0;
  private pending: PendingFetch | undefined;
  /** Jobs refused because their payload does not fit the schema. */
  refused = 0;

  constructor(
    name: string,
    private readonly schema: z.ZodType<T>,
    redisUrl: string,
    private readonly owner: string,
    private readonly after: (ms: number, act: () => void) => () => void = unheldTimer,
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
    this.redis = connection();
    this.queue = new Queue(name, { connection: this.redis });
    this.worker.on('error', () => undefined);
    this.queue.on('error', () => undefined);
  }

  /**
   * The next job, or undefined when none waits. A job with a bad payload is failed for good. What Redis gives after the deadline is the
   * answer to the next call: dropped, it would be held by nobody until its lock ends.
   * @throws RedisUnavailableError
   */
  async take(): Promise<HeldJob<T> | undefined> {
    const fetch = (this.pending ??= this.fetch());
    const job = await withDeadline('next job', DEADLINE_MS, () => fetch.answer).catch((error: Error) => {
      if (this.pending === fetch) fetch.cancelKeep ??= this.keepAtMost(fetch);
      throw error;
    });
    // Somebody else was given it meanwhile, or it was given back.
    if (this.pending !== fetch) return undefined;
    this.pending = undefined;
    if (!job) return undefined;
    // What has come late may have lost its lock since.
    if (fetch.cancelKeep && (await this.extend(job, fetch.token)) === 0) return undefined;
    fetch.cancelKeep?.();
    return this.held(job, fetch.token);
  }

  private fetch(): PendingFetch {
    const token = `${this.owner}-${++this.taken}`;
    const answer = this.next(token);
    const fetch: PendingFetch = { token, answer, cancelKeep: undefined };
    // Refused by Redis: asked anew. Whoever waits for the answer hears of it.
    answer.catch(() => {
      if (this.pending === fetch) this.pending = undefined;
    });
    return fetch;
  }

  /** Idle processes ask ten times a second: the script of BullMQ, which takes a job and its lock, costs several times as much as to see that there is none. */
  private async next(token: string): Promise<Job | undefined> {
    const waiting = ['wait', 'prioritized', 'delayed'].map((list) => this.queue.toKey(list));
    if ((await this.redis.exists(...waiting)) === 0) return undefined;
    return (await this.worker.getNextJob(token, { block: false })) as Job | undefined;
  }

  /** A late job for which nobody asks soon after it has come waits again, for everybody. */
  private keepAtMost(fetch: PendingFetch): () => void {
    let cancel = (): void => undefined;
    const arm = (job: Job | undefined): void => {
      if (job && this.pending === fetch) cancel = this.after(KEPT_MS, () => void this.giveBackPending(fetch));
    };
    fetch.answer.then(arm, () => undefined); // refused: `fetch` has seen to it
    return () => cancel();
  }

  private async giveBackPending(fetch: PendingFetch | undefined): Promise<void> {
    if (!fetch || this.pending !== fetch) return;
    this.pending = undefined;
    fetch.cancelKeep?.();
    const gone = () => undefined; // Redis is away, or somebody else has it: its lock ends
    await withDeadline('give a late job back', DEADLINE_MS, () => fetch.answer.then((job) => job?.moveToWait(fetch.token))).catch(gone);
  }

  /** 1 when the lock was extended, 0 when it has gone, undefined when Redis does not answer. */
  private extend(job: Job, token: string): Promise<number | undefined> {
    const unanswered = () => undefined; // that is what the caller is told
    return withDeadline('extend lock', DEADLINE_MS, () => job.extendLock(token, LOCK_MS)).catch(unanswered);
  }

  private async held(job: Job, token: string): Promise<HeldJob<T> | undefined> {
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
      keep: async () => (await this.extend(job, token)) === 1,
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
    await this.giveBackPending(this.pending);
    await withDeadline('close the queue', DEADLINE_MS, async () => {
      await this.worker.close(true);
      await this.queue.close();
    }).catch(() => undefined); // Redis may be gone already
    this.worker.disconnect().catch(() => undefined);
  }
}
