/**
 * What one report of a coordinator changes (docs/protocol.md §19), decided from the stored rows. The api carries it out in one transaction under
 * the lock of the run's row, the simulator in memory:
 *
 *     attempt, term       ->  of another attempt, or of a coordinator that its standby has replaced: nothing is stored
 *     entries n > stored  ->  events, metrics, ledger ranges, each once
 *     stored              ->  moves to the report's last n when nothing is missing before it
 *     state               ->  the run's newest state, unless a newer report was stored already
 *     outcomes            ->  checkpoints and moves of the status, when everything before them is stored
 */
import {
  checkpointRecordSchema,
  runResultSchema,
  type CheckpointRecord,
  type CoordinatorState,
  type JournalEntry,
  type Report,
  type RunResult,
} from '../contract/reports.js';
import type { Acknowledged } from '../contract/control.js';
import { causeOfFailure, type AttemptEnd } from '../lifecycle/attempt-end.js';
import type { LatestMetric, StoredCoordinator } from './rows.js';
import type { PlainMove, RunHead } from '../changes/moves.js';

export type JournalReport = Extract<Report, { kind: 'journal' }>;
export type EntryOf<K extends JournalEntry['kind']> = Extract<JournalEntry, { kind: K }>;

const LIVE_PHASES: readonly string[] = ['waiting', 'training', 'pausing', 'evaluating'];
/** Events that change more than the history; applied in order. */
export const OUTCOMES: readonly string[] = ['run.finished', 'run.failed', 'run.cancelled', 'run.paused', 'checkpoint.written'];
export interface JournalOutcome {
  readonly type: string;
  readonly message: string;
  readonly data: Record<string, unknown>;
  readonly atMs: number;
}

/** Whether its coordinator still trains, as it says. */
export const isLive = ({ state }: JournalReport): boolean => LIVE_PHASES.includes(state.phase);

/** What the coordinator of an attempt is told of its journal. */
export interface JournalAck extends Acknowledged {
  readonly attempt: number;
}

/**
 * What a report of an old attempt or coordinator is answered with; undefined for one that may write.
 * An older attempt's entries are dropped, and it is told so: the attempt after it begins with a checkpoint that is known here, and rounds
 * beyond it are void. A coordinator that was replaced is not answered; it learns from the arbiter that it has lost.
 */
export function refusalOf(
  report: JournalReport,
  present: { readonly attempt: number; /** The term below which nobody is heard. */ readonly coordinatorTerm: number },
): { readonly ack: JournalAck | undefined; readonly mustStop: boolean } | undefined {
  if (report.attempt !== present.attempt)
    return { ack: { attempt: report.attempt, sequence: report.entries.at(-1)?.sequence ?? 0, areDropped: true }, mustStop: isLive(report) };
  return (report.term ?? 1) < present.coordinatorTerm ? { ack: undefined, mustStop: false } : undefined;
}

/** Entries that are not stored yet. @param known numbers beyond `storedSequence` that are stored: a gap may be filled out of order */
export function newEntriesOf(entries: readonly JournalEntry[], storedSequence: number, known: ReadonlySet<number>): JournalEntry[] {
  const seen = new Set(known);
  return entries.filter(({ sequence }) => sequence > storedSequence && !seen.has(sequence) && seen.add(sequence));
}

/**
 * How far everything is stored. A journal that had to thin has gaps in its numbers; `after` names the entry before the report's first
 * one, so a gap of the journal can be told from a report that was lost.
 */
export function highWaterOf({ entries, after }: JournalReport, storedSequence: number): number {
  const [first, last] = [entries[0], entries.at(-1)];
  if (!first || !last || last.sequence <= storedSequence || (after ?? first.sequence - 1) > storedSequence) return storedSequence;
  return last.sequence;
}

export interface KeptState {
  readonly next: StoredCoordinator;
  /** Seats or phase are not what they were: the reconciler may want to act. */
  readonly changed: boolean;
}

