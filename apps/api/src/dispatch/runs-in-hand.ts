/** Runs as the dispatcher looks at them: one consistent observation per tick, read in one statement for all. Of a spec its small parts are enough. */
import { ACTIVE_STATUSES, type StoredRunRows } from '@paceline/control-plane';
import type { BackgroundDatabase } from '../database/database.js';

/** At most this many runs are looked at in one tick; with more, ticks take turns. */
export const RUNS_PER_TICK = 100;
const SERVERS_PER_RUN = 128;

/** Holders of a part of a run that has ended are told so for this long; servers that wait to begin give up by themselves after as long. */
const TOLD_FOR_MS = 180_000;

const LATELY = `now() - interval '${TOLD_FOR_MS} ms'`;
const quoted = (names: readonly string[]): string => names.map((name) => `'${name}'`).join(', ');

/** A paused run waits for a person: with thousands of them others would wait for their turn. */
const MOVING = ACTIVE_STATUSES.filter((status) => status !== 'PAUSED');

/** Of rows of "Run" that are called run: those that are not over and may move, or that were paused, or ended without bringing a result, lately. */
export const RUNS_IN_HAND = `
  (run."status" IN (${quoted(MOVING)})
   OR (run."status" = 'PAUSED' AND run."statusChangedAt" > ${LATELY})
   OR (run."status" IN ('FAILED', 'CANCELLED') AND run."finishedAt" > ${LATELY})
   OR (run."status" = 'SUCCEEDED' AND run."finishedAt" > ${LATELY}
       AND EXISTS (SELECT FROM "Attempt" AS ended
                    WHERE ended."runId" = run."id" AND ended."endedAt" > ${LATELY} AND ended."endCause" <> 'FINISHED')))`;

const READ = `
  SELECT run."id", run."status"::text AS "status", run."statusReason", run."isWaiting", run."attempt", run."shortSpec" AS "spec", run."cancelRequestedAt",
         run."pauseRequestedAt", run."nextAttemptAt", run."workersWanted", run."coordinator", run."coordinatorAt",
         (SELECT EXISTS (SELECT FROM "Team" WHERE "maxWorkers" IS NOT NULL)) AS "hasWorkerLimits",
         (SELECT coalesce(jsonb_agg(to_jsonb(newest)), '[]') FROM (
            SELECT * FROM "Attempt" WHERE "runId" = run."id" ORDER BY "number" DESC LIMIT 1) AS newest) AS "attempts",
         (SELECT coalesce(jsonb_agg(to_jsonb(place) ORDER BY place."attempt" DESC, place."index"), '[]') FROM (
            SELECT * FROM "RunServer" WHERE "runId" = run."id" ORDER BY "attempt" DESC, "index" LIMIT ${SERVERS_PER_RUN}) AS place) AS "servers",
         (SELECT coalesce(jsonb_agg(to_jsonb(task) ORDER BY task."createdAt"), '[]') FROM "StepTask" AS task
           WHERE task."runId" = run."id" AND task."attempt" = run."attempt" AND task."state" <> 'CLOSED') AS "stepTasks"
    FROM "Run" AS run
   WHERE ${RUNS_IN_HAND} AND ($1::uuid IS NULL OR run."id" > $1::uuid)
   ORDER BY run."id" LIMIT ${RUNS_PER_TICK}`;

type Plain = Record<string, unknown>;
interface Read extends Plain {
  hasWorkerLimits: boolean;
  attempts: Plain[];
  servers: Plain[];
  stepTasks: Plain[];
}

/** Moments inside of JSON are texts. */
function withDates(row: Plain, names: readonly string[]): Plain {
  for (const name of names) if (typeof row[name] === 'string') row[name] = new Date(row[name]);
  return row;
}

export interface RunsInHand {
  readonly rows: readonly StoredRunRows[];
  /** A team has a limit of its own for workers; not looked for where there are no rows. */
  readonly hasWorkerLimits: boolean;
}

/** The runs in hand after the one named, by id: the rows that `observedRunOf` (libs/control-plane) reads. @throws when PostgreSQL is away */
export async function readRunsInHand(database: BackgroundDatabase, afterId: string | undefined): Promise<RunsInHand> {
  const found = await database.statement<Read>('runs-in-hand', READ, [afterId ?? null]);
  const rows = found.map(
    ({ attempts, servers, stepTasks, hasWorkerLimits: _, ...run }) =>
      ({
        ...run,
        attempts: attempts.map((row) => withDates(row, ['startedAt', 'lastFailureAt'])),
        servers: servers.map((row) => withDates(row, ['madeAt', 'claimedAt', 'droppedAt'])),
        stepTasks: stepTasks.map((row) => withDates(row, ['createdAt', 'heldAt'])),
      }) as unknown as StoredRunRows,
  );
  return { rows, hasWorkerLimits: found[0]?.hasWorkerLimits ?? false };
}
