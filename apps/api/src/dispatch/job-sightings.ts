/** States of the jobs that decide something now, and since when each has not been waiting: the only memory of the dispatcher, and it may lose it. */
import { Injectable } from '@nestjs/common';
import type { JobSighting, RunPicture } from '@paceline/jobs';
import { jobsInQuestion } from '@paceline/jobs';
import { Database } from '../database/database.js';
import { Queues } from './queues.js';

const MAX_REMEMBERED = 10_000;

@Injectable()
export class JobSightings {
  private readonly notWaitingSince = new Map<string, number>();

  constructor(
    private readonly database: Database,
    private readonly queues: Queues,
  ) {}

  /** @throws RedisUnavailableError, or when PostgreSQL is away */
  async of(run: RunPicture, now: number): Promise<Map<string, JobSighting>> {
    const { placements, seats } = jobsInQuestion(run, now);
    const sightings = new Map<string, JobSighting>();
    for (const jobId of placements) sightings.set(jobId, await this.look('placement', jobId, now));
    for (const jobId of seats) sightings.set(jobId, await this.look('step-task', jobId, now));
    return sightings;
  }

  private async look(kind: 'placement' | 'step-task', jobId: string, now: number): Promise<JobSighting> {
    const seen = await this.queues.stateOf(kind, jobId);
    const isUnsent = seen === 'missing' && (await this.database.outbox.count({ where: { jobId, sentAt: null } })) > 0;
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
