/** Whether there is anything to do at all: one small statement, asked at every tick in place of all that an idle dispatcher would find empty. */
import { Injectable } from '@nestjs/common';
import { BackgroundDatabase } from '../database/database.js';
import { RUNS_IN_HAND } from './runs-in-hand.js';

export interface Open {
  /** Jobs that were not sent. */
  readonly hasUnsent: boolean;
  /** Runs that are not over, or ended lately: those of `readRunsInHand`. */
  readonly hasRuns: boolean;
  /** A team has a limit of its own for workers. */
  readonly hasWorkerLimits: boolean;
}

const LOOK = `
  SELECT EXISTS (SELECT FROM "Outbox" WHERE "sentAt" IS NULL) AS "hasUnsent",
         EXISTS (SELECT FROM "Run" AS run WHERE ${RUNS_IN_HAND}) AS "hasRuns",
         EXISTS (SELECT FROM "Team" WHERE "maxWorkers" IS NOT NULL) AS "hasWorkerLimits"`;

@Injectable()
export class OpenWork {
  constructor(private readonly database: BackgroundDatabase) {}

  /** @throws when PostgreSQL is away */
  async look(): Promise<Open> {
    const [open] = await this.database.statement<Open & Record<string, unknown>>('open-work', LOOK);
    return open!;
  }
}
