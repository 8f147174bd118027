/** The lineage of a run's present weights (libs/jobs), as it is stored, and conditions that read rows along it. */
import { lineageOf, originOf, type LineagePart } from '@paceline/jobs';
import type { Database } from '../database/database.js';

/** PostgreSQL's largest integer stands for "no end yet". */
const NO_END = 2 ** 31 - 1;

export async function readLineage(database: Database, runId: string, present: number): Promise<LineagePart[]> {
  const attempts = await database.attempt.findMany({ where: { runId }, orderBy: { number: 'asc' } });
  return lineageOf(attempts.map(originOf), present);
}

/** Metric rows that count. */
export const alongLineage = (lineage: readonly LineagePart[]) =>
  lineage.map(({ attempt, fromRound, toRound }) => ({ attempt, round: { gte: fromRound, lt: Math.min(toRound, NO_END) } }));

/** The same as three lists, for `unnest` in SQL. */
export const lineageColumns = (lineage: readonly LineagePart[]): [attempts: number[], from: number[], to: number[]] => [
  lineage.map(({ attempt }) => attempt),
  lineage.map(({ fromRound }) => fromRound),
  lineage.map(({ toRound }) => Math.min(toRound, NO_END)),
];
