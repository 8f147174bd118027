/**
 * What the validations of a run have come to, for people: the best of them, the newest, and where the rate was lowered. The coordinator decides; here it is
 * read back along the lineage from what was stored, so that what a restore made void is not told.
 */
import { Injectable } from '@nestjs/common';
import type { LineagePart, ValidationRecord } from '@paceline/control-plane';
import { measureParts, METRIC_FORMS, validates, watchedMetric } from '@paceline/spec';
import { Database } from '../database/database.js';
import type { MeasuredRound, RateReduction, RunCourse } from './course.types.js';
import { lineageColumns, readLineage } from './stored-lineage.js';
import { RunReads } from './run-reads.js';
import type { ShortSpec } from './run-columns.js';
import { resultOf, shortSpecOf } from './run-row.js';
import type { Run } from './run.types.js';

const DECISIONS = ['rate.reduced', 'training.stopped-early'];
/** A rate that falls at each validation is as good as 0 long before. */
const MAX_DECISIONS = 1_000;

interface Decision {
  readonly attempt: number;
  readonly type: string;
  readonly data: unknown;
}

@Injectable()
export class Courses {
  constructor(
    private readonly database: Database,
    private readonly reads: RunReads,
  ) {}

  /** Null for a run that does not validate while it trains, and before its first validation. */
  async of(run: Run): Promise<RunCourse | null> {
    const spec = shortSpecOf(run.row);
    if (!validates(spec) || run.created) return null;
    return this.reads.inTurn(run.row.teamId, () => this.read(run, spec));
  }

  private async read(run: Run, spec: ShortSpec): Promise<RunCourse | null> {
    const lineage = await readLineage(this.database, run.id, run.attempt);
    const metric = (spec.earlyStopping ?? spec.reduceLROnPlateau)?.metric ?? 'val_loss';
    const better = betterOf(spec, metric);
    const decisions: Decision[] = await this.database.runEvent.findMany({
      where: { runId: run.id, type: { in: DECISIONS } },
      orderBy: { seq: 'asc' },
      take: MAX_DECISIONS,
      select: { attempt: true, type: true, data: true },
    });
    const counted = decisions.filter((decision) => isOnLineage(lineage, decision));
    const newest = await this.validation(run.id, lineage, `("validation"->>'round')::int DESC`);
    if (!newest) return null;
    // A run that is extended begins to watch anew: what its result had decided does not count while it trains.
    const result = run.status === 'SUCCEEDED' ? resultOf(run.row) : null;
    const isRestored = result?.weightsRound !== undefined;
    const stopped = result && counted.findLast(({ type }) => type === 'training.stopped-early');
    const decidedRound = isRestored ? result.weightsRound : stopped ? numberOf(stopped.data, 'bestRound') : undefined;
    const best = await this.validation(
      run.id,
      lineage,
      `("validation"->'values'->>$6::text)::float8 ${better === 'lower' ? 'ASC' : 'DESC'} NULLS LAST, "round"`,
      { ofRound: decidedRound, name: watchedMetric(metric) },
    );
    return {
      metric,
      better,
      best: best ?? newest,
      last: result && !isRestored ? { round: result.rounds, values: result.values } : newest,
      reductions: counted.flatMap(reductionOf),
    };
  }

  /** The first in an order, which may speak of a measure by its name; of one round where it is given. */
  private async validation(
    runId: string,
    lineage: readonly LineagePart[],
    order: string,
    { ofRound, name }: { readonly ofRound?: number | undefined; readonly name?: string } = {},
  ): Promise<MeasuredRound | undefined> {
    const [attempts, starts, ends] = lineageColumns(lineage);
    const [row] = await this.database.$queryRawUnsafe<{ validation: ValidationRecord }[]>(
      `SELECT "validation"
       FROM "Metric" JOIN unnest($2::int[], $3::int[], $4::int[]) AS part(number, lo, hi) ON "attempt" = part.number AND "round" >= part.lo AND "round" < part.hi
       WHERE "runId" = $1::uuid AND "validation"->'round' IS NOT NULL AND ($5::int IS NULL OR ("validation"->>'round')::int + 1 = $5)
       ORDER BY ${order} LIMIT 1`,
      runId,
      attempts,
      starts,
      ends,
      ofRound ?? null,
      ...(name === undefined ? [] : [name]),
    );
    // Rounds are told as they are committed, from one.
    return row && { round: row.validation.round + 1, values: row.validation.values };
  }
}

function betterOf(spec: ShortSpec, metric: string): 'higher' | 'lower' {
  const mode = (spec.earlyStopping ?? spec.reduceLROnPlateau)?.mode ?? 'auto';
  if (mode !== 'auto') return mode === 'max' ? 'higher' : 'lower';
  const parts = measureParts(watchedMetric(metric));
  return parts ? METRIC_FORMS[parts.metric].better : 'lower';
}

const numberOf = (data: unknown, name: string): number | undefined => {
  const value = (data as Record<string, unknown> | null)?.[name];
  return typeof value === 'number' ? value : undefined;
};

/** What was decided with the commit of round k belongs to whom that round belongs to. */
function isOnLineage(lineage: readonly LineagePart[], { attempt, data }: Decision): boolean {
  const committed = numberOf(data, 'round');
  return (
    committed !== undefined &&
    lineage.some((part) => part.attempt === attempt && committed - 1 >= part.fromRound && committed - 1 < part.toRound)
  );
}

function reductionOf({ type, data }: Decision): RateReduction[] {
  const [round, was, factor] = ['round', 'was', 'factor'].map((name) => numberOf(data, name));
  if (type !== 'rate.reduced' || round === undefined || was === undefined || factor === undefined) return [];
  return [{ round, was, factor }];
}
