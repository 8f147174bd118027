/**
 * The door in front of the transactions that create runs: so many at once, so many that wait, and everybody else is told to come back
 * before anything is written. Without it a burst takes all connections to PostgreSQL, and a client hears "unavailable" of a run that was made.
 * The next that enters is of the team that has fewest inside.
 */
import { Fault } from '../fault.js';

export interface AdmissionBounds {
  readonly atOnce: number;
  readonly waiting: number;
  readonly waitingOfTeam: number;
  readonly waitMs: number;
}

/** Of 10 connections to PostgreSQL less than half; one creation takes some 50 ms. */
export const ADMISSION: AdmissionBounds = { atOnce: 4, waiting: 64, waitingOfTeam: 32, waitMs: 5_000 };
const RETRY_AFTER_SECONDS = 2;

interface Waiter {
  readonly teamId: string;
  readonly enter: () => void;
}

export class Admission {
  private readonly inside = new Map<string, number>();
  private count = 0;
  private readonly waiters: Waiter[] = [];

  constructor(
    private readonly bounds: AdmissionBounds = ADMISSION,
    private readonly after: (ms: number, act: () => void) => () => void = afterMs,
  ) {}

  /** @throws Fault TOO_BUSY when too many wait, or it waited for too long: nothing was done */
  async run<T>(teamId: string, act: () => Promise<T>): Promise<T> {
    await this.enter(teamId);
    try {
      return await act();
    } finally {
      this.leave(teamId);
    }
  }

  private enter(teamId: string): Promise<void> | undefined {
    const { atOnce, waiting, waitingOfTeam, waitMs } = this.bounds;
    if (this.count < atOnce) return void this.admit(teamId);
    if (this.waiters.length >= waiting || this.waiters.filter((waiter) => waiter.teamId === teamId).length >= waitingOfTeam)
      throw busy('Too many runs are being created at once.');
    return new Promise((resolve, reject) => {
      const cancel = this.after(waitMs, () => {
        this.waiters.splice(this.waiters.indexOf(waiter), 1);
        reject(busy(`The run waited ${waitMs / 1000} s to be created.`));
      });
      const waiter: Waiter = {
        teamId,
        enter: () => {
          cancel();
          this.admit(teamId);
          resolve();
        },
      };
      this.waiters.push(waiter);
    });
  }

  private admit(teamId: string): void {
    this.count++;
    this.inside.set(teamId, this.insideOf(teamId) + 1);
  }

  private leave(teamId: string): void {
    this.count--;
    if (this.insideOf(teamId) === 1) this.inside.delete(teamId);
    else this.inside.set(teamId, this.insideOf(teamId) - 1);
    let next = 0;
    for (let i = 1; i < this.waiters.length; i++)
      if (this.insideOf(this.waiters[i]!.teamId) < this.insideOf(this.waiters[next]!.teamId)) next = i;
    this.waiters.splice(next, 1)[0]?.enter();
  }

  private insideOf(teamId: string): number {
    return this.inside.get(teamId) ?? 0;
  }
}

const busy = (why: string): Fault => new Fault('TOO_BUSY', `${why} Nothing was done; try again shortly.`, RETRY_AFTER_SECONDS);

function afterMs(ms: number, act: () => void): () => void {
  const timer = setTimeout(act, ms);
  return () => clearTimeout(timer);
}
