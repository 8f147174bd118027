import { expect, test } from 'vitest';
import { GRACE_MS, StallTolerantClock } from './stall-tolerant-clock.js';

function ticking(): { readonly paced: StallTolerantClock; tick(times?: number): boolean[]; pass(ms: number): void } {
  let nowMs = 1_000;
  const paced = new StallTolerantClock({ now: () => nowMs });
  const tick = (times = 1): boolean[] =>
    Array.from({ length: times }, () => {
      nowMs += 100;
      return paced.isDue();
    });
  return { paced, tick, pass: (ms) => void (nowMs += ms) };
}

test('time in which the process stood still counts for no deadline, and after it deadlines wait', () => {
  const { paced, tick, pass } = ticking();
  expect(tick(10)).not.toContain(false);
  const before = paced.now();
  pass(60_000);
  const grace = tick(GRACE_MS / 100);
  expect(grace).not.toContain(true);
  expect(tick(2)).toContain(true);
  expect(paced.now() - before).toBeLessThan(GRACE_MS + 500);
});

test('what comes before the first tick after a stall sees no leap either', () => {
  const { paced, tick, pass } = ticking();
  tick(10);
  const before = paced.now();
  pass(8_000);
  expect(paced.now()).toBe(before);
  expect(tick()).toEqual([false]);
});

test('time goes on under load, and nobody has waited before the first tick', () => {
  const { paced, tick, pass } = ticking();
  pass(30_000);
  expect(tick()).toEqual([true]);
  const before = paced.now();
  for (let i = 0; i < 10; i++) {
    pass(900);
    paced.now();
  }
  expect(paced.now() - before).toBe(9_000);
});
