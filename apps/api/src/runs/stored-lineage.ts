/** The lineage of a run's present weights (libs/control-plane), as it is stored, and conditions that read rows along it. */
import { lineageOf, originOf, resultRounds, type LineagePart } from '@paceline/control-plane';
import { Batch } from '../database/batch.js';
import type { Database } from '../database/database.js';

/** PostgreSQL's largest integer stands for "no end yet". */
const NO_END = 2 ** 31 - 1;

/** An end is of runs that SUCCEEDED. */
const READ = `
  SELECT run."id", CASE WHEN run."status" = 'SUCCEEDED' THEN run."result" END AS "result",
         (SELECT coalesce(jsonb_agg(jsonb_build_object('number', "number", 'parentRunId', "parentRunId", 'parentNumber', "parentNumber",
                                                       'parentRound', "parentRound") ORDER BY "number"), '[]')
            FROM "Attempt" WHERE "runId" = run."id") AS "attempts"
    FROM "Run" AS run WHERE run."id" = ANY($1::uuid[])`;

interface Stored {
  readonly id: string;
  readonly result: unknown;
  readonly attempts: readonly Parameters<typeof originOf>[0][];
}

/** Several fields of a run ask for it, for every run of a page. */
const batches = new WeakMap<Database, Batch<string, Stored>>();

async function storedOf(database: Database, runId: string): Promise<Stored | undefined> {
  let batch = batches.get(database);
  if (!batch) {
    const read = (ids: readonly string[]): Promise<Stored[]> => database.rows<Stored>('run-lineages', READ, [ids]);
    batches.set(database, (batch = new Batch(read, { ofKey: (id) => id, ofRow: ({ id }) => id })));
  }
  return (await batch.load(runId))[0];
}

/** The lineage of all checkpoints from which a run can go on, those of an extension that was cancelled too. */
export async function readWholeLineage(database: Database, runId: string, present: number): Promise<LineagePart[]> {
  return lineageOf(((await storedOf(database, runId))?.attempts ?? []).map(originOf), present);
}

/** The lineage that counts. It ends at the result of a run that SUCCEEDED: an extension that was cancelled or failed may have gone beyond it. */
export async function readLineage(database: Database, runId: string, present: number): Promise<LineagePart[]> {
  const { attempts = [], result = null } = (await storedOf(database, runId)) ?? {};
  return lineageOf(attempts.map(originOf), present, resultRounds(result) ?? Infinity);
}

/** As three lists, for `unnest` in SQL. */
export const lineageColumns = (lineage: readonly LineagePart[]): [attempts: number[], from: number[], to: number[]] => [
  lineage.map(({ attempt }) => attempt),
  lineage.map(({ fromRound }) => fromRound),
  lineage.map(({ toRound }) => Math.min(toRound, NO_END)),
];
