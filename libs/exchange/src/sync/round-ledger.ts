/** What committed rounds add up to: the ledger, a metric per round, and how fast it goes. Counted from (round, replica) rows. */
import {
  type Contribution,
  type LedgerException,
  type LedgerState,
  EMPTY_LEDGER,
  keepException,
  SEVERAL,
} from '../attempt/ledger-state.js';
import type { RoundSchedule } from '../attempt/attempt-options.js';
import type { CheckpointContent } from '../attempt/checkpoints.js';
import type { Journal, ValidationPoint } from '../attempt/journal.js';
import { ACCURACY_ALONE, UNMEASURED, addSums, type Measures, type Measuring } from '../attempt/measures.js';
import { counted } from '../words.js';

/** Weight of the newest round in the smoothed rate: about 20 rounds. */
const SMOOTHING = 0.05;
const DROP_EVENT_EVERY_MS = 5_000;

export class RoundLedger {
  private startedMs: number | undefined;
  private rate = 0;
  private lossSum = 0;
  private lossExamples = 0;
  private unsaidDrops = { rounds: 0, examples: 0 };
  private lastDropEventMs = -Infinity;
  lastCommitMs: number;
  trainedExamples: number;
  /** From the start of the attempt's first round to its newest commit, and the examples committed in that time. */
  trainingMs = 0;
  attemptExamples = 0;
  /** Rounds before it are in the stored ledger: a coordinator before has told of them, though its servers may not have heard their COMMIT. */
  private storedTo = 0;
  /** Rounds before it are counted as they are stored; when one is gathered again, that changes nothing. It may lie ahead of a coordinator that has taken over. */
  countedTo = 0;
  private readonly exceptions: LedgerException[];

  constructor(
    private readonly schedule: RoundSchedule,
    private readonly journal: Journal,
    private readonly now: () => number,
    /** The ledger of the checkpoint that the attempt begins with. */
    first: LedgerState = EMPTY_LEDGER,
    private readonly measured: Measuring = ACCURACY_ALONE,
  ) {
    this.trainedExamples = first.examples;
    this.exceptions = [...first.exceptions];
    this.lastCommitMs = now();
  }

  get hasBegun(): boolean {
    return this.startedMs !== undefined;
  }

  begin(): void {
    this.startedMs = this.now();
    this.lastCommitMs = this.startedMs;
  }

  /** Round `round` is committed with one contribution of each replica that counts, in their order; what the others had is dropped. */
  commit(round: number, contributions: Iterable<Contribution>, validation?: ValidationPoint): void {
    let examples = 0;
    const sums: number[] = [];
    for (const row of contributions) {
      examples += row.examples;
      addSums(sums, row.sums);
    }
    const dropped = this.schedule.examplesIn(round) - examples;
    if (dropped > 0 && round >= this.countedTo) this.drop(round, dropped);
    const at = this.now();
    const roundMs = Math.max(at - this.lastCommitMs, 0.001);
    this.lastCommitMs = at;
    this.trainingMs = at - (this.startedMs ?? at);
    const rate = (examples / roundMs) * 1000;
    this.rate = this.rate === 0 ? rate : this.rate + (rate - this.rate) * SMOOTHING;
    if (round >= this.countedTo) this.trainedExamples += examples;
    this.attemptExamples += examples;
    if (sums[0] !== undefined) {
      this.lossSum += sums[0];
      this.lossExamples += examples;
    }
    if (round < this.storedTo) return;
    this.journal.append({ kind: 'ledger', fromRound: round, toRound: round, examples, ...(dropped > 0 ? { dropped } : {}) });
    this.writeMetric(round, this.measured.finish(sums, examples), { examples, roundMs, validation });
  }

  private writeMetric(
    round: number,
    values: Measures,
    {
      examples,
      roundMs,
      validation,
    }: { readonly examples: number; readonly roundMs: number; readonly validation: ValidationPoint | undefined },
  ): void {
    const epoch = this.schedule.epochOf(round);
    const entry = { kind: 'metric', round, rounds: 1, epoch, values, examples, examplesPerSecond: this.rate, roundMs } as const;
    this.journal.append(validation ? { ...entry, validation } : entry);
  }

