/**
 * What counted work items add up to. The ledger goes by rounds of the schedule, a round when the last of its work items is counted, so that its
 * examples are those of the round to the last one. Metrics go by time: R updates make a row, whichever rounds they belong to, so that a slow
 * worker does not hold up the curves.
 */
import type { RoundSchedule } from '../attempt/attempt-options.js';
import type { DoneSetMessage } from '@paceline/protocol';
import type { Journal, MetricEntry } from '../attempt/journal.js';
import { ACCURACY_ALONE, addSums, type Measuring } from '../attempt/measures.js';
import type { CheckpointContent } from '../attempt/checkpoints.js';
import {
  EMPTY_LEDGER,
  SEVERAL,
  keepException,
  type Contribution,
  type LedgerException,
  type LedgerState,
} from '../attempt/ledger-state.js';
import type { WorkItem, DoneSet } from './done-set.js';

/** Weight of the newest row in the smoothed rate: about 20 rounds. */
const SMOOTHING = 0.05;
/** Places of a staleness histogram; the last one counts everything beyond. */
export const STALENESS_PLACES = 64;

export interface CountedUpdate extends Contribution {
  /** Updates that its slowest shard had applied since the parameters were fetched. */
  readonly staleness: number;
}

export class AsyncLedger {
  private startedMs: number | undefined;
  private rowSinceMs: number;
  private rate = 0;
  private row = emptyRow();
  private rowsDone: number;
  private ledgerRounds: number;
  /** Trained examples of rounds that are not complete. */
  private readonly open = new Map<number, number>();
  private readonly exceptions: LedgerException[];
  private lossSum = 0;
  private lossExamples = 0;
  trainedExamples: number;
  /** From the start of the attempt to its newest counted work item, and the examples counted in that time. */
  trainingMs = 0;
  attemptExamples = 0;

  constructor(
    private readonly schedule: RoundSchedule,
    private readonly replicas: number,
    private marks: DoneSet,
    private readonly journal: Journal,
    private readonly now: () => number,
    /** The ledger of the checkpoint that the attempt begins with. */
    first: LedgerState = EMPTY_LEDGER,
    private readonly measured: Measuring = ACCURACY_ALONE,
  ) {
    this.trainedExamples = first.examples;
    this.exceptions = [...first.exceptions];
    this.rowSinceMs = now();
    this.ledgerRounds = marks.rounds;
    this.rowsDone = marks.rounds;
  }

  get hasBegun(): boolean {
    return this.startedMs !== undefined;
  }

  begin(): void {
    this.startedMs = this.rowSinceMs = this.now();
  }

  state(): LedgerState {
    return { examples: this.trainedExamples, exceptions: [...this.exceptions] };
  }

  /** A work item is counted (it is in the marks): with its update, or without when it was left out. */
  count(item: WorkItem, update: CountedUpdate | undefined): void {
    this.trainingMs = this.now() - (this.startedMs ?? this.now());
    if (update) {
      this.trainedExamples += update.examples;
      this.attemptExamples += update.examples;
      if (update.sums[0] !== undefined) {
        this.lossSum += update.sums[0];
        this.lossExamples += update.examples;
      }
      this.open.set(item.round, (this.open.get(item.round) ?? 0) + update.examples);
      addTo(this.row, update);
    } else {
      const examples = this.schedule.replicaExamples(item.round, item.replica);
      keepException(this.exceptions, { round: item.round, examples, why: 'NaN or infinity' });
    }
    for (; this.ledgerRounds < this.marks.rounds; this.ledgerRounds++) {
      const examples = this.open.get(this.ledgerRounds) ?? 0;
      this.open.delete(this.ledgerRounds);
      this.writeLedger(this.ledgerRounds, examples);
    }
    const rows = Math.floor(this.marks.count / this.replicas);
    if (rows > this.rowsDone) this.writeRow(rows);
  }

