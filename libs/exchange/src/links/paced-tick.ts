/**
 * Deadlines are looked at every `everyMs`, and not right after this process stood still: what its peers sent meanwhile is not read
 * yet, and where the whole machine slept nothing was sent. After a stall of `stallMs` the peers get `graceMs`, more than two of their
 * heartbeats, before anybody is called silent.
 */
import type { Clock } from '../clock.js';

export const STALL_MS = 1_000;
export const GRACE_MS = 2_500;

export class PacedTick {
  private nextMs: number;

  constructor(
    private readonly clock: Pick<Clock, 'now'>,
    private readonly options: { readonly stallMs: number; readonly graceMs: number } = { stallMs: STALL_MS, graceMs: GRACE_MS },
  ) {
    this.nextMs = clock.now();
  }

  /** Call it every 100 ms or so: true when deadlines may be looked at now. */
  isDue(): boolean {
    const { stallMs, graceMs } = this.options;
    const now = this.clock.now();
    const lateMs = now - this.nextMs;
    if (lateMs < 0) return false;
    const stalled = lateMs > stallMs;
    this.nextMs = now + (stalled ? graceMs : 0);
    return !stalled;
  }
}
