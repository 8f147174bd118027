/**
 * How often each replica of a round (or each token, which is the same) has lost its holder: one that kills whoever computes it must
 * not do so for ever.
 */
export const MAX_LOSSES = 5;
/** Losses of one host within this time count once: they have one cause. */
const ONE_CAUSE_MS = 100;

export class LossCounter {
  /** By `round/replica`. */
  private readonly losses = new Map<string, { count: number; lastHost: string; lastMs: number }>();

  /** A member of `host` was lost owing `replicas` of a round. Returns a replica that has now been lost too often. */
  count(round: number, replicas: readonly number[], host: string, nowMs: number): number | undefined {
    for (const replica of replicas) {
      const key = `${round}/${replica}`;
      const loss = this.losses.get(key) ?? { count: 0, lastHost: '', lastMs: -Infinity };
      if (loss.lastHost === host && nowMs - loss.lastMs < ONE_CAUSE_MS) continue;
      this.losses.set(key, { count: loss.count + 1, lastHost: host, lastMs: nowMs });
      if (loss.count + 1 >= MAX_LOSSES) return replica;
    }
    return undefined;
  }

  /** The token is counted. */
  forget(round: number, replica: number): void {
    this.losses.delete(`${round}/${replica}`);
  }

  /** The round is committed. */
  clear(): void {
    this.losses.clear();
  }
}
