/**
 * Which of several apis reconciles. A lock of PostgreSQL that is held as long as a connection lives says it: a process that dies frees it
 * at once. One that stands still (stopped, suspended, cut off) keeps its connection, so its holder also has to be heard over it:
 *
 *     free ── take ──> held ── beat, once in SURE_FOR_MS ──> held
 *                        └─ nothing for HOLDER_STALE_AFTER_MS: whoever wants the lock has that connection ended, and takes it
 *
 * A holder that goes on after a stop believes for a moment that nothing has happened. Before each step of a tick it asks itself when it was heard
 * last, and PostgreSQL when that is long ago: a beat over the connection that holds the lock comes back only while the lock is held. It gives
 * up acting long before another may take over, and one that is well is heard however long its tick takes. What it had sent already is compared
 * with the row that it locks, as every transaction of the dispatcher.
 */
export interface DispatchLockPorts {
  /** Never goes back; counts the time that the machine was suspended too (`wakefulClock`). */
  now(): number;
  /** Over a connection of its own, which holds the lock from then on. @param staleMs a holder that was not heard for so long is ended */
  take(staleMs: number): Promise<'held' | 'another holds it' | 'ended its holder'>;
  /** Over that connection. @returns false when it is gone @throws when PostgreSQL is away */
  beat(): Promise<boolean>;
  letGo(): Promise<void>;
  /** `took over`: another api stood still with the lock. `lost`: this one did, or its connection is gone. */
  told(what: 'took over' | 'lost'): void;
}

/** Longer than any pause of a process that is well; an api that stands still holds nothing up for longer than this and a few ticks. */
export const HOLDER_STALE_AFTER_MS = 10_000;
/** Together with the longest statement of a tick still shorter than what makes a holder stale. */
const SURE_FOR_MS = 1_000;

/** Another api reconciles by now. */
export class DispatchLockLostError extends Error {
  constructor() {
    super('another api has taken over while this one stood still, or the connection that holds the dispatch lock is gone');
  }
}

export class DispatchLock {
  private heardAtMs: number | undefined;

  constructor(private readonly ports: DispatchLockPorts) {}

  /** True when this api reconciles now. One that was heard a moment ago is believed, as before each step of a tick. @throws when PostgreSQL is away */
  async hold(): Promise<boolean> {
    if (this.heardAtMs !== undefined) {
      await this.keep();
      return this.heardAtMs !== undefined;
    }
    const at = this.ports.now();
    let taken = await this.ports.take(HOLDER_STALE_AFTER_MS);
    if (taken === 'ended its holder') {
      this.ports.told('took over');
      taken = await this.ports.take(HOLDER_STALE_AFTER_MS);
    }
    if (taken === 'held') this.heardAtMs = at;
    return taken === 'held';
  }

  /** Before each look and each action of a tick. @throws DispatchLockLostError, or when PostgreSQL is away */
  async confirm(): Promise<void> {
    await this.keep();
    if (this.heardAtMs === undefined) throw new DispatchLockLostError();
  }

  /** While a tick does what any api may do: who holds the lock is heard. @throws when PostgreSQL is away */
  async keep(): Promise<void> {
    if (this.heardAtMs !== undefined && this.ports.now() - this.heardAtMs >= SURE_FOR_MS) await this.beat();
  }

  /** The connection has ended, and with it the lock: another may have it already. */
  gone(): void {
    if (this.heardAtMs === undefined) return;
    this.heardAtMs = undefined;
    this.ports.told('lost');
  }

  async letGo(): Promise<void> {
    this.heardAtMs = undefined;
    await this.ports.letGo();
  }

  private async beat(): Promise<boolean> {
    // Before it is sent: whoever waits counts from when it arrives.
    const at = this.ports.now();
    let isHeld = false;
    try {
      isHeld = await this.ports.beat();
    } finally {
      if (isHeld) this.heardAtMs = at;
      else {
        this.gone();
        await this.ports.letGo();
      }
    }
    return isHeld;
  }
}

/** The time that has passed by whichever of the two clocks counts more: the monotonic one of Linux stands still while the machine is suspended. */
export function wakefulClock(monotonicMs: () => number, wallMs: () => number): () => number {
  let [monotonic, wall, total] = [monotonicMs(), wallMs(), 0];
  return () => {
    const [before, wallBefore] = [monotonic, wall];
    [monotonic, wall] = [monotonicMs(), wallMs()];
    total += Math.max(monotonic - before, wall - wallBefore);
    return total;
  };
}
