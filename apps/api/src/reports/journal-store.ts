/**
 * Stores what a coordinator reports: one report is one transaction under the lock of the run's row, and `journal-intake` (libs/control-plane)
 * decides what it changes.
 *
 * A checkpoint that is known here has its whole history here, and whatever attempt begins with it. The acknowledgement is written after
 * the commit, so what is acknowledged is stored, unless the acknowledgement says that it was dropped; a crash in between costs a repetition, which changes nothing. Inside an attempt the
 * term decides: what a coordinator reports that was replaced by its standby is refused (dispatch/shard-leads.ts).
 */
import { Injectable } from '@nestjs/common';
import {
  checkpointOf,
  endOf,
  hasLiveAttempt,
  highWaterOf,
  keptStateOf,
  mayHaveOutcomes,
  movesToRunning,
  mustStop,
  newEntriesOf,
  OUTCOMES,
  refusalOf,
  showsTraining,
  type CoordinatorState,
  type EntryOf,
  type JournalEntry,
  type JournalOutcome,
  type JournalReport,
  type KeptState,
  type StoredCoordinator,
} from '@paceline/control-plane';
import { BackgroundDatabase, type Transaction } from '../database/database.js';
import type { Prisma } from '../generated/prisma/client.js';
import { RunSignals } from '../runs/run-signals.js';
import { Attempts } from '../runs/attempts.js';
import { isBeforeLocalUpdates, StrategyChoices } from '../runs/strategy-choice.js';
import { StatusMoves, type LockedRun } from '../runs/status-moves.js';
import { storable } from '../text-input.js';
import { SteadyJournal, type Remembered } from './steady-journal.js';
import type { Stored } from './stored.js';
import { databaseDate } from '../database/database-clock.js';

@Injectable()
export class JournalStore {
  constructor(
    private readonly database: BackgroundDatabase,
    private readonly moves: StatusMoves,
    private readonly attempts: Attempts,
    private readonly signals: RunSignals,
    private readonly steady: SteadyJournal,
    private readonly strategies: StrategyChoices,
  ) {}

  /** @param streamId of the report in the stream (`ms-n`), which orders the states */
  async store(report: JournalReport, streamId: string): Promise<Stored> {
    const stored = (await this.steady.store(report, streamId)) ?? (await this.closely(report, streamId));
    if (stored.newEntries > 0 || stored.changed) this.signals.changed(report.runId);
    return stored;
  }

  private async closely(report: JournalReport, streamId: string): Promise<Stored> {
    const { remembered, ...stored } = await this.database.transact((transaction) => this.inTransaction(transaction, report, streamId));
    this.steady.remember(report.runId, remembered);
    return stored;
  }

  private async inTransaction(
    transaction: Transaction,
    report: JournalReport,
    streamId: string,
  ): Promise<Stored & { remembered?: Remembered | undefined }> {
    const run = await this.moves.lock(transaction, report.runId);
    if (!run) return { ack: undefined, mustStop: false, newEntries: 0, changed: false };
    const { storedSequence, coordinatorTerm } =
      report.attempt === run.attempt ? await this.present(transaction, run) : { storedSequence: 0, coordinatorTerm: 1 };
    const refusal = refusalOf(report, { attempt: run.attempt, coordinatorTerm });
    if (refusal) return { ...refusal, newEntries: 0, changed: false };
    const { entries, hadLater } = await this.newEntries(transaction, run, report.entries, storedSequence);
    await this.insert(transaction, run, entries);
    const sequence = highWaterOf(report, storedSequence);
    if (sequence > storedSequence)
      await transaction.attempt.updateMany({ where: { runId: run.id, number: run.attempt }, data: { storedSequence: sequence } });
    const metrics = entries.filter((entry) => entry.kind === 'metric');
    const { next, changed } = await this.keepState(transaction, run, report.state, streamId, metrics.at(-1));
    const before = run.status;
    const outcomes =
      sequence > storedSequence && mayHaveOutcomes(entries, hadLater)
        ? await this.outcomes(transaction, run, storedSequence, sequence)
        : [];
    await this.followStatus(transaction, run, report.state, entries, outcomes);
    await this.strategies.heard(transaction, run, entries);
    const { attempt, status, lastMetricSeq } = run;
    // Whether entries beyond a gap are stored is known of a report that has entries.
    const isWhole = status === 'RUNNING' && entries.length > 0 && !hadLater && sequence === entries.at(-1)!.sequence;
    return {
      remembered: isWhole ? { attempt, storedSequence: sequence, coordinatorTerm, lastMetricSeq, coordinator: next } : undefined,
      ack: { attempt: run.attempt, sequence },
      mustStop: mustStop(report, hasLiveAttempt(run.status), entries),
      newEntries: entries.length,
      changed: changed || run.status !== before,
    };
  }

