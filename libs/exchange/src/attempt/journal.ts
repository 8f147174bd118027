/**
 * The coordinator's journal (docs/protocol.md §19): events, metrics and ledger ranges wait here, numbered (attempt, sequence), until the api has
 * stored and acknowledged them. Redis only carries them: whatever is not acknowledged is published again.
 *
 * It is bounded and never blocks training. When it is full, neighbouring ledger ranges are merged and pairs of metrics are
 * thinned into one row that says how many rounds it stands for (with the means of both, and of what is no mean the newer number); a part of the room is kept for events. If events alone
 * overflow (an api away for very long), the oldest are dropped behind a gap marker. Entries that were published keep what
 * they say: the api may have stored one and not another, and then would miss what was merged away.
 */
import { mergedMeasures, type Measures } from './measures.js';
export interface EventEntry {
  kind: 'event';
  type: string;
  message: string;
  data: Record<string, unknown>;
}
/** What a validation has measured with the COMMIT of a round: the weights after that round. */
export interface ValidationPoint {
  readonly round: number;
  readonly examples: number;
  readonly values: Measures;
}
export interface MetricEntry {
  kind: 'metric';
  round: number;
  rounds: number;
  epoch: number;
  values: Measures;
  /** The newest validation of the row, if several rows were merged. */
  validation?: ValidationPoint;
  examples: number;
  examplesPerSecond: number;
  roundMs: number;
  /** Modes async and ssp: mean staleness of the updates, and how many had 0, 1, 2, …; the last place counts the rest. */
  staleness?: number;
  stalenessCounts?: number[];
}
export interface LedgerEntry {
  kind: 'ledger';
  fromRound: number;
  toRound: number;
  examples: number;
  /** Examples of these rounds that are in no update. */
  dropped?: number;
}
export type Entry = EventEntry | MetricEntry | LedgerEntry;
export type NumberedEntry = Entry & { sequence: number; atMs: number };

export interface JournalOptions {
  readonly now: () => number;
  /** Unpublished entries kept at most; a quarter is reserved for events. */
  readonly maxEntries?: number;
  /** Names of metrics that are means over examples: only those can be averaged where rows are thinned. The loss alone, where it is left out. */
  readonly means?: ReadonlySet<string>;
  /** Neighbouring ledger ranges that nobody has read yet are merged up to this many rounds. */
  readonly ledgerRounds?: number;
  /** Entries that a coordinator before this one has written in the attempt, and that are stored: the numbers go on after them. */
  readonly storedSequence?: number;
}

export class Journal {
  private entries: NumberedEntry[] = [];
  private nextNumber: number;
  /** Highest number handed out by `batch`: entries up to it must not change any more, since the api may have stored them. */
  private published: number;
  private acknowledged: number;
  private stored: number;

  constructor(private readonly options: JournalOptions) {
    this.published = this.acknowledged = this.stored = options.storedSequence ?? 0;
    this.nextNumber = this.acknowledged + 1;
  }

  get pending(): number {
    return this.entries.length;
  }

  get lastNumber(): number {
    return this.nextNumber - 1;
  }

  /** Everything up to it is stored. */
  get storedNumber(): number {
    return this.stored;
  }

  append(entry: Entry): void {
    if (entry.kind === 'ledger' && this.mergeLedger(entry)) return;
    this.entries.push({ ...entry, sequence: this.nextNumber++, atMs: this.options.now() });
    const max = this.options.maxEntries ?? 20_000;
    if (this.entries.length > max && this.entries.length - this.publishedCount() > max) this.shrink(max);
  }

  /** The oldest unacknowledged entries. Reading fixes them: they are not merged any more. */
  batch(most = 200, after = 0): NumberedEntry[] {
    const batch = this.entries.filter((entry) => entry.sequence > after).slice(0, most);
    const last = batch.at(-1);
    if (last) this.published = Math.max(this.published, last.sequence);
    return batch;
  }

  /** Those behind this number that nobody has read, as they are now: they may yet be merged. */
  waiting(after: number): readonly NumberedEntry[] {
    return this.entries.filter((entry) => entry.sequence > after);
  }

  /** What was read before and is not acknowledged; the oldest, where nothing was. Nothing new is fixed while nobody answers. */
  batchAgain(most = 200): NumberedEntry[] {
    const again = this.entries.filter(({ sequence }) => sequence <= this.published).slice(0, most);
    return again.length > 0 ? again : this.batch(most);
  }

  /** Takes back an event that nobody has read yet. False when there is none: the api may have stored it. */
  withdraw(type: string, isMeant: (data: Record<string, unknown>) => boolean): boolean {
    const at = this.entries.findIndex(
      (entry) => entry.sequence > this.published && entry.kind === 'event' && entry.type === type && isMeant(entry.data),
    );
    if (at >= 0) this.entries.splice(at, 1);
    return at >= 0;
  }

