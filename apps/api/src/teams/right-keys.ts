/**
 * Keys that were right a moment ago, by the hash of the whole key. Being remembered lets nobody in: it only says that looking the key up again is
 * no guess, so that it need not wait behind those who guess at the same address. In memory and bounded; each api remembers for itself.
 */
import { keepBelow } from './bad-key-limiter.js';

const REMEMBERED_MS = 10 * 60_000;
const MAX_KEYS = 10_000;

export class RightKeys {
  private readonly keys = new Map<string, { readonly apiKeyId: string; readonly untilMs: number }>();
  private readonly hashes = new Map<string, string>();

  constructor(private readonly now: () => number = Date.now) {}

  get size(): number {
    return this.keys.size;
  }

  wasRight(keyHash: string): boolean {
    return (this.keys.get(keyHash)?.untilMs ?? 0) > this.now();
  }

  remember(keyHash: string, apiKeyId: string): void {
    this.forget(apiKeyId);
    keepBelow(this.keys, MAX_KEYS);
    keepBelow(this.hashes, MAX_KEYS);
    this.keys.set(keyHash, { apiKeyId, untilMs: this.now() + REMEMBERED_MS });
    this.hashes.set(apiKeyId, keyHash);
  }

  /** It was revoked, has expired, or is remembered anew. */
  forget(apiKeyId: string): void {
    const keyHash = this.hashes.get(apiKeyId);
    this.hashes.delete(apiKeyId);
    if (keyHash !== undefined) this.keys.delete(keyHash);
  }
}
