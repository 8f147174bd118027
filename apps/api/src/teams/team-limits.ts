/** Limits of a team and what of them is in use, read so that two requests at the same moment cannot both take the last place. */
import {
  ACTIVE_STATUSES,
  DEFAULT_TEAM_LIMITS,
  exceeded,
  exceededByBytes,
  limitsOf,
  type TeamLimits,
  type TeamUse,
} from '@paceline/control-plane';
import type { Database, Transaction } from '../database/database.js';
import type { Settings } from '../environment.js';
import type { Prisma } from '../generated/prisma/client.js';
import { LimitReached } from '../graphql/result.types.js';

type LimitColumns = Pick<
  Prisma.TeamGetPayload<object>,
  'maxActiveRuns' | 'maxServerPlaces' | 'maxWorkers' | 'maxParameters' | 'maxDatasetBytes'
>;

/** What is counted under this lock stays true until the transaction ends. Who locks a run's row too, locks the team's first. */
export async function lockTeam(transaction: Transaction, teamId: string): Promise<void> {
  await transaction.$queryRaw`SELECT 1 FROM "Team" WHERE "id" = ${teamId}::uuid FOR NO KEY UPDATE`;
}

export function limitsOfTeam(row: LimitColumns, { teamLimits }: Settings): TeamLimits {
  const own = {
    activeRuns: row.maxActiveRuns,
    serverPlaces: row.maxServerPlaces,
    workers: row.maxWorkers,
    parameters: row.maxParameters === null ? null : Number(row.maxParameters),
    datasetBytes: row.maxDatasetBytes === null ? null : Number(row.maxDatasetBytes),
  };
  return limitsOf(own, teamLimits ?? DEFAULT_TEAM_LIMITS);
}

/** What the team's runs that are not over use. */
export async function activeUse(database: Database | Transaction, teamId: string): Promise<Pick<TeamUse, 'activeRuns' | 'parameters'>> {
  const { _count, _sum } = await database.run.aggregate({
    where: { teamId, status: { in: [...ACTIVE_STATUSES] } },
    _count: true,
    _sum: { parameterCount: true },
  });
  return { activeRuns: _count, parameters: Number(_sum.parameterCount ?? 0) };
}

/** Under the lock of the team's row, so that two runs at the same moment cannot both be the last that is allowed. */
export async function refusedByLimits(
  transaction: Transaction,
  teamId: string,
  settings: Settings,
  asked: Parameters<typeof exceeded>[2],
): Promise<LimitReached | undefined> {
  const team = await transaction.team.findUniqueOrThrow({ where: { id: teamId } });
  const refused = exceeded(limitsOfTeam(team, settings), await activeUse(transaction, teamId), asked);
  return refused && new LimitReached(refused);
}

/** Bytes of datasets that the team has in the store: shards and manifests, and uploads that are not finished too. */
export async function datasetBytesOf(database: Database | Transaction, teamId: string): Promise<number> {
  const shards = await database.datasetShard.aggregate({ where: { teamId }, _sum: { bytes: true } });
  const uploads = await database.datasetUpload.aggregate({ where: { teamId }, _sum: { bytes: true } });
  const manifests = await database.datasetVersion.aggregate({ where: { dataset: { teamId } }, _sum: { manifestBytes: true } });
  return Number(shards._sum.bytes ?? 0) + Number(uploads._sum.bytes ?? 0) + Number(manifests._sum.manifestBytes ?? 0);
}

/** Under the lock of the team's row. */
export async function refusedBytes(
  transaction: Transaction,
  teamId: string,
  settings: Settings,
  bytes: number,
): Promise<LimitReached | undefined> {
  const team = await transaction.team.findUniqueOrThrow({ where: { id: teamId } });
  const refused = exceededByBytes(limitsOfTeam(team, settings), await datasetBytesOf(transaction, teamId), bytes);
  return refused && new LimitReached(refused);
}
