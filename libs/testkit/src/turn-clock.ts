/**
 * The clock of a cluster in one process: it moves by as much in each turn of the event loop in which a test waits, and by hand. How fast the
 * machine is decides nothing.
 */

/** About what a turn takes on an idle machine. */
const TURN_MS = 0.1;

export class TurnClock {
  nowMs = 0;
  private timers: { readonly atMs: number; readonly act: () => void }[] = [];

  /** As setTimeout. What is due at one time comes in the order in which it was asked for. */
  later(ms: number, act: () => void): void {
    this.timers.push({ atMs: this.nowMs + ms, act });
  }

  /** Lets time pass at once; what is due meanwhile comes with the next turn. */
  advance(ms: number): void {
    this.nowMs += ms;
  }

  /** Waits until so much time has passed, turn by turn. */
  async pass(ms: number): Promise<void> {
    for (const untilMs = this.nowMs + ms; this.nowMs < untilMs;) await this.turn();
  }

  /** Waits for the next turn of the event loop, and does what is due. */
  async turn(): Promise<void> {
    await new Promise((resolve) => setImmediate(resolve));
    this.nowMs += TURN_MS;
    const due = this.timers.filter(({ atMs }) => atMs <= this.nowMs);
    if (due.length === 0) return;
    this.timers = this.timers.filter(({ atMs }) => atMs > this.nowMs);
    for (const { act } of due.sort((a, b) => a.atMs - b.atMs)) act();
  }
}
