/**
 * A run as it happens. A subscription is a cursor over what is stored, not a queue of its own: it reads rows after its cursor, hands
 * them out, and waits until the run has more (run-heads.ts). What many of them lack at once is read once. So a reconnect at `afterSeq` can neither lose nor repeat a row, a slow reader holds one batch
 * and nothing more, and it makes no difference which api stored a row.
 */
import { Injectable } from '@nestjs/common';
import { Database } from '../database/database.js';
import { isDatabaseOutage } from '../database/outage.js';
import { lineageColumns, readLineage } from './stored-lineage.js';
import { RunHeads, type RunHead } from './run-heads.js';
import type { MeasuresRecord, ValidationRecord } from '@paceline/control-plane';
import type { Metric, RunEvent } from '../generated/prisma/client.js';
import { namedMeasures } from './run-row.js';
import type { RunEventType, RunMetric } from './run.types.js';
import { toEvent } from './runs.js';

const EVENT_BATCH = 200;
const METRIC_BATCH = 2_000;
const ROWS_PER_SECOND = 10;
const READ_METRICS = `
  SELECT "seq", "round", "rounds", "epoch", "values", "validation", "examples", "examplesPerSecond", "roundMs", "staleness"
    FROM "Metric" JOIN unnest($4::int[], $5::int[], $6::int[]) AS part(number, lo, hi) ON "attempt" = part.number AND "round" >= part.lo AND "round" < part.hi
   WHERE "runId" = $1::uuid AND "seq" > $2::int AND "round" > $3::int ORDER BY "seq" LIMIT ${METRIC_BATCH}`;

@Injectable()
export class LiveRun {
  /** Reads that are under way: many watchers of one run lack the same rows at the same time. */
  private readonly underWay = new Map<string, Promise<unknown[] | undefined>>();

  constructor(
    private readonly database: Database,
    private readonly heads: RunHeads,
  ) {}

  /** Ends when the run is over and everything was handed out, or when the signal aborts. */
  async *events(runId: string, afterSeq: number, signal: AbortSignal): AsyncGenerator<RunEventType, void, undefined> {
    const watch = this.heads.watch(runId);
    let cursor = afterSeq;
    try {
      let head = await watch.next(signal);
      while (head) {
        const rows = cursor < head.eventSeq ? await this.eventsAfter(runId, cursor, head) : [];
        for (const row of rows ?? []) {
          if (signal.aborted) return;
          cursor = row.seq;
          yield toEvent(row);
        }
        if (rows && rows.length > 0) continue;
        if (rows && head.isOver) return;
        head = await watch.next(signal);
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
    const watch = this.heads.watch(runId);
    let cursor = 0;
    let lastRound = afterRound;
    try {
      let head = await watch.next(signal);
      while (head && !signal.aborted) {
        const rows = cursor < head.metricSeq ? await this.metricsAfter(runId, cursor, lastRound, head) : [];
        const isHistory = cursor === 0 || rows?.length === METRIC_BATCH || head.isOver;
        const groups = split(rows ?? [], isHistory ? ROWS_PER_SECOND : 1);
        for (const group of groups) {
          if (signal.aborted) return;
          cursor = group.at(-1)!.seq;
          lastRound = Math.max(lastRound, group.at(-1)!.round);
          yield merge(group);
        }
        if (groups.length > 0) await pause((groups.length * 1_000) / ROWS_PER_SECOND, signal);
        else if (rows && head.isOver) return;
        else head = await watch.next(signal);
      }
    } finally {
      watch.close();
    }
  }

  private eventsAfter(runId: string, seq: number, { eventSeq }: RunHead): Promise<RunEvent[] | undefined> {
    return this.share(`events ${runId} ${seq} ${eventSeq}`, () =>
      this.database.runEvent.findMany({ where: { runId, seq: { gt: seq } }, orderBy: { seq: 'asc' }, take: EVENT_BATCH }),
    );
  }

  private metricsAfter(runId: string, seq: number, round: number, { attempt, metricSeq }: RunHead): Promise<MetricRow[] | undefined> {
    return this.share(`metrics ${runId} ${seq} ${round} ${attempt} ${metricSeq}`, async () => {
      const lineage = lineageColumns(await readLineage(this.database, runId, attempt));
      return this.database.rows<MetricRow>('metrics-after', READ_METRICS, [runId, seq, round, ...lineage]);
    });
  }

  /**
   * Undefined while PostgreSQL is away: its subscribers stay, and miss nothing.
   * @param key names the head too, so that the read began after that head was seen, and has all rows that it tells of
   */
  private share<Row>(key: string, read: () => Promise<Row[]>): Promise<Row[] | undefined> {
    const known = this.underWay.get(key);
    if (known) return known as Promise<Row[] | undefined>;
    const begun = read()
      .catch((error: unknown) => {
        if (isDatabaseOutage(error)) return undefined;
        throw error;
      })
      .finally(() => this.underWay.delete(key));
    this.underWay.set(key, begun);
    return begun;
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

/** The columns of READ_METRICS. */
type MetricRow = Omit<Metric, 'runId' | 'attempt' | 'sequence' | 'stalenessCounts' | 'at'>;

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
