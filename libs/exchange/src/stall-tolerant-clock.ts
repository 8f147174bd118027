/**
 * The clock of who has deadlines for peers. While this process stood still it has read nothing of theirs and told them nothing, and where the whole
 * machine slept they have done nothing: that time counts for no deadline. After it the peers get `graceMs`, more than two of their heartbeats,
 * before deadlines are looked at: what they sent meanwhile is not read yet.
 */
import type { Clock } from './clock.js';

/** Nobody who calls `isDue` every 100 ms is that late. */
export const STALL_MS = 1_000;
export const GRACE_MS = 2_500;

export class StallTolerantClock {
  private seenMs: number;
  private stoodStillMs = 0;
  /** What of it has had its grace. Nobody has looked at deadlines before the first tick. */
  private forgivenMs: number | undefined;
  private nextMs = -Infinity;

  constructor(
    private readonly clock: Pick<Clock, 'now'>,
    private readonly options: { readonly stallMs: number; readonly graceMs: number } = { stallMs: STALL_MS, graceMs: GRACE_MS },
  ) {
    this.seenMs = clock.now();
  }

  /** Without the time in which this process stood still. */
  now(): number {
    const now = this.clock.now();
    const passedMs = now - this.seenMs;
    this.seenMs = now;
    if (passedMs > this.options.stallMs) this.stoodStillMs += passedMs;
    return now - this.stoodStillMs;
  }

  /** Call it every 100 ms or so: true when deadlines may be looked at now. */
  isDue(): boolean {
    const now = this.now();
    this.forgivenMs ??= this.stoodStillMs;
    if (this.stoodStillMs > this.forgivenMs) {
      this.forgivenMs = this.stoodStillMs;
      this.nextMs = now + this.options.graceMs;
    }
    return now >= this.nextMs;
  }
}
