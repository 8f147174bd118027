/**
 * Stores what a coordinator reports (ROUNDS §7). One report is one transaction under the lock of the run's row:
 *
 *     entries n > stored  ->  events, metrics, ledger ranges, each once (unique on run, attempt, n)
 *     stored              ->  moves to the report's last n when nothing is missing before it
 *     state               ->  the run's newest picture, unless a newer report was stored already
 *     outcomes            ->  checkpoints and moves of the status, when everything before them is stored
 *
 * So a checkpoint that is known here has its whole history here, and whatever attempt begins with it. The acknowledgement is written after the commit, so what is acknowledged is stored; a crash in between costs a repetition, which
 * changes nothing. Reports of an older attempt are acknowledged and dropped: an old fence writes nothing. Nothing that counts is lost
 * with them: an attempt begins with a checkpoint that is known here, and rounds beyond it are void. Inside an attempt the term is the
 * fence: what a coordinator says that was replaced by its standby is refused (dispatch/arbiter.ts).
 */
import { Injectable } from '@nestjs/common';
import {
  causeOfFailure,
  checkpointRecordSchema,
  hasLiveAttempt,
  runResultSchema,
  type AttemptEnd,
  type CoordinatorState,
  type JournalEntry,
  type Report,
} from '@paceline/jobs';
import { Database, type Transaction } from '../database/database.js';
import type { Prisma } from '../generated/prisma/client.js';
import type { StoredCoordinator } from '../runs/run-row.js';
import { RunSignals } from '../runs/run-signals.js';
import { Attempts } from '../runs/attempts.js';
import { StatusMoves, type LockedRun } from '../runs/status-moves.js';

export type JournalReport = Extract<Report, { kind: 'journal' }>;

export interface Stored {
  /** To be acknowledged; undefined when the report speaks of a run that does not exist. */
  readonly ack: { readonly attempt: number; readonly n: bigint } | undefined;
  /** The run is over here, but its coordinator goes on: it has to be told. */
  readonly mustStop: boolean;
  readonly newEntries: number;
  /** Seats, phase or status are not what they were: the reconciler may want to act. */
  readonly changed: boolean;
}

type Entry<K extends JournalEntry['kind']> = Extract<JournalEntry, { kind: K }>;
const LIVE_PHASES: readonly string[] = ['waiting', 'training', 'pausing', 'evaluating'];
/** Events that change more than the history; applied in order. */
const OUTCOMES: readonly string[] = ['run.finished', 'run.failed', 'run.cancelled', 'run.paused', 'checkpoint.written'];
type Outcome = Pick<Entry<'event'>, 'message' | 'data' | 'atMs'> & { readonly type: string };

@Injectable()
export class JournalStore {
  constructor(
    private readonly database: Database,
    private readonly moves: StatusMoves,
    private readonly attempts: Attempts,
    private readonly signals: RunSignals,
  ) {}

  /** @param streamId of the report in the stream (`ms-n`), which orders the states */
  async store(report: JournalReport, streamId: string): Promise<Stored> {
    const stored = await this.database.transact((transaction) => this.inTransaction(transaction, report, streamId));
    if (stored.newEntries > 0 || stored.changed) this.signals.changed(report.runId);
    return stored;
  }

