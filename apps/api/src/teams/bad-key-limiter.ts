/**
 * Slows down guessing: after so many wrong keys in a minute an address gets 429 without a look into the database. Keys that
 * were right a moment ago still pass, so somebody who guesses behind the same address does not lock out the others.
 * In memory and bounded; each api counts for itself.
 */
const WINDOW_MS = 60_000;
const FAILURES_PER_WINDOW = 100;
const MAX_ADDRESSES = 10_000;
const MAX_KNOWN_KEYS = 10_000;
const KNOWN_FOR_MS = 600_000;

export class BadKeyLimiter {
  private readonly failures = new Map<string, { since: number; count: number }>();
  private readonly known = new Map<string, number>();

  constructor(private readonly now: () => number = Date.now) {}

  /** Seconds to wait, or 0 when the key may be looked up. */
  retryAfterSeconds(address: string, keyHash: string): number {
    const entry = this.failures.get(address);
    if (!entry || entry.count < FAILURES_PER_WINDOW) return 0;
    const leftMs = entry.since + WINDOW_MS - this.now();
    if (leftMs <= 0) return 0;
    return (this.known.get(keyHash) ?? 0) > this.now() ? 0 : Math.ceil(leftMs / 1000);
  }

  failed(address: string): void {
    const now = this.now();
    const entry = this.failures.get(address);
    if (entry && now - entry.since < WINDOW_MS) return void entry.count++;
    this.failures.delete(address);
    keepBelow(this.failures, MAX_ADDRESSES);
    this.failures.set(address, { since: now, count: 1 });
  }

  succeeded(keyHash: string): void {
    this.known.delete(keyHash);
    keepBelow(this.known, MAX_KNOWN_KEYS);
    this.known.set(keyHash, this.now() + KNOWN_FOR_MS);
  }
}

/** A Map keeps insertion order: the oldest goes first. */
function keepBelow(map: Map<string, unknown>, size: number): void {
  for (const key of map.keys()) {
    if (map.size < size) return;
    map.delete(key);
  }
}
