/** Reports of a worker about its own leak, at most a few per run. The api turns them into events of the run. */
import { sendReport, type StepTaskJob } from '@paceline/control-plane';
import type { Logger } from '@paceline/runtime';
import { stepsOfRound, type RunSpec } from '@paceline/spec';
import type { Redis } from 'ioredis';
import { growthInWords, suspectOf, type Leak } from './leak-guard.js';

export interface RecyclingOptions {
  readonly redis: Redis;
  readonly workerId: string;
  readonly log: Logger;
}

type Job = Pick<StepTaskJob, 'runId' | 'attempt'>;

/** More reports of the same leak say nothing new; the worker's log has all of them. */
const REPORTS_PER_RUN = 5;
const LEAVE_MARGIN_MS = 30_000;

/** Of Node. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;

/** The worker waits for the end of the round, however long the run allows each of its steps to be, so that nothing is computed twice. */
export const leakLeaveDeadlineMs = (spec: Pick<RunSpec, 'stepDeadlineMs' | 'strategy'>): number =>
  Math.min(LONGEST_TIMER_MS, spec.stepDeadlineMs * stepsOfRound(spec) + LEAVE_MARGIN_MS);

export class Recycling {
  /** Reports for the newest run. */
  private reported = { runId: '', count: 0 };

  constructor(private readonly options: RecyclingOptions) {}

  /** The compute thread leaks: the worker leaves the run at the end of a round and takes a seat with a new one. */
  thread(job: Job, leak: Leak): void {
    const growth = growthInWords(leak.growth);
    const suspect = suspectOf(leak).slice(0, 300);
    this.tell(job, 'thread', suspect, {
      message: `worker ${this.options.workerId} leaks: ${growth}; suspected: ${suspect}; it leaves at the end of its round and starts its engine anew`,
      details: { ...leak.growth, kept: leak.kept },
    });
  }

  /** Memory stays though the compute thread is gone: the process ends and is started again. */
  process(job: Job, outgrownBytes: number): void {
    const megabytes = Math.round(outgrownBytes / 1e6);
    this.tell(job, 'process', null, {
      message: `worker ${this.options.workerId} still holds ${megabytes} MB more than at its start though its engine has ended: its process ends, to be started again`,
      details: { outgrownBytes },
    });
  }

  private tell(
    { runId, attempt }: Job,
    what: 'thread' | 'process',
    suspect: string | null,
    { message, details }: { message: string; details: Record<string, unknown> },
  ): void {
    const { redis, workerId, log } = this.options;
    log.warn({ run: runId, attempt, ...details }, message);
    if (this.reported.runId !== runId) this.reported = { runId, count: 0 };
    if (++this.reported.count > REPORTS_PER_RUN) return;
    sendReport(redis, { kind: 'worker.recycled', runId, attempt, workerId, what, suspect, message: message.slice(0, 1000) }).catch(
      (error: Error) => log.warn({ err: error, run: runId }, 'that this worker leaks could not be reported'),
    );
  }
}