  private async inTransaction(transaction: Transaction, report: JournalReport, streamId: string): Promise<Stored> {
    const run = await this.moves.lock(transaction, report.runId);
    if (!run) return { ack: undefined, mustStop: false, newEntries: 0, changed: false };
    const isLive = LIVE_PHASES.includes(report.state.phase);
    if (report.attempt !== run.attempt) {
      const last = report.entries.at(-1)?.n ?? 0;
      return { ack: { attempt: report.attempt, n: BigInt(last) }, mustStop: isLive, newEntries: 0, changed: false };
    }
    const { storedN, fence } = await transaction.attempt.findUniqueOrThrow({
      where: { runId_number: { runId: run.id, number: run.attempt } },
      select: { storedN: true, fence: true },
    });
    // A coordinator whose place a standby has taken: refused, not acknowledged; it learns from the arbiter that it has lost.
    if ((report.term ?? 1) < fence) return { ack: undefined, mustStop: false, newEntries: 0, changed: false };
    const { entries, hadLater } = await this.newEntries(transaction, run, report.entries, storedN);
    await this.insert(transaction, run, entries);
    const n = await this.highWater(transaction, run, report, storedN);
    const metrics = entries.filter((entry) => entry.kind === 'metric');
    const changed = await this.keepState(transaction, run, report.state, streamId, metrics.at(-1));
    const before = run.status;
    const mayHaveOutcomes = n > storedN && (hadLater || entries.some((entry) => entry.kind === 'event' && OUTCOMES.includes(entry.type)));
    const outcomes = mayHaveOutcomes ? await this.outcomes(transaction, run, storedN, n) : [];
    await this.followStatus(transaction, run, report.state, entries, outcomes);
    return {
      ack: { attempt: run.attempt, n },
      mustStop: !hasLiveAttempt(run.status) && isLive && !entries.some(({ kind }) => kind === 'event'),
      newEntries: entries.length,
      changed: changed || run.status !== before,
    };
  }

  /** Entries that are not stored yet: beyond the high-water mark nearly always all, but a gap may have been filled out of order. */
  private async newEntries(
    transaction: Transaction,
    run: LockedRun,
    entries: readonly JournalEntry[],
    storedN: bigint,
  ): Promise<{ entries: JournalEntry[]; hadLater: boolean }> {
    const beyond = entries.filter(({ n }) => BigInt(n) > storedN);
    if (beyond.length === 0) return { entries: [], hadLater: false };
    const where = { runId: run.id, attempt: run.attempt, n: { gt: storedN } };
    const [events, metrics, ledger] = await Promise.all([
      transaction.runEvent.findMany({ where, select: { n: true } }),
      transaction.metric.findMany({ where, select: { n: true } }),
      transaction.ledgerRange.findMany({ where, select: { n: true } }),
    ]);
    const known = new Set([...events, ...metrics, ...ledger].map(({ n }) => Number(n)));
    return { entries: beyond.filter(({ n }) => !known.has(n)), hadLater: known.size > 0 };
  }

  private async insert(transaction: Transaction, run: LockedRun, entries: readonly JournalEntry[]): Promise<void> {
    const { id: runId, attempt } = run;
    const of = <K extends JournalEntry['kind']>(kind: K) => entries.filter((entry): entry is Entry<K> => entry.kind === kind);
    await this.moves.addEvents(
      transaction,
      run,
      of('event').map(({ n, atMs, type, message, data }) => ({ attempt, n, type, message, data, at: new Date(atMs) })),
    );
    const metrics = of('metric').map(({ kind: _kind, atMs, staleness, stalenessCounts, ...metric }) => ({
      ...metric,
      staleness: staleness ?? null,
      stalenessCounts: stalenessCounts ?? [],
      runId,
      attempt,
      seq: ++run.lastMetricSeq,
      at: new Date(atMs),
    }));
    if (metrics.length > 0) {
      await transaction.metric.createMany({ data: metrics });
      await transaction.run.updateMany({ where: { id: runId }, data: { lastMetricSeq: run.lastMetricSeq } });
    }
    const ledger = of('ledger').map(({ n, fromRound, toRound, examples, dropped }) => ({
      ...{ runId, attempt, n, fromRound, toRound, examples },
      dropped: dropped ?? 0,
    }));
    if (ledger.length > 0) await transaction.ledgerRange.createMany({ data: ledger });
  }

  /**
   * How far everything is stored. A journal that had to thin has gaps in its numbers; `after` names the entry before the report's
   * first one, so a gap of the journal can be told from a report that was lost.
   */
  private async highWater(transaction: Transaction, run: LockedRun, { entries, after }: JournalReport, storedN: bigint): Promise<bigint> {
    const [first, last] = [entries[0], entries.at(-1)];
    if (!first || !last || BigInt(last.n) <= storedN || BigInt(after ?? first.n - 1) > storedN) return storedN;
    await transaction.attempt.updateMany({ where: { runId: run.id, number: run.attempt }, data: { storedN: last.n } });
    return BigInt(last.n);
  }

