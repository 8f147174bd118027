/**
 * Carries a coordinator's journal to the api and its wishes back, off the path of any round. Everything here may
 * fail for as long as it likes: the journal keeps what is not acknowledged, and training does not notice.
 */
import type { CancelTimer, Clock, Coordinator, Journal, NumberedEntry } from '@paceline/exchange';
import {
  acknowledgedOf,
  ackFieldName,
  controlFor,
  pinsOf,
  type ControlPlane,
  type CoordinatorState,
  type JournalEntry,
  type Pin,
} from '@paceline/control-plane';

const PERIOD_MS = 250;
const STATE_EVERY_MS = 1_000;
/**
 * An attempt that has trained for longer tells its rounds with its state, once a second, and events at once: a report costs the api the same for one round as for
 * many. Before, rounds are told as they come, since somebody looks whether the run begins well.
 */
const LIVELY_FOR_MS = 15_000;
/**
 * Without an acknowledgement for this long the oldest batch is sent again, alone, until one comes: an api that is away for
 * hours must not find hours of repetitions in Redis.
 */
const RESEND_AFTER_MS = 3_000;
const BATCHES_PER_PERIOD = 10;
const BATCH_ENTRIES = 200;
/** A report of more than 1 MiB is not taken; views of many members make long entries. */
const BATCH_CHARACTERS = 500_000;

export type WantedOf = Pick<Coordinator, 'cancel'> & {
  readonly stops: Pick<Coordinator['stops'], 'pause'>;
  readonly attendance: Pick<Coordinator['attendance'], 'setTarget'>;
};

export interface JournalPublisherOptions {
  readonly controlPlane: ControlPlane;
  readonly clock: Clock;
  readonly runId: string;
  readonly attempt: number;
  readonly journal: Journal;
  /** Term in which its server came to lead shard 0. The control plane recognises a replaced coordinator by it. */
  readonly term: number;
  state(): CoordinatorState;
  /** Carries out what the control plane wants: cancel, pause, another number of workers. */
  readonly coordinator: WantedOf;
  /** Hears which checkpoints others need. */
  pinned?(pins: readonly Pin[]): void;
}

const NOBODY: WantedOf = { cancel: () => undefined, stops: { pause: () => undefined }, attendance: { setTarget: () => undefined } };

export class JournalPublisher {
  private cancelTimer: CancelTimer | undefined;
  private stopped = false;
  private sent = 0;
  private lastStateMs = -Infinity;
  private lastAckMs: number;
  private isProbing = false;
  /** When rounds were told first. */
  private firstRoundMs: number | undefined;

  constructor(private options: JournalPublisherOptions) {
    this.lastAckMs = options.clock.now();
  }

  start(): void {
    this.next(0);
  }

  /** True when the api has stored everything, or wants nothing of it: for it the attempt is over. */
  get isDrained(): boolean {
    return this.options.journal.pending === 0;
  }

  /** Publishes now what is not published yet, as far as Redis takes it; nothing after `stop`. */
  async flush(): Promise<void> {
    await this.publish(true).catch(() => undefined); // Redis is away, and this process ends: the api will miss its heartbeats
  }

  /** The attempt is over, and nothing of it but its journal is kept here: its state stays what it is, and nobody carries out what is wanted of it. */
  detach(): void {
    const { pinned: _pinned, ...options } = this.options;
    const state = options.state();
    this.options = Object.assign(options, { state: () => state, coordinator: NOBODY });
  }

  stop(): void {
    this.stopped = true;
    this.cancelTimer?.();
  }

  private async period(): Promise<void> {
    try {
      await this.readControl();
      await this.publish();
    } catch {
      // Redis is away: nothing is lost, the journal holds it; everything unacknowledged is sent again when it is back.
      this.sent = 0;
    }
    if (!this.stopped) this.next(PERIOD_MS);
  }

  private next(ms: number): void {
    this.cancelTimer = this.options.clock.after(ms, () => void this.period());
  }

  private async readControl(): Promise<void> {
    const { runId, attempt, term, journal, clock, controlPlane } = this.options;
    const acked = ackFieldName(attempt);
    const control = await controlPlane.readControl(runId, [acked]);
    const ack = acknowledgedOf(control[acked], term);
    const before = journal.pending;
    if (ack) journal.acknowledge(ack.sequence, !ack.areDropped);
    if (journal.pending < before || journal.pending === 0) {
      this.lastAckMs = clock.now();
      // What was sent before the silence may be gone: all of it follows the first batch.
      this.isProbing = false;
    }
    // Where Redis has lost it, what was known goes on.
    if (control.pins !== undefined) this.options.pinned?.(pinsOf(control.pins));
    const action = controlFor(control.action, attempt);
    if (action === 'cancel') this.options.coordinator.cancel();
    if (action === 'pause') this.options.coordinator.stops.pause();
    const workers = Number(controlFor(control.workers, attempt));
    if (Number.isSafeInteger(workers) && workers >= 1) this.options.coordinator.attendance.setTarget(workers);
  }

  private async publish(isAsked = false): Promise<void> {
    const { journal, runId, attempt, controlPlane, clock } = this.options;
    const now = clock.now();
    if (now - this.lastAckMs > RESEND_AFTER_MS) {
      this.sent = 0;
      this.lastAckMs = now;
      this.isProbing = true;
    }
    let isCut = false;
    for (let i = 0; i < BATCHES_PER_PERIOD && !this.stopped; i++) {
      const isRecent = now - this.lastStateMs < STATE_EVERY_MS;
      if (isRecent && !isAsked && !isCut && !this.isProbing && this.mayWait(now)) return;
      const batch = this.isProbing ? this.probe() : journal.batch(BATCH_ENTRIES, this.sent);
      const entries = fitting(batch);
      isCut = entries.length < batch.length;
      if (entries.length === 0 && isRecent) return;
      await controlPlane.sendReport({
        kind: 'journal',
        runId,
        attempt,
        term: this.options.term,
        after: this.sent,
        entries: entries as (NumberedEntry & JournalEntry)[],
        state: this.options.state(),
      });
      this.lastStateMs = now;
      if (entries.length === 0) return;
      this.sent = entries.at(-1)!.sequence;
    }
  }

  /** Rounds alone, of an attempt that has trained for a while, and not so many that they are a report of their own. */
  private mayWait(now: number): boolean {
    const waiting = this.options.journal.waiting(this.sent);
    if (waiting.some(({ kind }) => kind === 'metric')) this.firstRoundMs ??= now;
    const isLively = this.firstRoundMs === undefined || now - this.firstRoundMs < LIVELY_FOR_MS;
    return waiting.length === 0 || (!isLively && waiting.length < BATCH_ENTRIES && waiting.every(({ kind }) => kind !== 'event'));
  }

  /** The same again and nothing new, so that what the api may have stored and not acknowledged stays little. */
  private probe(): readonly NumberedEntry[] {
    return this.sent > 0 ? [] : this.options.journal.batchAgain(BATCH_ENTRIES);
  }
}

/** The first of them that fit into a report, and one at least. */
function fitting(entries: readonly NumberedEntry[]): readonly NumberedEntry[] {
  let characters = 0;
  const count = entries.findIndex((entry, i) => (characters += JSON.stringify(entry).length) > BATCH_CHARACTERS && i > 0);
  return count < 0 ? entries : entries.slice(0, count);
}
