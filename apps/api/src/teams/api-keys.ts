/**
 * API keys: `pcl_PREFIX_SECRET`. The prefix (48 bit) names the key in lists; the secret has 192 random bits, so the SHA-256 of the whole key is
 * all that has to be stored, and finds its row. A key given by an administrator at the first start may have any form. It may be easier to
 * guess, so the prefix shown for it is random and says nothing about it.
 */
import { createHash, randomBytes } from 'node:crypto';

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
  return { key, prefix: FORM.exec(key)?.[1] ?? `x${randomBytes(6).toString('hex').slice(0, 11)}`, hash: hashOf(key) };
}

export function hashOf(key: string): Uint8Array<ArrayBuffer> {
  return new Uint8Array(createHash('sha256').update(key).digest());
}
