/** Runs as the dispatcher looks at them: one consistent picture per tick, read at once for all. */
import { ACTIVE_STATUSES, type ControlFields, type RunPicture, type ServerAddress, type TaskPicture } from '@paceline/jobs';
import type { Database } from '../database/database.js';
import type { Prisma } from '../generated/prisma/client.js';
import { coordinatorOf, serverProcesses, specOf, WITHOUT_MODEL } from '../runs/run-row.js';

const INCLUDE = {
  omit: WITHOUT_MODEL,
  include: {
    attempts: { orderBy: { number: 'desc' }, take: 1 },
    servers: { orderBy: [{ attempt: 'desc' }, { index: 'asc' }], take: 128 },
    stepTasks: { where: { state: { not: 'CLOSED' } } },
  },
} as const satisfies Prisma.RunDefaultArgs;

type Row = Prisma.RunGetPayload<typeof INCLUDE>;

/** At most this many runs are looked at in one tick; with more, ticks take turns. */
export const RUNS_PER_TICK = 100;

/** The runs that are not over, after the one named, by id. */
export function readActiveRuns(database: Database, afterId: string | undefined): Promise<Row[]> {
  return database.run.findMany({
    where: { status: { in: [...ACTIVE_STATUSES] }, ...(afterId ? { id: { gt: afterId } } : {}) },
    orderBy: { id: 'asc' },
    take: RUNS_PER_TICK,
    ...INCLUDE,
  });
}

/** Undefined when the row of its attempt is not there yet (another api is about to write it). */
export function toPicture(row: Row, control: ControlFields, lastSeatFailure: string | null): RunPicture | undefined {
  const attempt = row.attempts.find(({ number }) => number === row.attempt);
  if (!attempt) return undefined;
  const spec = specOf(row);
  const tasks = row.stepTasks.filter((task) => task.attempt === row.attempt);
  const coordinator = row.coordinatorAt === null ? null : coordinatorOf(row);
  return {
    runId: row.id,
    status: row.status,
    statusReason: row.statusReason,
    attempt: row.attempt,
    cancelRequestedAtMs: msOf(row.cancelRequestedAt),
    pauseRequestedAtMs: msOf(row.pauseRequestedAt),
    nextAttemptAtMs: msOf(row.nextAttemptAt),
    serversNeeded: serverProcesses(spec),
    standby: spec.strategy.standby,
    replicas: spec.replicas,
    workersWanted: row.workersWanted,
    fromRound: Number(attempt.parentRound ?? 0),
    attemptStartedAtMs: msOf(attempt.startedAt),
    storedN: Number(attempt.storedN),
    seatFailures: attempt.seatFailures,
    lastSeatFailureAtMs: msOf(attempt.lastFailureAt),
    lastSeatFailure,
    servers: row.servers
      .filter((server) => server.attempt === row.attempt)
      .map((server) => ({ ...placeOf(server), made: server.made, madeAtMs: server.madeAt.getTime(), claim: claimOf(server) })),
    openTasks: tasks.filter(({ state }) => state === 'OPEN').map(toTask),
    heldTasks: tasks.filter(({ state }) => state === 'HELD').map(toTask),
    coordinator: coordinator && { ...coordinator, atMs: row.coordinatorAt!.getTime() },
    control,
  };
}

/** As `shardsOf` reads it. */
export const placeOf = ({ index, role, term, droppedAt }: Pick<Row['servers'][number], 'index' | 'role' | 'term' | 'droppedAt'>) => ({
  ...{ index, role, term },
  isDropped: droppedAt !== null,
});

const msOf = (date: Date | null): number | null => date?.getTime() ?? null;

function claimOf(server: Row['servers'][number]): RunPicture['servers'][number]['claim'] {
  const address = addressOf(server);
  return address && { address, atMs: server.claimedAt!.getTime(), storage: server.storage };
}

/** Where a claimed part is served; null before its claim. */
export function addressOf({ index, serverId, host, port, unixPath, claimedAt }: Row['servers'][number]): ServerAddress | null {
  return claimedAt && serverId && host && port ? { index, serverId, host, port, unixPath } : null;
}

const toTask = ({ id, seat, n, workerId, replicas, heldSeats, createdAt, heldAt }: Row['stepTasks'][number]): TaskPicture => ({
  id,
  seat,
  n,
  workerId,
  replicas,
  heldSeats,
  createdAtMs: createdAt.getTime(),
  heldAtMs: msOf(heldAt),
});