  /** Round `round` is committed and changes nothing: its gradient was not finite. */
  skip(round: number, validation?: ValidationPoint): void {
    const dropped = this.schedule.examplesIn(round);
    this.lastCommitMs = this.now();
    if (round >= this.countedTo) keepException(this.exceptions, { round, examples: dropped, why: 'NaN or infinity' });
    if (round < this.storedTo) return;
    this.journal.append({ kind: 'ledger', fromRound: round, toRound: round, examples: 0, dropped });
    this.journal.append({
      kind: 'event',
      type: 'round.skipped',
      message: `round ${round} is left out: its gradient has NaN or infinity`,
      data: { round, examples: dropped },
    });
    if (validation) this.writeMetric(round, UNMEASURED, { examples: 0, roundMs: 0, validation });
  }

  /** Replicas that were too late. Said once in a while: a slow worker is late in every round. */
  private drop(round: number, examples: number): void {
    keepException(this.exceptions, { round, examples, why: 'too late' });
    this.unsaidDrops.rounds++;
    this.unsaidDrops.examples += examples;
    if (this.now() - this.lastDropEventMs < DROP_EVENT_EVERY_MS) return;
    const { rounds, examples: all } = this.unsaidDrops;
    this.unsaidDrops = { rounds: 0, examples: 0 };
    this.lastDropEventMs = this.now();
    this.journal.append({
      kind: 'event',
      type: 'replica.dropped',
      message: `${counted(all, 'example')} of ${counted(rounds, 'round')} came too late and were dropped`,
      data: { round, rounds, examples: all },
    });
  }

  /**
   * A coordinator takes over in round `round`: the rows of committed rounds that are not stored are written again from the schedule.
   * What their contributions said is gone with the coordinator before.
   * @param stored what the control plane has of the rounds of this attempt before `ledgerFrom`; without it that follows from `leftOut`
   * @param leftOut rounds that changed nothing
   */
  succeed(
    round: number,
    ledgerFrom: number,
    stored?: { readonly examples: number; readonly dropped: number },
    leftOut: readonly number[] = [],
  ): void {
    const skipped = new Set(leftOut);
    this.storedTo = ledgerFrom;
    this.countedTo = stored ? ledgerFrom : 0;
    if (stored) this.trainedExamples += stored.examples;
    else this.trainedExamples = 0;
    if (stored && stored.dropped > 0) keepException(this.exceptions, { round: ledgerFrom - 1, examples: stored.dropped, why: SEVERAL });
    for (let k = stored ? ledgerFrom : 0; k < round; k++) {
      if (skipped.has(k)) this.skip(k);
      else this.succeedRow(k);
    }
    if (ledgerFrom >= round) return;
    this.journal.append({
      kind: 'event',
      type: 'journal.gap',
      message: `no metrics of rounds ${ledgerFrom} to ${round - 1}: their coordinator is gone`,
      data: { fromRound: ledgerFrom, toRound: round - 1 },
    });
  }

  private succeedRow(round: number): void {
    const examples = this.schedule.examplesIn(round);
    this.trainedExamples += examples;
    if (round >= this.storedTo) this.journal.append({ kind: 'ledger', fromRound: round, toRound: round, examples });
  }

  /** Round `round` is committed, but what its contributions said is not known. */
  commitUnseen(round: number, validation?: ValidationPoint): void {
    const examples = this.schedule.examplesIn(round);
    if (round >= this.countedTo) this.trainedExamples += examples;
    this.attemptExamples += examples;
    this.lastCommitMs = this.now();
    if (round < this.storedTo) return;
    this.journal.append({ kind: 'ledger', fromRound: round, toRound: round, examples });
    this.journal.append({
      kind: 'event',
      type: 'journal.gap',
      message: `no metrics of round ${round}: its coordinator is gone`,
      data: { fromRound: round, toRound: round },
    });
    if (validation) this.writeMetric(round, UNMEASURED, { examples: 0, roundMs: 0, validation });
  }

  state(): LedgerState {
    return { examples: this.trainedExamples, exceptions: [...this.exceptions] };
  }

  /** What a checkpoint of this moment keeps, with the mean loss of the rounds since the last one. */
  checkpoint(): CheckpointContent {
    const loss = mean(this.lossExamples === 0 ? undefined : this.lossSum, this.lossExamples);
    this.lossSum = 0;
    this.lossExamples = 0;
    return { loss, ledger: this.state() };
  }
}

function mean(sum: number | undefined, count: number): number | null {
  return sum === undefined || count === 0 || !Number.isFinite(sum) ? null : sum / count;
}
