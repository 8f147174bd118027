/** Whether there is anything to do at all: small statements, asked at every tick in place of all that an idle dispatcher would find empty. */
import { Injectable } from '@nestjs/common';
import { BackgroundDatabase } from '../database/database.js';
import { RUNS_IN_HAND } from './runs-in-hand.js';

const LOOK_FOR_JOBS = `SELECT EXISTS (SELECT FROM "Outbox" WHERE "sentAt" IS NULL) AS "hasUnsent"`;

export const LOOK_FOR_RUNS = `SELECT EXISTS (SELECT FROM "Run" AS run WHERE ${RUNS_IN_HAND}) AS "hasRuns"`;

@Injectable()
export class OpenWork {
  constructor(private readonly database: BackgroundDatabase) {}

  /** Whether there are jobs that were not sent. @throws when PostgreSQL is away */
  async hasUnsent(): Promise<boolean> {
    const [open] = await this.database.statement<{ hasUnsent: boolean }>('open-jobs', LOOK_FOR_JOBS);
    return open!.hasUnsent;
  }

  /** Whether there are runs that are not over, or ended lately: those of `readRunsInHand`. @throws when PostgreSQL is away */
  async hasRuns(): Promise<boolean> {
    const [open] = await this.database.statement<{ hasRuns: boolean }>('open-runs', LOOK_FOR_RUNS);
    return open!.hasRuns;
  }
}
