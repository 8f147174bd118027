/**
 * Takes step tasks (ROUNDS §7): a seat in a run for a slice of 2–5 s. At the end of a slice the worker yields when another
 * run's task waits that deserves the seat more (`shouldYield`), otherwise it goes on under its data-plane lease. Redis or
 * the api may be away meanwhile: nothing here stops a session, and a completion whose job has gone is normal.
 */
import {
  HandQueue,
  STEP_TASK_QUEUE,
  sendReport,
  shouldYield,
  stepTaskJobSchema,
  type HeldJob,
  type Report,
  type StepTaskJob,
} from '@paceline/jobs';
import type { EngineDevice } from '@paceline/engine';
import type { Logger } from '@paceline/runtime';
import type { Redis } from 'ioredis';
import { EngineChooser, type MeasuredChoice } from './engine-choice.js';
import { RunSession, type SessionEnd } from './run-session.js';

const IDLE_MS = 100;
const KEEP_LOCK_MS = 8_000;
const LEAVE_DEADLINE_MS = 10_000;
const SHUTDOWN_LEAVE_MS = 3_000;
/** After a seat that could not be taken, so that a broken worker does not eat the queue. */
const AFTER_FAILURE_MS = 1_000;

export interface SeatLoopOptions {
  readonly redisUrl: string;
  readonly redis: Redis;
  readonly workerId: string;
  readonly transport: 'auto' | 'unix' | 'tcp';
  readonly log: Logger;
}

export class SeatLoop {
  private readonly queue: HandQueue<StepTaskJob>;
  private stopped = false;
  private session: RunSession | undefined;
  private running: Promise<void> | undefined;

  readonly engines: EngineChooser;

  constructor(private readonly options: SeatLoopOptions) {
    this.engines = new EngineChooser({ log: options.log });
    this.queue = new HandQueue(STEP_TASK_QUEUE, stepTaskJobSchema, options.redisUrl, options.workerId);
  }

  /** Engine fingerprint of the present or last session; null before the first. */
  fingerprint: string | null = null;
  devices: readonly EngineDevice[] = [];

  /** The run that this worker is in. */
  get runId(): string | null {
    return this.session?.job.runId ?? null;
  }

  start(): void {
    this.running = this.loop();
  }

  async stop(): Promise<void> {
    this.stopped = true;
    this.session?.leave('the worker is shutting down', SHUTDOWN_LEAVE_MS);
    await this.running;
    await this.queue.close();
  }

  private async loop(): Promise<void> {
    while (!this.stopped) {
      const held = await this.queue.take().catch(() => undefined); // Redis is away: asked again
      if (held) await this.sit(held);
      else await pause(IDLE_MS);
    }
  }

  private async sit(held: HeldJob<StepTaskJob>): Promise<void> {
    const job = held.payload;
    const { log } = this.options;
    log.info({ run: job.runId, attempt: job.attempt, seat: job.seat, n: job.n }, 'step task taken');
    const keep = setInterval(() => void held.keep(), KEEP_LOCK_MS);
    let end: SessionEnd;
    try {
      end = await this.sitWithAny(job, await this.engines.choose(job));
    } catch (error) {
      end = givenUp(error);
    } finally {
      clearInterval(keep);
    }
    log.info({ run: job.runId, seat: job.seat, end }, 'seat left');
    await this.report(job, end);
    await held.complete(end.kind);
    if (end.kind === 'given-up' && end.code !== 'SEAT_TAKEN') await pause(AFTER_FAILURE_MS);
  }

  /** The run may be pinned to another engine than the fastest here, or that one may not start: then the next. */
  private async sitWithAny(job: StepTaskJob, choices: readonly MeasuredChoice[]): Promise<SessionEnd> {
    for (const [i, choice] of choices.entries()) {
      const end = await this.sitWith(job, choice);
      const isOfEngine = end.kind === 'given-up' && ENGINE_CODES.includes(end.code);
      if (!isOfEngine || this.stopped || i === choices.length - 1) return end;
      this.options.log.info({ run: job.runId, backend: choice.backend, end }, 'this engine does not go with the run; trying the next');
    }
    throw new Error('there is no engine to choose from');
  }

  private async sitWith(job: StepTaskJob, choice: MeasuredChoice): Promise<SessionEnd> {
    let slice: NodeJS.Timeout | undefined;
    try {
      const session = await RunSession.start(job, choice, this.options);
      this.session = session;
      this.fingerprint = session.fingerprint;
      this.devices = session.devices;
      if (this.stopped) session.leave('the worker is shutting down', SHUTDOWN_LEAVE_MS);
      slice = setInterval(() => void this.endOfSlice(session), job.sliceMs);
      return await session.ended;
    } catch (error) {
      return givenUp(error);
    } finally {
      clearInterval(slice);
      this.session = undefined;
    }
  }

  private async endOfSlice(session: RunSession): Promise<void> {
    const { job, member } = session;
    try {
      const waiting = await this.queue.peek();
      if (!shouldYield({ runId: job.runId, heldSeats: member.heldSeats }, waiting)) return;
      session.leave('another run waits for a worker', LEAVE_DEADLINE_MS);
    } catch (error) {
      this.options.log.debug({ err: error as Error }, 'the queue cannot be seen; the session goes on');
    }
  }

  private async report(job: StepTaskJob, end: SessionEnd): Promise<void> {
    const { runId, attempt, seat, n } = job;
    const { workerId, redis, log } = this.options;
    const report: Report =
      end.kind === 'ended'
        ? { kind: 'seat.left', runId, attempt, seat, n, workerId, reason: end.message.slice(0, 300) }
        : {
            kind: 'seat.failed',
            runId,
            attempt,
            seat,
            workerId,
            code: end.code.slice(0, 100),
            message: end.message.slice(0, 2000),
            serverIndex: end.serverIndex,
          };
    await sendReport(redis, report).catch((error: Error) => log.warn({ err: error, report }, 'the end of a seat could not be reported'));
  }
}

/** What another engine of this worker may do better. */
const ENGINE_CODES: readonly string[] = ['FINGERPRINT_MISMATCH', 'ENGINE_UNAVAILABLE'];

function givenUp(error: unknown): SessionEnd {
  const { name, message, code = name } = error as Error & { code?: string };
  return { kind: 'given-up', code, message, serverIndex: null };
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
