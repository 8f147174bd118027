/**
 * The api's clockwork: every 300 ms (more or less, so that several apis do not beat together) it sends the outbox, and the one api
 * that holds the lock reconciles. PostgreSQL or Redis away: it waits, doubling its pause, and goes on where it was.
 *
 *     send the outbox ──> hold the lock? ── yes ──> reconcile every run ── something was done ──> send the outbox (seats that were just opened)
 */
export interface DispatchPorts {
  /** Calls `act` once, `ms` from now; the result takes it back. */
  after(ms: number, act: () => void): () => void;
  /** Uniform in [0, 1). */
  random(): number;
  /** @returns how many jobs were sent @throws when a store is away */
  sendOutbox(): Promise<number>;
  /** True when this api is the one that reconciles. @throws when PostgreSQL is away */
  holdLock(): Promise<boolean>;
  /** @returns runs that could not be looked at @throws when a store is away, or another api has taken the lock */
  reconcile(): Promise<readonly { readonly runId: string; readonly error: Error }[]>;
  /** How many actions `reconcile` has carried out so far. */
  actions(): number;
  /** @param failuresInARow ticks that failed, this one included; 0 when it was one run alone */
  failed(error: Error, failuresInARow: number, runId?: string): void;
}

export const TICK_MS = 300;
const JITTER_MS = 60;
const LONGEST_PAUSE_MS = 3_000;

export class DispatchLoop {
  /** For /metrics. */
  readonly counters = { ticks: 0, failures: 0, jobsSent: 0, isLeader: false };
  private cancel: (() => void) | undefined;
  private ticking: Promise<void> | undefined;
  private wokenMeanwhile = false;
  private stopped = false;
  private failuresInARow = 0;

  constructor(private readonly ports: DispatchPorts) {}

  start(): void {
    this.schedule(0);
  }

  /** Returns when the present tick is over. */
  async stop(): Promise<void> {
    this.stopped = true;
    this.cancel?.();
    await this.ticking;
  }

  /** Something has changed that it acts on: the wait for the next tick is skipped, unless a store is away. */
  wake(): void {
    if (this.ticking) this.wokenMeanwhile = true;
    else if (this.failuresInARow === 0) this.schedule(0);
  }

  private schedule(delayMs: number): void {
    if (this.stopped) return;
    this.cancel?.();
    this.cancel = this.ports.after(delayMs, () => {
      this.ticking = this.tick().finally(() => {
        this.ticking = undefined;
        const pauseMs = Math.min(TICK_MS * 2 ** this.failuresInARow, LONGEST_PAUSE_MS) + (this.ports.random() - 0.5) * 2 * JITTER_MS;
        this.schedule(this.wokenMeanwhile && this.failuresInARow === 0 ? 0 : pauseMs);
        this.wokenMeanwhile = false;
      });
    });
  }

  private async tick(): Promise<void> {
    const { ports, counters } = this;
    counters.ticks++;
    try {
      counters.jobsSent += await ports.sendOutbox();
      counters.isLeader = await ports.holdLock();
      if (counters.isLeader) {
        const before = ports.actions();
        for (const { runId, error } of await ports.reconcile()) {
          counters.failures++;
          ports.failed(error, 0, runId);
        }
        if (ports.actions() !== before) counters.jobsSent += await ports.sendOutbox();
      }
      this.failuresInARow = 0;
    } catch (error) {
      this.failuresInARow++;
      counters.failures++;
      counters.isLeader = false;
      ports.failed(error as Error, this.failuresInARow);
    }
  }
}
