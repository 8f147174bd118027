/**
 * The metrics of a run as a page holds them: the history as the server downsamples it, and the rows that came since.
 *
 * Rows are coarse: at most ten a second, a backlog merged into one. So the history is asked for again now and then (and after each
 * reconnect, and at the end); it replaces what was held, and the rows that came while it was on its way are put behind it.
 */
import { NO_METRICS, lastRound, withRows, type MetricsByName, type Row } from './series.js';

export class LiveMetrics {
  #held = NO_METRICS;
  /** Not drawn yet. */
  #waiting: Row[] = [];
  /** Came since the last history was asked for. */
  #sinceAsked: Row[] = [];
  #askedAtMs = Number.NEGATIVE_INFINITY;

  constructor(private readonly maxPoints: number) {}

  /** The history is about to be asked for. */
  asking(nowMs: number): void {
    this.#askedAtMs = nowMs;
    this.#sinceAsked = [];
  }

  answered(history: MetricsByName): void {
    this.#held = withRows(history, this.#sinceAsked, this.maxPoints);
    this.#waiting = [];
  }

  add(row: Row): void {
    this.#waiting.push(row);
    this.#sinceAsked.push(row);
  }

  /** How old the history is that is held or on its way. */
  ageMs(nowMs: number): number {
    return nowMs - this.#askedAtMs;
  }

  /** Where a subscription goes on. */
  get afterRound(): number {
    return Math.max(lastRound(this.#held), ...this.#waiting.map(({ round }) => round));
  }

  /** What is to be drawn now. */
  draw(): MetricsByName {
    if (this.#waiting.length > 0) this.#held = withRows(this.#held, this.#waiting, this.maxPoints);
    this.#waiting = [];
    return this.#held;
  }
}
