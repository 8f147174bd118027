/**
 * API keys: `pcl_PREFIX_SECRET`. The prefix (48 bit) finds the row and names the key in lists; the secret has 192 random bits, so its
 * SHA-256 is all that has to be stored. A key given by an administrator at the first start may have any form.
 */
import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';

export interface NewApiKey {
  readonly key: string;
  readonly prefix: string;
  readonly hash: Uint8Array<ArrayBuffer>;
}

const FORM = /^pcl_([0-9a-f]{12})_[\w-]{32}$/;
/** Longer ones are not looked at. */
export const MAX_KEY_CHARACTERS = 200;

export function generateApiKey(): NewApiKey {
  return describeApiKey(`pcl_${randomBytes(6).toString('hex')}_${randomBytes(24).toString('base64url')}`);
}

export function describeApiKey(key: string): NewApiKey {
  const digest = createHash('sha256').update(key).digest();
  return { key, prefix: FORM.exec(key)?.[1] ?? `x${digest.toString('hex').slice(0, 11)}`, hash: new Uint8Array(digest) };
}

export function sameHash(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && timingSafeEqual(a, b);
}
