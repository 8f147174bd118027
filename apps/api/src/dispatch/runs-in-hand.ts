/** Runs as the dispatcher looks at them: one consistent observation per tick, read at once for all. */
import { ACTIVE_STATUSES } from '@paceline/control-plane';
import type { Database } from '../database/database.js';
import type { Prisma } from '../generated/prisma/client.js';
import { WITHOUT_MODEL } from '../runs/run-columns.js';

const INCLUDE = {
  omit: WITHOUT_MODEL,
  include: {
    attempts: { orderBy: { number: 'desc' }, take: 1 },
    servers: { orderBy: [{ attempt: 'desc' }, { index: 'asc' }], take: 128 },
    stepTasks: { where: { state: { not: 'CLOSED' } } },
  },
} as const satisfies Prisma.RunDefaultArgs;

/** At most this many runs are looked at in one tick; with more, ticks take turns. */
export const RUNS_PER_TICK = 100;

/** Holders of a part of a run that has ended are told so for this long; servers that wait to begin give up by themselves after as long. */
const TOLD_FOR_MS = 180_000;

/** The runs that are not over, or ended lately without bringing a result, after the one named, by id: the rows that `observedRunOf` (libs/control-plane) reads. */
export function readRunsInHand(database: Database, afterId: string | undefined): Promise<Prisma.RunGetPayload<typeof INCLUDE>[]> {
  const lately = { gt: new Date(Date.now() - TOLD_FOR_MS) };
  return database.run.findMany({
    where: {
      OR: [
        { status: { in: [...ACTIVE_STATUSES] } },
        { status: { in: ['FAILED', 'CANCELLED'] }, finishedAt: lately },
        { status: 'SUCCEEDED', finishedAt: lately, attempts: { some: { endedAt: lately, endCause: { not: 'FINISHED' } } } },
      ],
      ...(afterId ? { id: { gt: afterId } } : {}),
    },
    orderBy: { id: 'asc' },
    take: RUNS_PER_TICK,
    ...INCLUDE,
  });
}
