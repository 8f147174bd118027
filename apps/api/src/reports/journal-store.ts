/**
 * Stores what a coordinator reports (ROUNDS §7). One report is one transaction under the lock of the run's row:
 *
 *     entries n > stored  ->  events, metrics, ledger ranges, each once (unique on run, attempt, n)
 *     stored              ->  moves to the report's last n when nothing is missing before it
 *     state               ->  the run's newest picture, unless a newer report was stored already
 *     run.* events        ->  moves of the status
 *
 * The acknowledgement is written after the commit, so what is acknowledged is stored; a crash in between costs a repetition, which
 * changes nothing. Reports of an older attempt are acknowledged and dropped: an old fence writes nothing.
 */
import { Injectable } from '@nestjs/common';
import { runResultSchema, type CoordinatorState, type JournalEntry, type Report } from '@paceline/jobs';
import { Database, type Transaction } from '../database/database.js';
import type { Prisma } from '../generated/prisma/client.js';
import type { StoredCoordinator } from '../runs/run-row.js';
import { RunSignals } from '../runs/run-signals.js';
import { isOver } from '../runs/run-status.js';
import { StatusMoves, type LockedRun, type Move } from '../runs/status-moves.js';

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
const LIVE_PHASES: readonly string[] = ['waiting', 'training', 'evaluating'];

@Injectable()
export class JournalStore {
  constructor(
    private readonly database: Database,
    private readonly moves: StatusMoves,
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
    const { storedN } = await transaction.attempt.findUniqueOrThrow({ where: { runId_number: { runId: run.id, number: run.attempt } } });
    const entries = await this.newEntries(transaction, run, report.entries, storedN);
    await this.insert(transaction, run, entries);
    const n = await this.highWater(transaction, run, report, storedN);
    const metrics = entries.filter((entry) => entry.kind === 'metric');
    const changed = await this.keepState(transaction, run, report.state, streamId, metrics.at(-1));
    const before = run.status;
    await this.followStatus(transaction, run, report.state, entries);
    return {
      ack: { attempt: run.attempt, n },
      mustStop: isOver(run.status) && isLive && !entries.some(({ kind }) => kind === 'event'),
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
  ): Promise<JournalEntry[]> {
    const beyond = entries.filter(({ n }) => BigInt(n) > storedN);
    if (beyond.length === 0) return [];
    const where = { runId: run.id, attempt: run.attempt, n: { gt: storedN } };
    const [events, metrics, ledger] = await Promise.all([
      transaction.runEvent.findMany({ where, select: { n: true } }),
      transaction.metric.findMany({ where, select: { n: true } }),
      transaction.ledgerRange.findMany({ where, select: { n: true } }),
    ]);
    const known = new Set([...events, ...metrics, ...ledger].map(({ n }) => Number(n)));
    return beyond.filter(({ n }) => !known.has(n));
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
    const ledger = of('ledger').map(({ n, fromRound, toRound, examples }) => ({ runId, attempt, n, fromRound, toRound, examples }));
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
  ): Promise<void> {
    const events = entries.filter((entry) => entry.kind === 'event');
    const isTraining = phase === 'training' || phase === 'evaluating' || events.some(({ type }) => type === 'training.started');
    if (isTraining || events.some(({ type }) => type === 'run.finished')) await this.becomeRunning(transaction, run);
    for (const event of events) {
      const move = endOf(event);
      if (move) await this.moves.apply(transaction, run, move);
    }
  }

  private async becomeRunning(transaction: Transaction, run: LockedRun): Promise<void> {
    if (run.status === 'QUEUED') await this.moves.apply(transaction, run, { to: 'PROVISIONING', reason: 'its servers are set up' });
    if (run.status === 'PROVISIONING') await this.moves.apply(transaction, run, { to: 'RUNNING', reason: 'training began' });
  }
}

/** What the coordinator's last event means for the run. */
function endOf(event: Entry<'event'>): Move | undefined {
  switch (event.type) {
    case 'run.finished': {
      const result = runResultSchema.safeParse(event.data);
      if (!result.success)
        return {
          to: 'FAILED',
          reason: `the coordinator's result cannot be read: ${result.error.issues[0]?.path.join('.')} ${result.error.issues[0]?.message}`,
        };
      return { to: 'SUCCEEDED', reason: event.message, set: { result: result.data } };
    }
    case 'run.failed':
      return { to: 'FAILED', reason: event.message };
    case 'run.cancelled':
      return { to: 'CANCELLED', reason: event.message };
    default:
      return undefined;
  }
}

export function compareStreamIds(a: string, b: string): number {
  const [aMs = 0, aN = 0] = a.split('-').map(Number);
  const [bMs = 0, bN = 0] = b.split('-').map(Number);
  return aMs - bMs || aN - bN;
}