  /**
   * The api wants nothing up to `sequence` any more. Numbers never go back, and a number not yet given is ignored.
   * @param isStored false where the attempt is over for the api, and it has dropped them
   */
  acknowledge(sequence: number, isStored = true): void {
    if (!Number.isSafeInteger(sequence) || sequence <= this.acknowledged || sequence > this.lastNumber) return;
    this.acknowledged = sequence;
    if (isStored) this.stored = sequence;
    this.entries = this.entries.filter((entry) => entry.sequence > sequence);
  }

  private publishedCount(): number {
    const first = this.entries.findIndex((entry) => entry.sequence > this.published);
    return first < 0 ? this.entries.length : first;
  }

  private mergeLedger(entry: LedgerEntry): boolean {
    for (let i = this.entries.length - 1; i >= 0 && i >= this.entries.length - 64; i--) {
      const last = this.entries[i]!;
      if (last.kind !== 'ledger') continue;
      if (last.sequence <= this.published || last.toRound + 1 !== entry.fromRound) return false;
      if (last.toRound - last.fromRound + 1 >= (this.options.ledgerRounds ?? 1000)) return false;
      mergeLedger(last, entry);
      return true;
    }
    return false;
  }

  /** Makes room: thins metrics to half, merges ledger ranges, and only then drops the oldest events behind a marker. */
  private shrink(max: number): void {
    const events = this.entries.filter((entry) => entry.kind === 'event');
    const eventRoom = Math.max(1, Math.floor(max / 4));
    let droppedEvents = 0;
    let oldestKept = 0;
    if (events.length > eventRoom && events.length > max / 2) {
      droppedEvents = events.length - eventRoom;
      oldestKept = events[droppedEvents]!.sequence;
    }
    const kept: NumberedEntry[] = [];
    let metric: (NumberedEntry & MetricEntry) | undefined;
    let ledger: (NumberedEntry & LedgerEntry) | undefined;
    for (const entry of this.entries) {
      if (entry.kind === 'event') {
        if (entry.sequence >= oldestKept) kept.push(entry);
      } else if (entry.sequence <= this.published) {
        kept.push(entry);
      } else if (entry.kind === 'ledger') {
        if (ledger && ledger.toRound + 1 === entry.fromRound) {
          mergeLedger(ledger, entry);
        } else kept.push((ledger = entry));
      } else if (metric) {
        mergeMetric(metric, entry, this.options.means ?? LOSS_ALONE);
        metric = undefined;
      } else kept.push((metric = entry));
    }
    this.entries = kept;
    if (droppedEvents > 0) {
      this.append({
        kind: 'event',
        type: 'journal.gap',
        message: `${droppedEvents} older events were dropped because nobody collected them`,
        data: { droppedEvents },
      });
    }
  }
}

function mergeLedger(into: LedgerEntry, from: LedgerEntry): void {
  into.toRound = from.toRound;
  into.examples += from.examples;
  if (from.dropped !== undefined) into.dropped = (into.dropped ?? 0) + from.dropped;
}

const LOSS_ALONE: ReadonlySet<string> = new Set(['loss']);

/** Merges `from`, of later rounds, into `into`. */
function mergeMetric(into: MetricEntry, from: MetricEntry, means: ReadonlySet<string>): void {
  const examples = into.examples + from.examples;
  into.values = mergedMeasures(into.values, into.examples, from.values, from.examples, means);
  if (from.validation) into.validation = from.validation;
  into.roundMs = (into.roundMs * into.rounds + from.roundMs * from.rounds) / (into.rounds + from.rounds);
  mergeStaleness(into, from);
  into.examplesPerSecond = from.examplesPerSecond;
  into.rounds += from.rounds;
  into.round = from.round;
  into.epoch = from.epoch;
  into.examples = examples;
}

/** Means are weighted by their updates: the counts say how many there were. */
function mergeStaleness(into: MetricEntry, from: MetricEntry): void {
  if (into.staleness === undefined || from.staleness === undefined) return;
  const [a, b] = [into.stalenessCounts ?? [], from.stalenessCounts ?? []];
  const updates = (counts: readonly number[]) => counts.reduce((sum, count) => sum + count, 0);
  const total = updates(a) + updates(b);
  if (total > 0) into.staleness = (into.staleness * updates(a) + from.staleness * updates(b)) / total;
  into.stalenessCounts = Array.from({ length: Math.max(a.length, b.length) }, (_, i) => (a[i] ?? 0) + (b[i] ?? 0));
}