  /**
   * A coordinator takes over with these work items counted, of which some are left out: the rows of complete rounds that are not stored are
   * written again from the schedule. What their contributions said is gone with the coordinator before.
   */
  succeed(
    marks: DoneSet,
    leftOut: ReadonlySet<number>,
    /** Before these, of stored rounds. */
    leftOutBefore: DoneSetMessage['droppedBefore'],
    {
      firstRound,
      ledgerFrom,
      allBefore,
    }: {
      readonly firstRound: number;
      readonly ledgerFrom: number;
      /** Rounds of which every work item counts. */
      readonly allBefore: number;
    },
  ): void {
    this.marks = marks;
    if (leftOutBefore.examples > 0) {
      this.trainedExamples -= leftOutBefore.examples;
      const round = Math.floor((leftOutBefore.end - 1) / this.replicas);
      keepException(this.exceptions, { round, examples: leftOutBefore.examples, why: SEVERAL });
    }
    for (let round = firstRound; round < allBefore; round++) {
      const examples = this.schedule.examplesIn(round);
      this.trainedExamples += examples;
      if (round >= ledgerFrom) this.writeLedger(round, examples);
    }
    for (let round = Math.max(firstRound, allBefore), end = marks.highestRound; round <= end; round++) {
      const isComplete = round < marks.rounds;
      let examples = 0;
      for (let replica = 0; replica < this.replicas; replica++) {
        const item = { round, replica };
        const rows = this.schedule.replicaExamples(round, replica);
        if (rows === 0 || !marks.has(item)) continue;
        if (leftOut.has(marks.numberOf(item))) keepException(this.exceptions, { round, examples: rows, why: 'NaN or infinity' });
        else examples += rows;
      }
      this.trainedExamples += examples;
      if (!isComplete) this.open.set(round, examples);
      else if (round >= ledgerFrom) this.writeLedger(round, examples);
    }
    this.ledgerRounds = marks.rounds;
    const rows = Math.floor(marks.count / this.replicas);
    if (rows > ledgerFrom)
      this.journal.append({
        kind: 'event',
        type: 'journal.gap',
        message: `no metrics of rounds ${ledgerFrom} to ${rows - 1}: their coordinator is gone`,
        data: { fromRound: ledgerFrom, toRound: rows - 1 },
      });
    this.rowsDone = rows;
    this.rowSinceMs = this.now();
  }

  /** What a checkpoint of this moment keeps, with the mean loss since the last one. */
  checkpoint(): CheckpointContent {
    const loss = meanOf(this.lossExamples === 0 ? undefined : this.lossSum, this.lossExamples);
    this.lossSum = 0;
    this.lossExamples = 0;
    return { loss, ledger: this.state() };
  }

  private writeLedger(round: number, examples: number): void {
    const dropped = this.schedule.examplesIn(round) - examples;
    this.journal.append({ kind: 'ledger', fromRound: round, toRound: round, examples, ...(dropped > 0 ? { dropped } : {}) });
  }

  private writeRow(rows: number): void {
    const { examples, measured, sums, updates, stalenessSum, stalenessCounts } = this.row;
    const rounds = rows - this.rowsDone;
    const at = this.now();
    const roundMs = Math.max(at - this.rowSinceMs, 0.001) / rounds;
    const rate = (examples / rounds / roundMs) * 1000;
    this.rate = this.rate === 0 ? rate : this.rate + (rate - this.rate) * SMOOTHING;
    const entry: MetricEntry = {
      kind: 'metric',
      round: rows - 1,
      rounds,
      epoch: this.schedule.epochOf(rows - 1),
      values: this.measured.finish(sums, measured),
      examples,
      examplesPerSecond: this.rate,
      roundMs,
      ...(updates === 0 ? {} : { staleness: stalenessSum / updates, stalenessCounts }),
    };
    this.journal.append(entry);
    this.row = emptyRow();
    this.rowsDone = rows;
    this.rowSinceMs = at;
  }
}

function meanOf(sum: number | undefined, examples: number): number | null {
  return sum === undefined || examples === 0 || !Number.isFinite(sum) ? null : sum / examples;
}

interface Row {
  examples: number;
  /** How many of them have known sums. */
  measured: number;
  updates: number;
  stalenessSum: number;
  readonly sums: number[];
  readonly stalenessCounts: number[];
}

function emptyRow(): Row {
  return { examples: 0, measured: 0, updates: 0, stalenessSum: 0, sums: [], stalenessCounts: [] };
}

function addTo(row: Row, { examples, sums, staleness }: CountedUpdate): void {
  row.examples += examples;
  if (sums.length > 0) row.measured += examples;
  row.updates++;
  row.stalenessSum += staleness;
  addSums(row.sums, sums);
  const place = Math.min(staleness, STALENESS_PLACES - 1);
  while (row.stalenessCounts.length <= place) row.stalenessCounts.push(0);
  row.stalenessCounts[place]!++;
}
