/** How often and how soon something that ended is started again: a delay that doubles, and so many restarts within a window. */
export interface RestartPolicy {
  readonly firstDelayMs: number;
  readonly maxDelayMs: number;
  /** Ready for so long: the next delay is the first one again. */
  readonly settledMs: number;
  readonly restarts: number;
  readonly windowMs: number;
}

export const DEFAULT_RESTART: RestartPolicy = { firstDelayMs: 200, maxDelayMs: 10_000, settledMs: 30_000, restarts: 20, windowMs: 300_000 };

export class RestartBudget {
  private delayMs: number;
  private times: number[] = [];

  constructor(
    private readonly policy: RestartPolicy,
    private readonly now: () => number = () => performance.now(),
  ) {
    this.delayMs = policy.firstDelayMs;
  }

  /** @param readyForMs how long it could be used before it ended @returns the delay, or why there is none */
  next(readyForMs: number): number | string {
    const { policy } = this;
    const now = this.now();
    this.times = this.times.filter((at) => now - at < policy.windowMs);
    if (this.times.length >= policy.restarts) return `${policy.restarts} restarts in ${Math.round(policy.windowMs / 1000)} s are used up`;
    this.times.push(now);
    if (readyForMs >= policy.settledMs) this.delayMs = policy.firstDelayMs;
    const delayMs = this.delayMs;
    this.delayMs = Math.min(policy.maxDelayMs, this.delayMs * 2);
    return delayMs;
  }
}
