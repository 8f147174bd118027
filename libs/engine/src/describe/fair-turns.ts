/**
 * A queue for a few places that is fair over groups: whoever asks for much waits behind their own requests, not in front of everybody
 * else's. The group that was served last comes last.
 */
export class QueueFullError extends Error {}
export class WaitOverError extends Error {}

interface Waiting {
  readonly begin: () => void;
}

export class FairTurns {
  private free: number;
  private readonly waiting = new Map<string, Waiting[]>();

  constructor(
    places: number,
    private readonly maxWaitingPerGroup: number,
    private readonly maxWaiting: number,
  ) {
    this.free = places;
  }

  get waitingCount(): number {
    return [...this.waiting.values()].reduce((sum, { length }) => sum + length, 0);
  }

  /**
   * Runs `work` when it has a place.
   * @throws QueueFullError at once @throws WaitOverError when no place was free for so long
   */
  async take<T>(group: string, waitMs: number, work: () => Promise<T>): Promise<T> {
    if (this.free > 0) this.free--;
    else await this.wait(group, waitMs);
    try {
      return await work();
    } finally {
      this.next();
    }
  }

  private wait(group: string, waitMs: number): Promise<void> {
    const before = this.waiting.get(group) ?? [];
    if (before.length >= this.maxWaitingPerGroup || this.waitingCount >= this.maxWaiting) throw new QueueFullError('the queue is full');
    return new Promise((resolve, reject) => {
      const mine: Waiting = {
        begin: () => {
          clearTimeout(timer);
          resolve();
        },
      };
      const timer = setTimeout(() => {
        const left = (this.waiting.get(group) ?? []).filter((other) => other !== mine);
        if (left.length > 0) this.waiting.set(group, left);
        else this.waiting.delete(group);
        reject(new WaitOverError(`no place was free for ${waitMs} ms`));
      }, waitMs);
      this.waiting.set(group, [...before, mine]);
    });
  }

  /** Hands the place on to the group that waits longest for one. */
  private next(): void {
    const [first] = this.waiting;
    if (!first) return void this.free++;
    const [group, [mine, ...others]] = first;
    this.waiting.delete(group);
    if (others.length > 0) this.waiting.set(group, others); // behind all others
    mine!.begin();
  }
}
