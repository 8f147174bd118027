import { expect, it } from 'vitest';
import { BadKeyLimiter } from './bad-key-limiter.js';

it('stops an address after a hundred wrong keys in a minute, for the rest of that minute', () => {
  let now = 0;
  const limiter = new BadKeyLimiter(() => now);
  for (let i = 0; i < 99; i++) limiter.failed('a', `key ${i}`);
  expect(limiter.retryAfterSeconds('a')).toBe(0);
  limiter.failed('a', 'key 99');
  expect(limiter.retryAfterSeconds('a')).toBe(60);
  expect(limiter.retryAfterSeconds('b')).toBe(0);
  now = 59_500;
  expect(limiter.retryAfterSeconds('a')).toBe(1);
  now = 60_000;
  expect(limiter.retryAfterSeconds('a')).toBe(0);
});

it('remembers for a minute which keys were wrong, and nothing of the others', () => {
  let now = 0;
  const limiter = new BadKeyLimiter(() => now);
  limiter.failed('a', 'bad');
  expect([limiter.wasWrong('bad'), limiter.wasWrong('good')]).toEqual([true, false]);
  now = 60_000;
  expect(limiter.wasWrong('bad')).toBe(false);
});

it('holds a bounded number of addresses and keys', () => {
  const limiter = new BadKeyLimiter(() => 0);
  for (let i = 0; i < 25_000; i++) limiter.failed(`address ${i}`, `key ${i}`);
  expect(limiter['failures'].size).toBeLessThanOrEqual(10_000);
  expect(limiter['wrong'].size).toBeLessThanOrEqual(10_000);
});
