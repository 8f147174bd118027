/** A run as the reconciler looks at it: one consistent picture per tick, read at once for all runs. */
import type { ControlFields, ServerAddress } from '@paceline/jobs';
import type { Database } from '../database/database.js';
import type { Prisma } from '../generated/prisma/client.js';
import { coordinatorOf, specOf, WITHOUT_MODEL, type StoredCoordinator } from '../runs/run-row.js';
import { ACTIVE_STATUSES } from '../runs/run-status.js';

const INCLUDE = {
  omit: WITHOUT_MODEL,
  include: { attempts: true, servers: { orderBy: { index: 'asc' } }, stepTasks: { where: { state: { not: 'CLOSED' } } } },
} as const satisfies Prisma.RunDefaultArgs;

type Row = Prisma.RunGetPayload<typeof INCLUDE>;

export interface ActiveRun {
  readonly row: Row;
  readonly attempt: Row['attempts'][number];
  readonly servers: Row['servers'];
  readonly claimed: readonly ServerAddress[];
  readonly openTasks: Row['stepTasks'];
  readonly heldTasks: Row['stepTasks'];
  readonly coordinator: StoredCoordinator | null;
  readonly serversNeeded: number;
  readonly replicas: number;
  readonly control: ControlFields;
}

/** At most this many runs are looked at in one tick; with more, ticks take turns. */
export const RUNS_PER_TICK = 100;

/** The active runs after the one named, oldest first, wrapping around. */
export async function readActiveRuns(database: Database, afterId: string | undefined): Promise<Omit<ActiveRun, 'control'>[]> {
  const rows = await database.run.findMany({
    where: { status: { in: ACTIVE_STATUSES }, ...(afterId ? { id: { gt: afterId } } : {}) },
    orderBy: { id: 'asc' },
    take: RUNS_PER_TICK,
    ...INCLUDE,
  });
  return rows.flatMap((row) => {
    const attempt = row.attempts.find(({ number }) => number === row.attempt);
    if (!attempt) return [];
    const servers = row.servers.filter((server) => server.attempt === row.attempt);
    const tasks = row.stepTasks.filter((task) => task.attempt === row.attempt);
    const spec = specOf(row);
    return {
      row,
      attempt,
      servers,
      claimed: servers.flatMap(({ index, serverId, host, port, unixPath }) =>
        serverId && host && port ? { index, serverId, host, port, unixPath } : [],
      ),
      openTasks: tasks.filter(({ state }) => state === 'OPEN'),
      heldTasks: tasks.filter(({ state }) => state === 'HELD'),
      coordinator: coordinatorOf(row),
      serversNeeded: spec.strategy.servers,
      replicas: spec.replicas,
    };
  });
}
