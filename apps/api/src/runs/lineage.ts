/** The lineage of a run's present weights (libs/jobs), as it is stored, and conditions that read rows along it. */
import { lineageOf, originOf, resultRounds, type LineagePart } from '@paceline/jobs';
import type { Database } from '../database/database.js';

/** PostgreSQL's largest integer stands for "no end yet". */
const NO_END = 2 ** 31 - 1;

/** Along which checkpoints can be gone on from: those of an extension that was cancelled too. */
export async function readWholeLineage(database: Database, runId: string, present: number): Promise<LineagePart[]> {
  return lineageOf((await database.attempt.findMany({ where: { runId } })).map(originOf), present);
}

/** Of a run that SUCCEEDED up to its result: an extension that was cancelled or failed may have gone beyond it. */
export async function readLineage(database: Database, runId: string, present: number): Promise<LineagePart[]> {
  const [attempts, run] = await Promise.all([
    database.attempt.findMany({ where: { runId }, orderBy: { number: 'asc' } }),
    database.run.findUnique({ where: { id: runId }, select: { status: true, result: true } }),
  ]);
  const end = run?.status === 'SUCCEEDED' ? resultRounds(run.result) : null;
  return lineageOf(attempts.map(originOf), present, end ?? Infinity);
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
