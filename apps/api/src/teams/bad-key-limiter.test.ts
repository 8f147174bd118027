import { expect, it } from 'vitest';
import { BadKeyLimiter } from './bad-key-limiter.js';

it('stops an address after a hundred wrong keys in a minute, for the rest of that minute', () => {
  let now = 0;
  const limiter = new BadKeyLimiter(() => now);
  for (let i = 0; i < 99; i++) limiter.failed('a');
  expect(limiter.retryAfterSeconds('a', 'key')).toBe(0);
  limiter.failed('a');
  expect(limiter.retryAfterSeconds('a', 'key')).toBe(60);
  expect(limiter.retryAfterSeconds('b', 'key')).toBe(0);
  now = 59_500;
  expect(limiter.retryAfterSeconds('a', 'key')).toBe(1);
  now = 60_000;
  expect(limiter.retryAfterSeconds('a', 'key')).toBe(0);
});

it('lets keys pass that were right a moment ago, until they are revoked or forgotten', () => {
  let now = 0;
  const limiter = new BadKeyLimiter(() => now);
  limiter.succeeded('good');
  for (let i = 0; i < 100; i++) limiter.failed('a');
  expect(limiter.retryAfterSeconds('a', 'good')).toBe(0);
  expect(limiter.retryAfterSeconds('a', 'bad')).toBeGreaterThan(0);
  now = 700_000;
  for (let i = 0; i < 100; i++) limiter.failed('a');
  expect(limiter.retryAfterSeconds('a', 'good')).toBeGreaterThan(0);
});

it('holds a bounded number of addresses and keys', () => {
  const limiter = new BadKeyLimiter(() => 0);
  for (let i = 0; i < 25_000; i++) {
    limiter.failed(`address ${i}`);
    limiter.succeeded(`key ${i}`);
  }
  expect(limiter['failures'].size).toBeLessThanOrEqual(10_000);
  expect(limiter['known'].size).toBeLessThanOrEqual(10_000);
});
