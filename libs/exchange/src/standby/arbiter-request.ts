/**
 * A place that asks the arbiter, again and again until it answers, and no longer than until a deadline: it answers nothing about an attempt
 * that is over or is not the present one, and while the control plane is away. A place that asked for ever would keep workers on their seats.
 */

/**
 * More than the 300 s that a coordinator waits for a server whose loss is covered, and the 12 s before that in which a round that stands still is
 * asked for again (stall.ts): who can end the attempt and say why does so first.
 */
export const ASK_AT_MOST_MS = 330_000;

export interface ArbiterRequestOptions {
  now(): number;
  readonly askEveryMs?: number;
  readonly askAtMostMs?: number;
}

export class ArbiterRequest {
  private askedMs = -Infinity;
  /** For how long it has asked, less the time in which this process stood still. */
  private forMs = 0;
  private countedMs = 0;

  constructor(
    private readonly options: ArbiterRequestOptions,
    private readonly ask: () => void,
  ) {}

  /** At once. */
  begin(): void {
    this.forMs = 0;
    this.countedMs = this.options.now();
    this.again();
  }

  /** Every 100 ms or so. @param stoodStill this process did, since the tick before: that time does not count */
  tick(stoodStill: boolean): void {
    const { now, askEveryMs = 500 } = this.options;
    if (!stoodStill) this.forMs += now() - this.countedMs;
    this.countedMs = now();
    if (now() - this.askedMs >= askEveryMs) this.again();
  }

  get isUnanswered(): boolean {
    return this.forMs > (this.options.askAtMostMs ?? ASK_AT_MOST_MS);
  }

  /** @param asked what the arbiter was asked to do */
  describe(asked: string): string {
    return `the arbiter has not answered for ${Math.round(this.forMs / 1000)} s: it was asked to ${asked}`;
  }

  private again(): void {
    this.askedMs = this.options.now();
    this.ask();
  }
}
