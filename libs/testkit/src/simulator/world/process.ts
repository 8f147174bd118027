/**
 * A simulated process: its clock, whether it lives, whether it is stopped. Everything that happens inside goes through `run`,
 * so that nothing of a dead process moves, and what comes to a stopped one (SIGSTOP) waits until it goes on.
 *
 *   RUNNING ── freeze ──> FROZEN ── thaw ──> RUNNING        kill from either: DEAD, for good; a restart is another process
 *
 * Its clock may run fast or slow, or jump ahead (a suspended virtual machine); it never goes back.
 */
import type { CancelTimer, Clock } from '@paceline/exchange';
import type { ScheduledEvent, World } from './world.js';

interface Timer {
  dueMs: number;
  readonly everyMs: number | undefined;
  readonly act: () => void;
  event: ScheduledEvent | undefined;
}

export class SimProcess implements Clock {
  isAlive = true;
  isFrozen = false;
  private rate = 1;
  private baseMs = 0;
  private anchorMs: number;
  private lastJumpMs = -Infinity;
  private readonly timers = new Set<Timer>();
  private waiting: (() => void)[] = [];
  private readonly whenKilled: (() => void)[] = [];

  constructor(
    readonly world: World,
    readonly name: string,
    /** Processes of one host lose the network together. */
    readonly host: string,
    /** An error that left the process's own code: it would have crashed. */
    private readonly onCrash: (error: Error) => void,
  ) {
    this.anchorMs = world.nowMs;
    // No two processes have the same idea of zero.
    this.baseMs = world.random.int(0, 1_000_000);
  }

  now(): number {
    return this.baseMs + (this.world.nowMs - this.anchorMs) * this.rate;
  }

  /** Runs inside the process: now, when it goes on, or never. */
  run(act: () => void): void {
    if (!this.isAlive) return;
    if (this.isFrozen) return void this.waiting.push(act);
    try {
      act();
    } catch (error) {
      this.onCrash(error as Error);
    }
  }

  after(ms: number, act: () => void): CancelTimer {
    return this.time(ms, undefined, act);
  }

  every(ms: number, act: () => void): CancelTimer {
    return this.time(ms, ms, act);
  }

  soon(act: () => void): void {
    this.world.soon(() => this.run(act));
  }

  onKill(act: () => void): void {
    this.whenKilled.push(act);
  }

  kill(): void {
    if (!this.isAlive) return;
    this.isAlive = false;
    this.waiting = [];
    for (const timer of this.timers) if (timer.event) timer.event.act = undefined;
    this.timers.clear();
    for (const act of this.whenKilled) act();
  }

  freeze(): void {
    this.isFrozen = true;
  }

  thaw(): void {
    if (!this.isAlive || !this.isFrozen) return;
    this.isFrozen = false;
    this.world.microtasksWait = true;
    const { waiting } = this;
    this.waiting = [];
    for (const act of waiting) this.run(act);
  }

  /** The clock leaps ahead, at most once in 30 s: timers that fall into the gap are due at once. */
  jump(ms: number): boolean {
    if (this.world.nowMs - this.lastJumpMs < 30_000) return false;
    this.lastJumpMs = this.world.nowMs;
    this.baseMs += ms;
    this.rearm();
    return true;
  }

  setRate(rate: number): void {
    this.baseMs = this.now();
    this.anchorMs = this.world.nowMs;
    this.rate = rate;
    this.rearm();
  }

  private time(ms: number, everyMs: number | undefined, act: () => void): CancelTimer {
    const timer: Timer = { dueMs: this.now() + ms, everyMs, act, event: undefined };
    if (this.isAlive) {
      this.timers.add(timer);
      this.arm(timer);
    }
    return () => {
      this.timers.delete(timer);
      if (timer.event) timer.event.act = undefined;
    };
  }

  private arm(timer: Timer): void {
    if (timer.event) timer.event.act = undefined;
    timer.event = this.world.schedule((timer.dueMs - this.now()) / this.rate, `${this.name} timer`, () =>
      this.run(() => {
        if (!this.timers.has(timer)) return;
        if (timer.everyMs === undefined) this.timers.delete(timer);
        else {
          timer.dueMs = this.now() + timer.everyMs;
          this.arm(timer);
        }
        // Most timers settle a promise or feed something that does.
        this.world.microtasksWait ||= timer.everyMs === undefined;
        timer.act();
      }),
    );
  }

  private rearm(): void {
    for (const timer of this.timers) this.arm(timer);
  }
}
