/** States of the jobs that decide something now, and since when each has not been waiting: the only memory of the dispatcher, and it may lose it. */
import type { ObservedJob, JobState, ObservedRun } from '../lifecycle/observed-run.js';
import { jobsInQuestion } from '../lifecycle/reconcile.js';
import type { JobKind } from './outbox.js';
import type { ConfirmLock } from './reconciler.js';

const MAX_REMEMBERED = 10_000;

export interface JobStatesPorts {
  stateOf(kind: JobKind, jobId: string): Promise<Exclude<JobState, 'unsent'>>;
  /** Its row in the outbox has not been sent yet. */
  isUnsent(jobId: string): Promise<boolean>;
}

export class JobStates {
  private readonly notWaitingSince = new Map<string, number>();

  constructor(private readonly ports: JobStatesPorts) {}

  /** @param confirmLock is asked before each look @throws what it and the ports throw */
  async of(run: ObservedRun, now: number, confirmLock: ConfirmLock): Promise<Map<string, ObservedJob>> {
    const { placements, seats } = jobsInQuestion(run, now);
    const sightings = new Map<string, ObservedJob>();
    const look = async (kind: JobKind, jobId: string): Promise<void> => {
      await confirmLock();
      sightings.set(jobId, await this.look(kind, jobId, now));
    };
    const placement = run.shardHosts === 'workers' ? 'worker-placement' : 'placement';
    for (const jobId of placements) await look(placement, jobId);
    for (const jobId of seats) await look('step-task', jobId);
    return sightings;
  }

  private async look(kind: JobKind, jobId: string, now: number): Promise<ObservedJob> {
    const seen = await this.ports.stateOf(kind, jobId);
    const isUnsent = seen === 'missing' && (await this.ports.isUnsent(jobId));
    const state = isUnsent ? 'unsent' : seen;
    if (state === 'waiting' || state === 'unsent') {
      this.notWaitingSince.delete(jobId);
      return { state, notWaitingSinceMs: now };
    }
    const notWaitingSinceMs = this.notWaitingSince.get(jobId) ?? now;
    if (this.notWaitingSince.size > MAX_REMEMBERED) this.notWaitingSince.clear();
    this.notWaitingSince.set(jobId, notWaitingSinceMs);
    return { state, notWaitingSinceMs };
  }
}