  private async keepState(
    transaction: Transaction,
    run: LockedRun,
    state: CoordinatorState,
    streamId: string,
    newest: Entry<'metric'> | undefined,
  ): Promise<boolean> {
    const { coordinator } = await transaction.run.findUniqueOrThrow({ where: { id: run.id }, select: { coordinator: true } });
    const present = coordinator as unknown as StoredCoordinator | null;
    const isOurs = present?.attempt === run.attempt;
    const latest = newest
      ? { epoch: newest.epoch, loss: newest.loss, accuracy: newest.accuracy, examplesPerSecond: newest.examplesPerSecond }
      : isOurs
        ? present.latest
        : null;
    const isOlder = isOurs && compareStreamIds(streamId, present.streamId) < 0;
    const next: StoredCoordinator = isOlder ? { ...present, latest } : { ...state, attempt: run.attempt, streamId, latest };
    await transaction.run.updateMany({
      where: { id: run.id },
      data: { coordinator: next as unknown as Prisma.InputJsonObject, coordinatorAt: new Date() },
    });
    return !isOurs || present.phase !== next.phase || JSON.stringify(present.seats) !== JSON.stringify(next.seats);
  }

  private async followStatus(
    transaction: Transaction,
    run: LockedRun,
    { phase }: CoordinatorState,
    entries: readonly JournalEntry[],
    outcomes: readonly Outcome[],
  ): Promise<void> {
    const isTraining =
      phase === 'training' ||
      phase === 'evaluating' ||
      entries.some((entry) => entry.kind === 'event' && entry.type === 'training.started');
    if (isTraining || outcomes.some(({ type }) => type === 'run.finished')) await this.becomeRunning(transaction, run);
    for (const outcome of outcomes) {
      if (outcome.type === 'checkpoint.written') {
        await this.keepCheckpoint(transaction, run, outcome);
        continue;
      }
      const { end, result } = endOf(outcome);
      await this.attempts.end(transaction, run, end, result ? { result } : {});
    }
  }

  /** Outcomes with numbers in (after, upTo], in order: of this report, or stored before what came before them. */
  private async outcomes(transaction: Transaction, run: LockedRun, after: bigint, upTo: bigint): Promise<Outcome[]> {
    const rows = await transaction.runEvent.findMany({
      where: { runId: run.id, attempt: run.attempt, n: { gt: after, lte: upTo }, type: { in: [...OUTCOMES] } },
      orderBy: { n: 'asc' },
    });
    return rows.map(({ type, message, data, at }) => ({ type, message, data: data as Record<string, unknown>, atMs: at.getTime() }));
  }

  private async keepCheckpoint(transaction: Transaction, run: LockedRun, { data, atMs }: Outcome): Promise<void> {
    const parsed = checkpointRecordSchema.safeParse(data);
    // Its event stays in the history; a record that cannot be read, or speaks of another attempt, is nothing to restore from.
    if (!parsed.success || parsed.data.attempt !== run.attempt) return;
    const { attempt, round, ...record } = parsed.data;
    await transaction.checkpoint.createMany({
      data: [{ runId: run.id, attempt, round, ...record, createdAt: new Date(atMs) }],
      skipDuplicates: true,
    });
    await this.attempts.forgetRemoved(transaction, run);
  }

  private async becomeRunning(transaction: Transaction, run: LockedRun): Promise<void> {
    if (run.status === 'QUEUED') await this.moves.apply(transaction, run, { to: 'PROVISIONING', reason: 'its servers are set up' });
    if (run.status === 'PROVISIONING')
      await this.moves.apply(transaction, run, {
        to: 'RUNNING',
        reason: run.attempt === 1 ? 'training began' : `training goes on in attempt ${run.attempt}`,
      });
  }
}

/** What the coordinator's last word means. */
function endOf({ type, message, data }: Outcome): { end: AttemptEnd; result?: Prisma.InputJsonObject } {
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

export function compareStreamIds(a: string, b: string): number {
  const [aMs = 0, aN = 0] = a.split('-').map(Number);
  const [bMs = 0, bN = 0] = b.split('-').map(Number);
  return aMs - bMs || aN - bN;
}
