/**
 * Which of several apis reconciles. A lock of PostgreSQL that is held as long as a connection lives says it: a process that dies frees it
 * at once. One that stands still (stopped, suspended, cut off) keeps its connection, so its holder also has to be heard over it:
 *
 *     free ── take ──> held ── beat, every tick ──> held
 *                        └─ nothing for HOLDER_STALE_AFTER_MS: whoever wants the lock has that connection ended, and takes it
 *
 * A holder that goes on after a stop believes for a moment that nothing has happened. Before each action it asks itself when it was heard last,
 * and PostgreSQL when that is long ago: a beat over the connection that holds the lock comes back only while the lock is held. It gives
 * up acting long before another may take over. What it had sent already is compared with the row that it locks, as every transaction of the dispatcher.
 */
export interface DispatchLockPorts {
  /** Monotonic, of this process. */
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
const SURE_FOR_MS = 3_000;

/** Another api reconciles by now. */
export class DispatchLockLostError extends Error {
  constructor() {
    super('another api has taken over while this one stood still, or the connection that holds the dispatch lock is gone');
  }
}

export class DispatchLock {
  private heardAtMs: number | undefined;

  constructor(private readonly ports: DispatchLockPorts) {}

  /** True when this api reconciles now. @throws when PostgreSQL is away */
  async hold(): Promise<boolean> {
    if (this.heardAtMs !== undefined) return this.beat();
    const at = this.ports.now();
    let taken = await this.ports.take(HOLDER_STALE_AFTER_MS);
    if (taken === 'ended its holder') {
      this.ports.told('took over');
      taken = await this.ports.take(HOLDER_STALE_AFTER_MS);
    }
    if (taken === 'held') this.heardAtMs = at;
    return taken === 'held';
  }

  /** Before each action of a tick. @throws DispatchLockLostError, or when PostgreSQL is away */
  async confirm(): Promise<void> {
    if (this.heardAtMs !== undefined && this.ports.now() - this.heardAtMs < SURE_FOR_MS) return;
    if (this.heardAtMs === undefined || !(await this.beat())) throw new DispatchLockLostError();
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
      this.heardAtMs = isHeld ? at : undefined;
      if (!isHeld) {
        this.ports.told('lost');
        await this.ports.letGo();
      }
    }
    return isHeld;
  }
}
