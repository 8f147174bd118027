/** How often each replica of the present round has lost its holder: a replica that kills whoever computes it must not do so for ever. */
export const MAX_LOSSES = 5;
/** Losses of one host within this time count once: they have one cause. */
const ONE_CAUSE_MS = 100;

export class LossCounter {
  private readonly losses = new Map<number, { count: number; lastHost: string; lastMs: number }>();

  /** A member of `host` was lost owing `replicas`. Returns a replica that has now been lost too often. */
  count(replicas: readonly number[], host: string, nowMs: number): number | undefined {
    for (const replica of replicas) {
      const loss = this.losses.get(replica) ?? { count: 0, lastHost: '', lastMs: -Infinity };
      if (loss.lastHost === host && nowMs - loss.lastMs < ONE_CAUSE_MS) continue;
      this.losses.set(replica, { count: loss.count + 1, lastHost: host, lastMs: nowMs });
      if (loss.count + 1 >= MAX_LOSSES) return replica;
    }
    return undefined;
  }

  /** The round is committed. */
  clear(): void {
    this.losses.clear();
  }
}
