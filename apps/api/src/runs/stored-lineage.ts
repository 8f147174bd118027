/** The lineage of a run's present weights (libs/control-plane), as it is stored, and conditions that read rows along it. */
import { lineageOf, originOf, resultRounds, type LineagePart } from '@paceline/control-plane';
import { Batch } from '../database/batch.js';
import type { Database } from '../database/database.js';
import type { Attempt, Run } from '../generated/prisma/client.js';

/** PostgreSQL's largest integer stands for "no end yet". */
const NO_END = 2 ** 31 - 1;

/** Several fields of a run ask for them, for every run of a page. */
const attempts = new WeakMap<Database, Batch<string, Attempt>>();
const results = new WeakMap<Database, Batch<string, RunEnd>>();
type RunEnd = Pick<Run, 'id' | 'status' | 'result'>;

function batchOf<Row>(
  batches: WeakMap<Database, Batch<string, Row>>,
  database: Database,
  read: (ids: readonly string[]) => Promise<Row[]>,
  ofRow: (row: Row) => string,
): Batch<string, Row> {
  let batch = batches.get(database);
  if (!batch) batches.set(database, (batch = new Batch(read, { ofKey: (id) => id, ofRow })));
  return batch;
}

const attemptsOf = (database: Database, runId: string): Promise<Attempt[]> =>
  batchOf(
    attempts,
    database,
    (ids) => database.attempt.findMany({ where: { runId: { in: [...ids] } }, orderBy: { number: 'asc' } }),
    (row) => row.runId,
  ).load(runId);

const endOf = (database: Database, runId: string): Promise<RunEnd[]> =>
  batchOf(
    results,
    database,
    (ids) => database.run.findMany({ where: { id: { in: [...ids] } }, select: { id: true, status: true, result: true } }),
    (row) => row.id,
  ).load(runId);

/** The lineage of all checkpoints from which a run can go on, those of an extension that was cancelled too. */
export async function readWholeLineage(database: Database, runId: string, present: number): Promise<LineagePart[]> {
  return lineageOf((await attemptsOf(database, runId)).map(originOf), present);
}

/** The lineage that counts. It ends at the result of a run that SUCCEEDED: an extension that was cancelled or failed may have gone beyond it. */
export async function readLineage(database: Database, runId: string, present: number): Promise<LineagePart[]> {
  const [rows, [run]] = await Promise.all([attemptsOf(database, runId), endOf(database, runId)]);
  const end = run?.status === 'SUCCEEDED' ? resultRounds(run.result) : null;
  return lineageOf(rows.map(originOf), present, end ?? Infinity);
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
