/** The lineage of a run's present weights (libs/jobs), as it is stored, and conditions that read rows along it. */
import { lineageOf, originOf, type LineagePart } from '@paceline/jobs';
import { Batch } from '../database/batch.js';
import type { Database } from '../database/database.js';
import type { Attempt } from '../generated/prisma/client.js';

/** PostgreSQL's largest integer stands for "no end yet". */
const NO_END = 2 ** 31 - 1;

/** Several fields of a run ask for it, for every run of a page. */
const batches = new WeakMap<Database, Batch<string, Attempt>>();

export async function readLineage(database: Database, runId: string, present: number): Promise<LineagePart[]> {
  let batch = batches.get(database);
  if (!batch) {
    const read = (ids: readonly string[]) => database.attempt.findMany({ where: { runId: { in: [...ids] } }, orderBy: { number: 'asc' } });
    batches.set(database, (batch = new Batch(read, { ofKey: (id) => id, ofRow: (row) => row.runId })));
  }
  return lineageOf((await batch.load(runId)).map(originOf), present);
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
