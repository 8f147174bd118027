/**
 * Slows down guessing: after so many wrong keys in a minute, further wrong keys of an address are answered 429. A right key is always
 * answered as such: it is looked up first, so somebody who guesses behind the same address locks nobody out. Keys that were wrong a moment ago
 * are not looked up again. In memory and bounded; each api counts for itself.
 */
import { sourceOf } from '../http/client-address.js';

const WINDOW_MS = 60_000;
const FAILURES_PER_WINDOW = 100;
const MAX_ADDRESSES = 10_000;
const MAX_WRONG_KEYS = 10_000;

export class BadKeyLimiter {
  private readonly failures = new Map<string, { since: number; count: number }>();
  private readonly wrong = new Map<string, number>();

  constructor(private readonly now: () => number = Date.now) {}

  /** Seconds until a wrong key of this address is answered 401 again; 0 when it is now. */
  retryAfterSeconds(address: string): number {
    const entry = this.failures.get(sourceOf(address));
    if (!entry || entry.count < FAILURES_PER_WINDOW) return 0;
    return Math.max(0, Math.ceil((entry.since + WINDOW_MS - this.now()) / 1000));
  }

  failed(address: string, keyHash: string): void {
    const now = this.now();
    this.wrong.delete(keyHash);
    keepBelow(this.wrong, MAX_WRONG_KEYS);
    this.wrong.set(keyHash, now + WINDOW_MS);
    const source = sourceOf(address);
    const entry = this.failures.get(source);
    if (entry && now - entry.since < WINDOW_MS) return void entry.count++;
    this.failures.delete(source);
    keepBelow(this.failures, MAX_ADDRESSES);
    this.failures.set(source, { since: now, count: 1 });
  }

  wasWrong(keyHash: string): boolean {
    return (this.wrong.get(keyHash) ?? 0) > this.now();
  }
}

/** A Map keeps insertion order: the oldest goes first. */
export function keepBelow(map: Map<string, unknown>, size: number): void {
  for (const key of map.keys()) {
    if (map.size < size) return;
    map.delete(key);
  }
}
