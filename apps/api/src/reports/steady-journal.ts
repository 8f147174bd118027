/**
 * Reports of a run that trains and does nothing else: metrics and ledger ranges that follow the last report, of the attempt and coordinator that are
 * known. Nearly all reports are, and how many rounds are in one makes little difference: one statement stores it.
 *
 *     report follows what was stored last? ── yes ──> one statement, under its conditions ──> stored
 *                └─ no, or the row is not as remembered ──> JournalStore, under the lock of the run's row, which says anew what is stored
 *
 * What is remembered is checked by the statement itself, so another api may store the next report, end the attempt or cancel the run meanwhile.
 */
import { Injectable } from '@nestjs/common';
import {
  compareStreamIds,
  highWaterOf,
  keptStateOf,
  refusalOf,
  type EntryOf,
  type JournalReport,
  type StoredCoordinator,
} from '@paceline/control-plane';
import { BackgroundDatabase } from '../database/database.js';
import { isDatabaseOutage } from '../database/outage.js';
import { storable } from '../text-input.js';
import type { Stored } from './stored.js';
import { databaseDate } from '../database/database-clock.js';

/** What is stored of a RUNNING run, with nothing beyond `storedSequence`. */
export interface Remembered {
  readonly attempt: number;
  readonly storedSequence: number;
  readonly coordinatorTerm: number;
  readonly lastMetricSeq: number;
  readonly coordinator: StoredCoordinator;
}

export const MAX_REMEMBERED = 1_000;

/** Nothing, or all of it: a run that is as remembered with an attempt that is not divides by zero, which undoes it. */
const STORE = `
  WITH run AS (
    UPDATE "Run" SET "coordinator" = $5::jsonb, "coordinatorAt" = $6::timestamptz, "lastMetricSeq" = "lastMetricSeq" + jsonb_array_length($10::jsonb)
     WHERE "id" = $1::uuid AND "attempt" = $2::int AND "status" = 'RUNNING' AND "lastMetricSeq" = $3::int AND "coordinator"->>'streamId' = $4::text
    RETURNING 1),
  attempt AS (
    UPDATE "Attempt" SET "storedSequence" = $7::bigint
     WHERE "runId" = $1::uuid AND "number" = $2::int AND "storedSequence" = $8::bigint AND "coordinatorTerm" = $9::int AND EXISTS (SELECT FROM run)
    RETURNING 1),
  metrics AS (
    INSERT INTO "Metric" ("runId", "seq", "attempt", "sequence", "round", "rounds", "epoch", "values", "validation", "examples", "examplesPerSecond",
                          "roundMs", "staleness", "stalenessCounts", "at")
    SELECT $1::uuid, $3::int + row.n, $2::int, m."sequence", m."round", m."rounds", m."epoch", m."values", m."validation", m."examples",
           m."examplesPerSecond", m."roundMs", m."staleness", coalesce(m."stalenessCounts", '{}'), to_timestamp(m."atMs" / 1000.0)
      FROM jsonb_array_elements($10::jsonb) WITH ORDINALITY AS row(entry, n),
           jsonb_to_record(row.entry) AS m("sequence" bigint, "round" int, "rounds" int, "epoch" int, "values" jsonb, "validation" jsonb, "examples" bigint,
             "examplesPerSecond" float8, "roundMs" float8, "staleness" float8, "stalenessCounts" int[], "atMs" float8)
     WHERE EXISTS (SELECT FROM attempt)),
  ranges AS (
    INSERT INTO "LedgerRange" ("runId", "attempt", "sequence", "fromRound", "toRound", "examples", "dropped")
    SELECT $1::uuid, $2::int, l."sequence", l."fromRound", l."toRound", l."examples", coalesce(l."dropped", 0)
      FROM jsonb_to_recordset($11::jsonb) AS l("sequence" bigint, "fromRound" int, "toRound" int, "examples" bigint, "dropped" bigint)
     WHERE EXISTS (SELECT FROM attempt))
  SELECT (SELECT count(*) FROM run)::int / CASE WHEN EXISTS (SELECT FROM run) AND NOT EXISTS (SELECT FROM attempt) THEN 0 ELSE 1 END AS "stored"`;

@Injectable()
export class SteadyJournal {
  private readonly known = new Map<string, Remembered>();

  constructor(private readonly database: BackgroundDatabase) {}

  /** What was committed with a report; undefined when the next one has to be looked at closely. */
  remember(runId: string, stored: Remembered | undefined): void {
    this.known.delete(runId);
    if (!stored) return;
    // The one that has reported least lately: whoever reports is inserted anew.
    if (this.known.size >= MAX_REMEMBERED) this.known.delete(this.known.keys().next().value!);
    this.known.set(runId, stored);
  }

  /** @returns undefined, with nothing stored, for a report that has to be looked at closely @throws when PostgreSQL is away */
  async store(report: JournalReport, streamId: string): Promise<Stored | undefined> {
    const { runId, attempt, entries } = report;
    const known = this.known.get(runId);
    if (!known || !follows(report, streamId, known)) return undefined;
    const metrics = entries.filter((entry): entry is EntryOf<'metric'> => entry.kind === 'metric');
    const ranges = entries.filter(({ kind }) => kind === 'ledger');
    const { next, changed } = keptStateOf(known.coordinator, attempt, storable(report.state), streamId, metrics.at(-1));
    const storedSequence = highWaterOf(report, known.storedSequence);
    this.known.delete(runId);
    const isStored = await this.execute([
      ...[runId, attempt, known.lastMetricSeq, known.coordinator.streamId, JSON.stringify(next), databaseDate()],
      ...[storedSequence, known.storedSequence, known.coordinatorTerm, JSON.stringify(metrics), JSON.stringify(ranges)],
    ]);
    if (!isStored) return undefined;
    this.remember(runId, { ...known, storedSequence, lastMetricSeq: known.lastMetricSeq + metrics.length, coordinator: next });
    return { ack: { attempt, sequence: storedSequence }, mustStop: false, newEntries: entries.length, changed };
  }

  private async execute(values: readonly unknown[]): Promise<boolean> {
    try {
      const [row] = await this.database.statement<{ stored: number }>('steady-journal', STORE, values);
      return row?.stored === 1;
    } catch (error) {
      if (isDatabaseOutage(error)) throw error;
      return false; // what cannot be stored this way is judged by the other
    }
  }
}

/** Whether it is all new, begins where the last one ended, and brings nothing but rounds. */
function follows(report: JournalReport, streamId: string, known: Remembered): boolean {
  const { entries } = report;
  const { attempt, coordinatorTerm, storedSequence, coordinator } = known;
  const isNext = entries.length === 0 || (entries[0]!.sequence > storedSequence && highWaterOf(report, storedSequence) > storedSequence);
  return (
    refusalOf(report, { attempt, coordinatorTerm }) === undefined &&
    isNext &&
    compareStreamIds(streamId, coordinator.streamId) > 0 &&
    entries.every(({ kind, sequence }, i) => kind !== 'event' && (i === 0 || sequence > entries[i - 1]!.sequence))
  );
}
