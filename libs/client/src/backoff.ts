/** How long to wait before trying again: longer each time, within a bound, until something has worked. */
export class Backoff {
  #nextMs: number;

  /** @param jitter the share by which a delay may differ, so that many who were cut off do not come back at once */
  constructor(
    private readonly firstMs: number,
    private readonly maxMs: number,
    private readonly jitter = 0,
    private readonly random: () => number = Math.random,
  ) {
    this.#nextMs = firstMs;
  }

  next(): number {
    const delayMs = this.#nextMs * (1 - this.jitter + 2 * this.jitter * this.random());
    this.#nextMs = Math.min(this.maxMs, this.#nextMs * 2);
    return delayMs;
  }

  reset(): void {
    this.#nextMs = this.firstMs;
  }
}
