/**
 * Metrics on reading. A series is asked for by name and thinned in SQL to so many buckets, so a run of ten million rounds and one of a
 * hundred cost the browser the same. A bucket keeps its extremes: a spike is seen however far one zooms out. It follows
 * the lineage of the weights: rounds that a restore made void are left out.
 */
import { Injectable } from '@nestjs/common';
import { coordinatorOf, type LineagePart } from '@paceline/control-plane';
import { MEASURED_NAMES, type SpecIssue } from '@paceline/spec';
import { Database } from '../database/database.js';
import { Fault } from '../fault.js';
import { lineageColumns, readLineage } from './stored-lineage.js';
import { RunReads } from './run-reads.js';
import { resultOf, shortSpecOf } from './run-row.js';
import type { MetricPoint, MetricSeries, Run } from './run.types.js';

/** What every row has beside its measures, by its column. */
const COLUMNS: readonly string[] = ['examplesPerSecond', 'roundMs', 'staleness'];
const OF_VALIDATION = 'val_';
/** Series that may be asked for at once. */
const MAX_NAMES = 50;
export const MAX_POINTS = 2_000;

const READ_STALENESS = `
  SELECT sum(place.count)::float8 AS "count"
    FROM "Metric" JOIN unnest($2::int[], $3::int[], $4::int[]) AS part(number, lo, hi)
                    ON "attempt" = part.number AND "round" >= part.lo AND "round" < part.hi,
         unnest("stalenessCounts") WITH ORDINALITY AS place(count, staleness)
   WHERE "runId" = $1::uuid GROUP BY place.staleness ORDER BY place.staleness`;

export interface MetricsArgs {
  readonly names: readonly string[];
  readonly fromRound?: number | null | undefined;
  readonly toRound?: number | null | undefined;
  readonly maxPoints?: number | null | undefined;
}

@Injectable()
export class Metrics {
  constructor(
    private readonly database: Database,
    private readonly reads: RunReads,
  ) {}

  /** @throws Fault INVALID_INPUT */
  async series(run: Run, { names, fromRound, toRound, maxPoints }: MetricsArgs): Promise<MetricSeries[]> {
    const points = maxPoints ?? 300;
    const issues: SpecIssue[] = [];
    const known = metricNamesOf(run);
    const unknown = names.find((name) => !known.includes(name));
    if (unknown !== undefined)
      issues.push({
        path: 'names',
        message: `there is no metric ${JSON.stringify(unknown.slice(0, 60))}; there are ${known.join(', ')}`,
      });
    if (names.length === 0 || names.length > MAX_NAMES) issues.push({ path: 'names', message: `name 1 to ${MAX_NAMES} metrics` });
    if (points < 1 || points > MAX_POINTS) issues.push({ path: 'maxPoints', message: `must be from 1 to ${MAX_POINTS}` });
    if (issues.length > 0) throw new Fault('INVALID_INPUT', issues.map(({ path, message }) => `${path}: ${message}`).join('; '));
    const from = Math.max(0, fromRound ?? 0);
    const to = toRound ?? 2 ** 31 - 1;
    const lineage = await readLineage(this.database, run.id, run.attempt);
    return Promise.all(
      [...new Set(names)].map(async (name) => ({
        name,
        points: await this.reads.inTurn(run.row.teamId, () => this.buckets(run.id, lineage, name, from, to, points)),
      })),
    );
  }

  /** Updates along the lineage by their staleness, the last place for all beyond; empty in synchronous runs. */
  staleness(run: Run): Promise<number[]> {
    const isEmpty = run.created || shortSpecOf(run.row).strategy.mode === 'sync';
    return isEmpty ? Promise.resolve([]) : this.reads.inTurn(run.row.teamId, () => this.readStaleness(run));
  }

  private async readStaleness({ id, attempt }: Run): Promise<number[]> {
    const lineage = lineageColumns(await readLineage(this.database, id, attempt));
    const rows = await this.database.rows<{ count: number }>('run-staleness', READ_STALENESS, [id, ...lineage]);
    return rows.map(({ count }) => count);
  }

  private buckets(
    id: string,
    lineage: readonly LineagePart[],
    name: string,
    from: number,
    to: number,
    points: number,
  ): Promise<MetricPoint[]> {
    const [attempts, starts, ends] = lineageColumns(lineage);
    const isColumn = COLUMNS.includes(name);
    const ofValidation = name.startsWith(OF_VALIDATION);
    const value = isColumn ? `"${name}"` : ofValidation ? `("validation"->'values'->>$8::text)::float8` : `("values"->>$8::text)::float8`;
    const of = isColumn ? [] : [ofValidation ? name.slice(OF_VALIDATION.length) : name];
    // A name that stands in the statement is one of the constants above.
    return this.database.$queryRawUnsafe<MetricPoint[]>(
      `WITH chosen AS (
         SELECT "round", "rounds", ${value} AS value, greatest("examples", 1)::float8 AS weight, "at",
                min("round") OVER () AS first, max("round") OVER () AS last
         FROM "Metric" JOIN unnest($2::int[], $6::int[], $7::int[]) AS part(number, lo, hi) ON "attempt" = part.number AND "round" >= part.lo AND "round" < part.hi
         WHERE "runId" = $1::uuid AND "round" BETWEEN $3 AND $4 AND ${value} IS NOT NULL
       )
       SELECT max("round") AS "round", sum("rounds")::int AS "rounds", sum(value * weight) / sum(weight) AS "value",
              min(value) AS "min", max(value) AS "max", (extract(epoch FROM max("at")) * 1000)::float8 AS "atMs"
       FROM chosen
       GROUP BY floor(("round" - first)::float8 * $5 / (last - first + 1))
       ORDER BY 1`,
      id,
      attempts,
      from,
      to,
      points,
      starts,
      ends,
      ...of,
    );
  }
}

/** Names of a run's series: those that every run has, and those that its rows have, in training and of validations. */
function metricNamesOf({ row }: Run): string[] {
  const measured = ['loss', ...MEASURED_NAMES];
  const known = new Set([
    ...measured,
    ...Object.keys(coordinatorOf(row)?.latest?.values ?? {}),
    ...Object.keys(resultOf(row)?.values ?? {}),
  ]);
  return [...known, ...[...known].map((name) => `${OF_VALIDATION}${name}`), ...COLUMNS];
}