/** @param streamId of the report in the stream (`ms-n`), which orders the states */
export function keptStateOf(
  present: StoredCoordinator | null,
  attempt: number,
  state: CoordinatorState,
  streamId: string,
  newest: EntryOf<'metric'> | undefined,
): KeptState {
  const isOurs = present?.attempt === attempt;
  const latest = newest ? latestOf(newest, isOurs ? present.latest : null) : isOurs ? present.latest : null;
  const isOlder = isOurs && compareStreamIds(streamId, present.streamId) < 0;
  const next: StoredCoordinator = isOlder ? { ...present, latest } : { ...state, attempt, streamId, latest };
  return { next, changed: !isOurs || present.phase !== next.phase || JSON.stringify(present.seats) !== JSON.stringify(next.seats) };
}

/** @param before of the same attempt: a validation stays the newest until there is another */
const latestOf = ({ epoch, values, validation, examplesPerSecond }: EntryOf<'metric'>, before: LatestMetric | null): LatestMetric => ({
  epoch,
  values,
  validation: validation ?? before?.validation ?? null,
  examplesPerSecond,
});

/** Whether outcomes may have become known: they count when everything before them is stored. */
export const mayHaveOutcomes = (entries: readonly JournalEntry[], hadLater: boolean): boolean =>
  hadLater || entries.some((entry) => entry.kind === 'event' && OUTCOMES.includes(entry.type));

/** Whether the report shows that rounds are under way, or were. */
export function showsTraining(
  { phase }: CoordinatorState,
  entries: readonly JournalEntry[],
  outcomes: readonly Pick<JournalOutcome, 'type'>[],
): boolean {
  if (phase === 'training' || phase === 'evaluating' || outcomes.some(({ type }) => type === 'run.finished')) return true;
  return entries.some((entry) => entry.kind === 'event' && entry.type === 'training.started');
}

/** One after the other, for a run whose rounds are under way. */
export const movesToRunning = ({ status, attempt }: RunHead): PlainMove[] => [
  ...(status === 'QUEUED' ? [{ to: 'PROVISIONING', reason: 'its servers are set up' } as const] : []),
  ...(status === 'QUEUED' || status === 'PROVISIONING'
    ? [{ to: 'RUNNING', reason: attempt === 1 ? 'training began' : `training goes on in attempt ${attempt}` } as const]
    : []),
];

/** The run is over here, or between attempts, and its coordinator goes on: it has to be told. */
export const mustStop = (report: JournalReport, hasLiveAttempt: boolean, entries: readonly JournalEntry[]): boolean =>
  !hasLiveAttempt && isLive(report) && !entries.some(({ kind }) => kind === 'event');

/** What the coordinator's last word means. */
export function endOf({ type, message, data }: Pick<JournalOutcome, 'type' | 'message' | 'data'>): { end: AttemptEnd; result?: RunResult } {
  switch (type) {
    case 'run.finished': {
      const result = runResultSchema.safeParse(data);
      if (result.success) return { end: { kind: 'finished', message }, result: result.data };
      const [issue] = result.error.issues;
      const why = `the coordinator's result cannot be read: ${issue?.path.join('.')} ${issue?.message}`;
      return { end: { kind: 'failed', cause: 'RESULT_UNREADABLE', message: why } };
    }
    case 'run.paused':
      return { end: { kind: 'paused', message } };
    case 'run.cancelled':
      return { end: { kind: 'cancelled', message } };
    default:
      return { end: { kind: 'failed', cause: causeOfFailure(data['cause']), message } };
  }
}

/**
 * The checkpoint that a `checkpoint.written` tells of. Undefined when it cannot be read or speaks of another attempt: its event stays
 * in the history, and it is nothing to restore from.
 */
export function checkpointOf({ data }: Pick<JournalOutcome, 'data'>, attempt: number): CheckpointRecord | undefined {
  const parsed = checkpointRecordSchema.safeParse(data);
  return parsed.success && parsed.data.attempt === attempt ? parsed.data : undefined;
}

export function compareStreamIds(a: string, b: string): number {
  const [aMs = 0, aN = 0] = a.split('-').map(Number);
  const [bMs = 0, bN = 0] = b.split('-').map(Number);
  return aMs - bMs || aN - bN;
}
