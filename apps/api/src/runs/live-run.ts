/**
 * A run as it happens. A subscription is a cursor over what is stored, not a queue of its own: it reads rows after its cursor, hands
 * them out, and waits to be woken. So a reconnect at `afterSeq` can neither lose nor repeat a row, a slow reader holds one batch
 * and nothing more, and it makes no difference which api stored a row.
 */
import { Injectable } from '@nestjs/common';
import { Database } from '../database/database.js';
import { isDatabaseOutage } from '../database/outage.js';
import { alongLineage, readLineage } from './stored-lineage.js';
import { RunSignals } from './run-signals.js';
import { isOver, type MeasuresRecord, type ValidationRecord } from '@paceline/control-plane';
import type { Metric } from '../generated/prisma/client.js';
import { namedMeasures } from './run-row.js';
import type { RunEventType, RunMetric } from './run.types.js';
import { toEvent } from './runs.js';

const EVENT_BATCH = 200;
const METRIC_BATCH = 2_000;
/** Rows that another api stored are seen within this time. */
const LOOK_EVERY_MS = 1_000;
const ROWS_PER_SECOND = 10;

@Injectable()
export class LiveRun {
  constructor(
    private readonly database: Database,
    private readonly signals: RunSignals,
  ) {}

  /** Ends when the run is over and everything was handed out, or when the signal aborts. */
  async *events(runId: string, afterSeq: number, signal: AbortSignal): AsyncGenerator<RunEventType, void, undefined> {
    const watch = this.signals.watch(runId);
    let cursor = afterSeq;
    try {
      while (!signal.aborted) {
        const seen = await this.look(runId, () =>
          this.database.runEvent.findMany({ where: { runId, seq: { gt: cursor } }, orderBy: { seq: 'asc' }, take: EVENT_BATCH }),
        );
        for (const row of seen?.rows ?? []) {
          if (signal.aborted) return;
          cursor = row.seq;
          yield toEvent(row);
        }
        if (seen && seen.rows.length > 0) continue;
        if (seen?.over) return;
        await watch.wait(LOOK_EVERY_MS, signal);
      }
    } finally {
      watch.close();
    }
  }

  /**
   * Along the lineage, each round in one row: what is redone after a restore was seen before. At most ten rows a second: what came in between is merged into them. What is stored already comes as up to ten rows
   * at once.
   */
  async *metrics(runId: string, afterRound: number, signal: AbortSignal): AsyncGenerator<RunMetric, void, undefined> {
    const watch = this.signals.watch(runId);
    let cursor = 0;
    let lastRound = afterRound;
    try {
      while (!signal.aborted) {
        const seen = await this.look(runId, async ({ attempt }) => {
          const parts = alongLineage(await readLineage(this.database, runId, attempt));
          const where = { runId, seq: { gt: cursor }, round: { gt: lastRound }, OR: parts };
          return this.database.metric.findMany({ where, orderBy: { seq: 'asc' }, take: METRIC_BATCH });
        });
        const rows = seen?.rows ?? [];
        const isHistory = cursor === 0 || rows.length === METRIC_BATCH || seen?.over;
        const groups = split(rows, isHistory ? ROWS_PER_SECOND : 1);
        for (const group of groups) {
          if (signal.aborted) return;
          cursor = group.at(-1)!.seq;
          lastRound = Math.max(lastRound, group.at(-1)!.round);
          yield merge(group);
        }
        if (rows.length > 0) await pause((groups.length * 1_000) / ROWS_PER_SECOND, signal);
        else if (seen?.over) return;
        else await watch.wait(LOOK_EVERY_MS, signal);
      }
    } finally {
      watch.close();
    }
  }

  /** Rows, and whether the run was over before they were read. Undefined while PostgreSQL is away: its subscribers stay, and miss nothing. */
  private async look<T>(
    runId: string,
    read: (run: { attempt: number }) => Promise<T[]>,
  ): Promise<{ rows: T[]; over: boolean } | undefined> {
    try {
      const run = await this.database.run.findUnique({ where: { id: runId }, select: { status: true, attempt: true } });
      return { over: run === null || isOver(run.status), rows: run ? await read(run) : [] };
    } catch (error) {
      if (isDatabaseOutage(error)) return undefined;
      throw error;
    }
  }
}

function pause(delayMs: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      clearTimeout(timer);
      signal.removeEventListener('abort', done);
      resolve();
    };
    const timer = setTimeout(done, delayMs);
    signal.addEventListener('abort', done);
  });
}

type MetricRow = Metric;

const valuesOf = ({ values }: Pick<MetricRow, 'values'>): MeasuresRecord => values as MeasuresRecord;

/** At most `count` runs of neighbours. */
function split<T>(rows: readonly T[], count: number): T[][] {
  const size = Math.ceil(rows.length / count);
  return Array.from({ length: size === 0 ? 0 : Math.ceil(rows.length / size) }, (_, i) => rows.slice(i * size, (i + 1) * size));
}

function merge(rows: readonly MetricRow[]): RunMetric {
  const last = rows.at(-1)!;
  const rounds = rows.reduce((sum, row) => sum + row.rounds, 0);
  const mean = (value: (row: MetricRow) => number | null, weight: (row: MetricRow) => number): number | null => {
    const known = rows.filter((row) => value(row) !== null);
    const total = known.reduce((sum, row) => sum + weight(row), 0);
    return total === 0 ? null : known.reduce((sum, row) => sum + value(row)! * weight(row), 0) / total;
  };
  const names = Object.keys(valuesOf(last));
  const byExamples = (row: MetricRow): number => Math.max(1, Number(row.examples));
  return {
    seq: last.seq,
    round: last.round,
    rounds,
    epoch: last.epoch,
    examplesPerSecond: last.examplesPerSecond,
    ...namedMeasures(Object.fromEntries(names.map((name) => [name, mean((row) => valuesOf(row)[name] ?? null, byExamples)]))),
    validation: rows.reduce<ValidationRecord | null>((newest, row) => (row.validation as ValidationRecord | null) ?? newest, null),
    roundMs:
      mean(
        (row) => row.roundMs,
        (row) => row.rounds,
      ) ?? last.roundMs,
    staleness: mean(
      (row) => row.staleness,
      (row) => row.rounds,
    ),
  };
}