  /** Beyond the high-water mark nearly always all, but a gap may have been filled out of order. */
  private async newEntries(
    transaction: Transaction,
    run: LockedRun,
    entries: readonly JournalEntry[],
    storedSequence: number,
  ): Promise<{ entries: JournalEntry[]; hadLater: boolean }> {
    if ((entries.at(-1)?.sequence ?? 0) <= storedSequence) return { entries: [], hadLater: false };
    const where = { runId: run.id, attempt: run.attempt, sequence: { gt: storedSequence } };
    const [events, metrics, ledger] = await Promise.all([
      transaction.runEvent.findMany({ where, select: { sequence: true } }),
      transaction.metric.findMany({ where, select: { sequence: true } }),
      transaction.ledgerRange.findMany({ where, select: { sequence: true } }),
    ]);
    const known = new Set([...events, ...metrics, ...ledger].map((entry) => Number(entry.sequence)));
    return { entries: newEntriesOf(entries, storedSequence, known), hadLater: known.size > 0 };
  }

  private async present(transaction: Transaction, run: LockedRun): Promise<{ storedSequence: number; coordinatorTerm: number }> {
    const { storedSequence, coordinatorTerm } = await transaction.attempt.findUniqueOrThrow({
      where: { runId_number: { runId: run.id, number: run.attempt } },
      select: { storedSequence: true, coordinatorTerm: true },
    });
    return { storedSequence: Number(storedSequence), coordinatorTerm };
  }

  private async insert(transaction: Transaction, run: LockedRun, entries: readonly JournalEntry[]): Promise<void> {
    const { id: runId, attempt } = run;
    const of = <K extends JournalEntry['kind']>(kind: K) => entries.filter((entry): entry is EntryOf<K> => entry.kind === kind);
    await this.moves.addEvents(
      transaction,
      run,
      of('event').map(({ sequence, atMs, type, message, data }) => ({ attempt, sequence, type, message, data, at: new Date(atMs) })),
    );
    const metrics = of('metric').map(({ kind: _kind, atMs, staleness, stalenessCounts, validation, ...metric }) => ({
      ...metric,
      ...(validation ? { validation } : {}),
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
    const ledger = of('ledger').map(({ sequence, fromRound, toRound, examples, dropped }) => ({
      runId,
      attempt,
      sequence,
      fromRound,
      toRound,
      examples,
      dropped: dropped ?? 0,
    }));
    if (ledger.length > 0) await transaction.ledgerRange.createMany({ data: ledger });
  }

  private async keepState(
    transaction: Transaction,
    run: LockedRun,
    state: CoordinatorState,
    streamId: string,
    newest: EntryOf<'metric'> | undefined,
  ): Promise<KeptState> {
    const { coordinator } = await transaction.run.findUniqueOrThrow({ where: { id: run.id }, select: { coordinator: true } });
    const kept = keptStateOf(coordinator as unknown as StoredCoordinator | null, run.attempt, storable(state), streamId, newest);
    await transaction.run.updateMany({
      where: { id: run.id },
      data: { coordinator: kept.next as unknown as Prisma.InputJsonObject, coordinatorAt: databaseDate() },
    });
    return kept;
  }

  private async followStatus(
    transaction: Transaction,
    run: LockedRun,
    state: CoordinatorState,
    entries: readonly JournalEntry[],
    outcomes: readonly JournalOutcome[],
  ): Promise<void> {
    if (showsTraining(state, entries, outcomes)) for (const move of movesToRunning(run)) await this.moves.apply(transaction, run, move);
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
  private async outcomes(transaction: Transaction, run: LockedRun, after: number, upTo: number): Promise<JournalOutcome[]> {
    const rows = await transaction.runEvent.findMany({
      where: { runId: run.id, attempt: run.attempt, sequence: { gt: after, lte: upTo }, type: { in: [...OUTCOMES] } },
      orderBy: { sequence: 'asc' },
    });
    return rows.map(({ type, message, data, at }) => ({ type, message, data: data as Record<string, unknown>, atMs: at.getTime() }));
  }

  private async keepCheckpoint(transaction: Transaction, run: LockedRun, outcome: JournalOutcome): Promise<void> {
    const known = checkpointOf(outcome, run.attempt);
    if (!known) return;
    const { attempt, round, isBest = false, ...record } = known;
    // One that was under way when local updates were picked has the slots of the optimizer before.
    const invalidAt = (await isBeforeLocalUpdates(transaction, run.id, attempt)) ? new Date() : null;
    await transaction.checkpoint.createMany({
      data: [{ runId: run.id, attempt, round, isBest, invalidAt, ...record, createdAt: new Date(outcome.atMs) }],
      skipDuplicates: true,
    });
    await this.attempts.forgetRemoved(transaction, run);
  }
}
