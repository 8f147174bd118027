/**
 * The rows behind the lists of a run. A page of runs asks for them run by run; here they are read together (database/batch.ts), each run with its own
 * bound. And a team takes turns: one that asks for much waits for itself and leaves connections to the others.
 */
import { Injectable } from '@nestjs/common';
import { Batch } from '../database/batch.js';
import { Database } from '../database/database.js';
import { Fault } from '../fault.js';
import type { Attempt, Checkpoint, RunEvent, RunStatusChange, StepTask } from '../generated/prisma/client.js';
import { Turns } from '../turns.js';

/** How many connections to PostgreSQL the fields of one team's runs may use at once, and how many of them wait, for how long. */
const TURNS = { atOnceOfTeam: 4, waiting: Number.POSITIVE_INFINITY, waitingOfTeam: 2_000, waitMs: 5_000 };

interface ListKey {
  readonly runId: string;
  readonly size: number;
}
interface StepTaskKey extends ListKey {
  readonly attempt: number;
}
interface EventKey extends ListKey {
  readonly after: number | null;
  readonly before: number | null;
  readonly isBackward: boolean;
}

@Injectable()
export class RunReads {
  readonly statusHistory: (key: ListKey) => Promise<RunStatusChange[]>;
  readonly stepTasks: (key: StepTaskKey) => Promise<StepTask[]>;
  readonly attempts: (key: ListKey) => Promise<Attempt[]>;
  readonly checkpoints: (key: ListKey) => Promise<Checkpoint[]>;
  readonly events: (key: EventKey) => Promise<RunEvent[]>;
  private readonly turns = new Turns(TURNS, tooMuch);

  constructor(private readonly database: Database) {
    this.statusHistory = this.list<RunStatusChange, ListKey>(
      'status-changes',
      `
      SELECT * FROM "RunStatusChange" WHERE "runId" = wanted.run ORDER BY "id" DESC LIMIT wanted.size`,
    );
    this.attempts = this.list<Attempt, ListKey>(
      'attempts',
      `
      SELECT * FROM "Attempt" WHERE "runId" = wanted.run ORDER BY "number" DESC LIMIT wanted.size`,
    );
    this.checkpoints = this.list<Checkpoint, ListKey>(
      'checkpoints',
      `
      SELECT * FROM "Checkpoint" WHERE "runId" = wanted.run AND "removedAt" IS NULL ORDER BY "attempt" DESC, "round" DESC LIMIT wanted.size`,
    );
    this.stepTasks = this.list<StepTask, StepTaskKey>(
      'step-tasks',
      `SELECT * FROM "StepTask" WHERE "runId" = wanted.run AND "attempt" = wanted.a
        ORDER BY "state" = 'HELD' DESC, "state" = 'CLOSED', "createdAt" DESC LIMIT wanted.size`,
      ({ attempt }) => [attempt, null],
    );
    const [forward, backward] = ['ASC', 'DESC'].map((direction) =>
      this.list<RunEvent, EventKey>(
        `events-${direction}`,
        `SELECT * FROM "RunEvent" WHERE "runId" = wanted.run AND "seq" > coalesce(wanted.a, 0) AND "seq" < coalesce(wanted.b, 2147483647)
          ORDER BY "seq" ${direction} LIMIT wanted.size`,
        ({ after, before }) => [after, before],
      ),
    );
    this.events = (key) => (key.isBackward ? backward! : forward!)(key);
  }

  /** @throws Fault TOO_BUSY when the team has asked for too much at once */
  inTurn<T>(teamId: string, read: () => Promise<T>): Promise<T> {
    return this.turns.run(teamId, read);
  }

  /** @param name of the statement @param rowsOf SQL for one run, over wanted(run, size, a, b) */
  private list<Row, Key extends ListKey>(
    name: string,
    rowsOf: string,
    bounds: (key: Key) => readonly [number | null, number | null] = () => [null, null],
  ): (key: Key) => Promise<Row[]> {
    const read = (keys: readonly { key: Key; place: string }[]): Promise<(Row & { place: string })[]> =>
      this.database.rows(
        `run-${name}`,
        `SELECT found.*, wanted.place
           FROM unnest($1::uuid[], $2::int[], $3::int[], $4::int[], $5::text[]) WITH ORDINALITY AS wanted(run, size, a, b, place, n)
          CROSS JOIN LATERAL (${rowsOf}) AS found ORDER BY wanted.n`,
        [
          keys.map(({ key }) => key.runId),
          keys.map(({ key }) => key.size),
          keys.map(({ key }) => bounds(key)[0]),
          keys.map(({ key }) => bounds(key)[1]),
          keys.map(({ place }) => place),
        ],
      );
    const batch = new Batch(read, { ofKey: ({ place }) => place, ofRow: ({ place }) => place });
    return (key) => batch.load({ key, place: [key.runId, key.size, ...bounds(key)].join(' ') });
  }
}

const tooMuch = (): Fault =>
  new Fault('TOO_BUSY', 'Your team has too many requests for runs at once. Ask for less, and try again shortly.', 1);
