import { expect, it } from 'vitest';
import { Buckets, RateLimits } from './rate-limits.js';

const viewer = (apiKeyId: string, teamId = 'team') => ({ apiKeyId, teamId, isAdmin: false, isReadOnly: false });
const settings = (requestsPerMinute: number) => ({ requestsPerMinute }) as never;

it('a bucket gives what is in it, says how long to wait, and fills again', () => {
  let now = 0;
  const buckets = new Buckets(10, 2, () => now);
  for (let i = 0; i < 10; i++) expect(buckets.take('a', 1).waitSeconds).toBe(0);
  expect(buckets.take('a', 3)).toEqual({ left: 0, waitSeconds: 2 });
  expect(buckets.take('b', 1)).toEqual({ left: 9, waitSeconds: 0 });
  now = 1_500;
  expect(buckets.take('a', 3)).toEqual({ left: 0, waitSeconds: 0 });
  now = 1_000_000;
  expect(buckets.take('a', 1_000)).toEqual({ left: 0, waitSeconds: 0 }); // more than it can hold: all of it
});

it('a key has a fifth of a minute at once, a team four times that, another team nothing less', () => {
  const limits = new RateLimits(settings(300));
  expect(limits.request(viewer('key 0'))).toEqual({ limit: 60, remaining: 59, resetSeconds: 1 });
  const taken = (id: string, team?: string): number => {
    let count = 0;
    try {
      for (; count < 1_000; count++) limits.request(viewer(id, team));
    } catch (error) {
      expect(error).toMatchObject({ code: 'RATE_LIMITED', retryAfterSeconds: 1 });
    }
    return count;
  };
  expect([1, 2, 3, 4].map((n) => taken(`key ${n}`))).toEqual([60, 60, 60, 59]);
  expect(taken('key 5')).toBeLessThanOrEqual(1);
  expect(taken('key 6', 'another team')).toBe(60);
  expect(new RateLimits(settings(0)).request(viewer('any'))).toBeUndefined();
});

it('new GraphQL text is counted by its length, up to the limit of tokens', () => {
  const limits = new RateLimits(settings(0));
  for (let i = 0; i < 5; i++) limits.text(viewer('key'), 'x'.repeat(1_000_000), 2_000);
  expect(() => limits.text(viewer('key'), 'x'.repeat(8_000), 2_000)).toThrow(/same text with other variables/);
  limits.text(viewer('other key'), '{ viewer { isAdmin } }', 2_000);
});
