/** An address that guesses keys: its look-ups wait, and those of others do not. PostgreSQL is a table in memory that can be held up. */
import { beforeEach, describe, expect, it } from 'vitest';
import type { Database } from '../database/database.js';
import { hashOf } from './api-keys.js';
import { Authentication } from './authentication.js';
import type { Revocations } from './revocations.js';
import { RightKeys } from './right-keys.js';

const ADDRESS = '192.0.2.7';
const KEYS: Readonly<Record<string, string>> = { 'used-key': 'a', 'unused-key': 'b' };
const textOf = (hash: Uint8Array) => Buffer.from(hash).toString('hex');
const ROWS = new Map(
  Object.entries(KEYS).map(([key, id]) => [
    textOf(hashOf(key)),
    { id, teamId: 'team', isAdmin: false, isReadOnly: false, expiresAt: null, revokedAt: null },
  ]),
);

let authentication: Authentication;
let revoke: (apiKeyId: string) => void;
/** Look-ups of keys that are not known wait for this. */
let held: Promise<void>;
let release: () => void;
const ask = (key: string) =>
  authentication.viewerOf(`Bearer ${key}`, ADDRESS).then(
    ({ apiKeyId }) => apiKeyId,
    (fault: { code: string }) => fault.code,
  );

beforeEach(async () => {
  held = Promise.resolve();
  const apiKey = {
    updateMany: async () => ({ count: 1 }),
  };
  const rows = async (_name: string, _text: string, [hash]: readonly Uint8Array[]) => {
    const row = ROWS.get(textOf(hash!));
    if (!row) await held;
    return row ? [row] : [];
  };
  const revocations: Pick<Revocations, 'listen'> = { listen: (listener) => (revoke = listener) };
  authentication = new Authentication({ apiKey, rows } as unknown as Database, revocations as Revocations);
  expect(await ask('used-key')).toBe('a');
  for (let i = 0; i < 100; i++) await ask(`guess ${i}`);
  held = new Promise((resolve) => (release = resolve));
});

describe('behind an address that guesses, with the line of guesses full', () => {
  it('a key that was right passes, until it is revoked; one that nobody has seen waits like any guess', async () => {
    const guesses = Array.from({ length: 66 }, (_, i) => ask(`another guess ${i}`));
    expect(await ask('unused-key')).toBe('TOO_MANY_ATTEMPTS');
    expect(await ask('used-key')).toBe('a');
    revoke('a');
    expect(await ask('used-key')).toBe('TOO_MANY_ATTEMPTS');
    release();
    expect(new Set(await Promise.all(guesses))).toEqual(new Set(['TOO_MANY_ATTEMPTS']));
    // With room in the line again it is looked up, and PostgreSQL decides.
    expect([await ask('unused-key'), await ask('used-key')]).toEqual(['b', 'a']);
  });
});

describe('what is remembered', () => {
  it('ends by itself, and is bounded', () => {
    let now = 0;
    const keys = new RightKeys(() => now);
    keys.remember('hash', 'id');
    expect(keys.wasRight('hash')).toBe(true);
    now = 11 * 60_000;
    expect(keys.wasRight('hash')).toBe(false);
    for (let i = 0; i < 25_000; i++) keys.remember(`hash ${i}`, `id ${i}`);
    expect(keys.size).toBe(10_000);
    expect([keys.wasRight('hash 24999'), keys.wasRight('hash 14999')]).toEqual([true, false]);
  });

  it('a hash is forgotten with its key, and remembered once', () => {
    const keys = new RightKeys();
    for (let i = 0; i < 3; i++) keys.remember('hash', 'id');
    expect(keys.size).toBe(1);
    keys.forget('id');
    keys.forget('id');
    expect([keys.size, keys.wasRight('hash')]).toEqual([0, false]);
  });
});
