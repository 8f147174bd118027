/**
 * How often each replica of a round (or each work item, which is the same) has lost its holder: one that kills whoever computes it must
 * not do so for ever.
 */
export const MAX_LOSSES = 5;
/** Losses of one host within this time count once: they have one cause. */
const ONE_CAUSE_MS = 100;
const MAX_CAUSE_CHARACTERS = 500;

interface Losses {
  readonly lastHost: string;
  readonly lastMs: number;
  /** Why each holder was lost, oldest first; at most `MAX_LOSSES`. */
  readonly causes: readonly string[];
}

export interface TooManyLosses {
  readonly replica: number;
  /** The cause that came most often. */
  readonly cause: string;
  /** How often it came: `each time`, `3 times`, `the last time`. */
  readonly howOften: string;
}

export class PoisonRounds {
  /** By `round/replica`. */
  private readonly losses = new Map<string, Losses>();

  /** A member of `host` was lost owing `replicas` of a round. Returns a replica that has now been lost too often. */
  count(round: number, replicas: readonly number[], host: string, nowMs: number, why: string): TooManyLosses | undefined {
    for (const replica of replicas) {
      const key = `${round}/${replica}`;
      const before = this.losses.get(key) ?? { causes: [], lastHost: '', lastMs: -Infinity };
      if (before.lastHost === host && nowMs - before.lastMs < ONE_CAUSE_MS) continue;
      const causes = [...before.causes, why.slice(0, MAX_CAUSE_CHARACTERS)];
      this.losses.set(key, { causes, lastHost: host, lastMs: nowMs });
      if (causes.length >= MAX_LOSSES) return { replica, ...mostFrequent(causes) };
    }
    return undefined;
  }

  /** The work item is counted. */
  forget(round: number, replica: number): void {
    this.losses.delete(`${round}/${replica}`);
  }

  /** The round is committed. */
  clear(): void {
    this.losses.clear();
  }
}

/** The most frequent cause; the latest of several that are equally frequent. */
function mostFrequent(causes: readonly string[]): Omit<TooManyLosses, 'replica'> {
  const times = (cause: string): number => causes.filter((other) => other === cause).length;
  const cause = causes.reduce((best, next) => (times(next) >= times(best) ? next : best));
  const count = times(cause);
  if (count === causes.length) return { cause, howOften: 'each time' };
  return { cause, howOften: count > 1 ? `${count} times` : 'the last time' };
}
