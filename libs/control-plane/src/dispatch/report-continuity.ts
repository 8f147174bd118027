/**
 * Whether the silence of a server means something. Nobody is declared lost while nobody could hear: after a start, a lost Redis or a
 * stopped event loop, reports must have been read without a gap for a while first.
 */
import { LOST_AFTER_MS } from '../lifecycle/placing.js';

const JUDGE_AFTER_MS = LOST_AFTER_MS + 1_500;
const GAP_MS = 3_000;

export class ReportContinuity {
  private sinceMs: number | undefined;
  private heardAtMs = 0;

  /** The report stream was read just now, whatever was in it. */
  heard(now: number): void {
    if (this.sinceMs === undefined || now - this.heardAtMs > GAP_MS) this.sinceMs = now;
    this.heardAtMs = now;
  }

  lost(): void {
    this.sinceMs = undefined;
  }

  isReliable(now: number): boolean {
    return this.forMs(now) >= JUDGE_AFTER_MS;
  }

  /** For how long reports have been read without a gap. */
  forMs(now: number): number {
    return this.sinceMs === undefined || now - this.heardAtMs > GAP_MS ? 0 : now - this.sinceMs;
  }
}
