/** What reports change, over rows in memory: the transactions of apps/api/src/reports, on decisions of libs/control-plane. */
import {
  checkpointOf,
  claimed,
  closedSeat,
  coordinatorOf,
  endOf,
  endOfComplaint,
  failedSeat,
  hasLiveAttempt,
  highWaterOf,
  isToldOf,
  keptStateOf,
  letGo,
  lineageOf,
  mayHaveOutcomes,
  movesToRunning,
  mustStop,
  newEntriesOf,
  originOf,
  OUTCOMES,
  refusalOf,
  showsTraining,
  type JournalAck,
  type JournalOutcome,
  type JournalReport,
  type Report,
} from '@paceline/control-plane';
import { placeKey } from '../world/postgres.js';
import type { StoredRun } from './stored-run.js';

type Of<K extends Report['kind']> = Extract<Report, { kind: K }>;
export type FleetReport = Of<'server.claimed' | 'server.failed' | 'seat.failed' | 'seat.left'>;

/** As reports/fleet-reports.ts. */
export function takeReport(stored: StoredRun, report: FleetReport): void {
  switch (report.kind) {
    case 'server.claimed': {
      const { attempt, role = 'primary', address } = report;
      const place = { attempt, index: address.index, role };
      const change = claimed(stored.run, stored.rows.servers.get(placeKey(place)) ?? null, report, stored.now);
      if (change) stored.setPlace(place, change);
      return;
    }
    case 'server.failed': {
      const { attempt } = report;
      const end = endOfComplaint(stored.run, stored.rows.attempts.get(attempt) ?? null, stored.places(attempt), report);
      if (end) stored.end(end);
      return;
    }
    case 'seat.failed':
      return seatFailed(stored, report);
    case 'seat.left': {
      const { attempt, seat, incarnation, reason } = report;
      for (const task of stored.tasks(
        (row) => row.attempt === attempt && row.seat === seat && row.incarnation === incarnation && row.state !== 'CLOSED',
      ))
        stored.setTask(task, closedSeat(reason, stored.now));
    }
  }
}

function seatFailed(stored: StoredRun, report: Of<'seat.failed'>): void {
  const { attempt, seat, incarnation } = report;
  const told = stored.rows.events.values().filter((event) => event.attempt === attempt && event.type === 'seat.failed');
  const failed = failedSeat(stored.run, stored.rows.attempts.get(attempt) ?? null, isToldOf(told, report), report, stored.now);
  if (!failed) return;
  stored.setAttempt(attempt, failed.attempt);
  for (const task of stored.tasks(
    (row) => row.attempt === attempt && row.seat === seat && row.incarnation === incarnation && row.state === 'OPEN',
  ))
    stored.setTask(task, failed.closes);
  stored.addEvents([failed.event]);
  stored.set({ lastSeatFailure: failed.failure });
}

export interface StoredJournal {
  readonly ack: JournalAck | undefined;
  readonly mustStop: boolean;
  readonly changed: boolean;
}

/** As reports/journal-store.ts. */
export function storeJournal(stored: StoredRun, report: JournalReport, streamId: string): StoredJournal {
  const { rows, run } = stored;
  const { storedSequence, coordinatorTerm } = report.attempt === run.attempt ? stored.attempt : { storedSequence: 0, coordinatorTerm: 1 };
  const refusal = refusalOf(report, { attempt: run.attempt, coordinatorTerm });
  if (refusal) return { ...refusal, changed: false };
  const later = rows.entries.values().filter(({ attempt, sequence }) => attempt === run.attempt && sequence > storedSequence);
  const entries = newEntriesOf(report.entries, storedSequence, new Set(later.map(({ sequence }) => sequence)));
  for (const entry of entries) {
    stored.watch.entryWritten(report.attempt, run.attempt);
    rows.entries.set(`${run.attempt}/${entry.sequence}`, { ...entry, attempt: run.attempt });
  }
  stored.addEvents(
    entries.flatMap((entry) =>
      entry.kind === 'event'
        ? [{ attempt: run.attempt, sequence: entry.sequence, type: entry.type, message: entry.message, data: entry.data }]
        : [],
    ),
  );
  const sequence = highWaterOf(report, storedSequence);
  if (sequence > storedSequence) stored.setAttempt(run.attempt, { storedSequence: sequence });
  const newest = entries.filter((entry) => entry.kind === 'metric').at(-1);
  const { next, changed } = keptStateOf(coordinatorOf(run), run.attempt, report.state, streamId, newest);
  stored.set({ coordinator: next, coordinatorAt: stored.now });
  if (sequence > storedSequence) stored.watch.storedUpTo(run.attempt, storedSequence, sequence);
  const outcomes =
    sequence > storedSequence && mayHaveOutcomes(entries, later.length > 0) ? outcomesOf(stored, storedSequence, sequence) : [];
  if (showsTraining(report.state, entries, outcomes)) for (const move of movesToRunning(stored.run)) stored.move(move);
  for (const outcome of outcomes) {
    if (outcome.type === 'checkpoint.written') keepCheckpoint(stored, outcome);
    else {
      const { end, result } = endOf(outcome);
      stored.end(end, result);
    }
  }
  const isLive = hasLiveAttempt(stored.run.status);
  return {
    ack: { attempt: run.attempt, sequence },
    mustStop: mustStop(report, isLive, entries),
    changed: changed || stored.run.status !== run.status,
  };
}

function outcomesOf({ rows, run }: StoredRun, after: number, upTo: number): JournalOutcome[] {
  const outcomes: JournalOutcome[] = [];
  for (let sequence = after + 1; sequence <= upTo; sequence++) {
    const entry = rows.entries.get(`${run.attempt}/${sequence}`);
    if (entry?.kind === 'event' && OUTCOMES.includes(entry.type)) outcomes.push(entry);
  }
  return outcomes;
}

function keepCheckpoint(stored: StoredRun, outcome: JournalOutcome): void {
  const { rows, run } = stored;
  const known = checkpointOf(outcome, run.attempt);
  if (!known) return;
  const key = `${known.attempt}/${known.round}`;
  if (!rows.checkpoints.get(key)) rows.checkpoints.set(key, { ...known, isInvalid: false, isRemoved: false });
  stored.watch.checkpointWritten({ runId: stored.id, attempt: known.attempt, round: known.round });
  const present = rows.checkpoints.values().map((row) => ({ ...row, isGone: row.isInvalid || row.isRemoved }));
  const lineage = lineageOf(rows.attempts.values().map(originOf), run.attempt);
  for (const gone of letGo(lineage, present, stored.spec.checkpoint)) {
    const { isGone: _isGone, ...row } = gone;
    rows.checkpoints.set(`${row.attempt}/${row.round}`, { ...row, isRemoved: true });
  }
}
