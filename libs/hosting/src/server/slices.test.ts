/** The event loop of a server beside long work. */
import { expect, test } from 'vitest';
import { callInSlices } from './slices.js';

const STEP_MS = 3;
const SLICE_MS = 8;

function longWork(steps: number) {
  let now = 0;
  let left = steps;
  const later: (() => void)[] = [];
  const clock = {
    now: () => now,
    after: (_ms: number, act: () => void) => {
      later.push(act);
      return () => undefined;
    },
  };
  const next = (): boolean => {
    now += STEP_MS;
    return --left > 0;
  };
  return { clock, later, next, left: () => left, now: () => now };
}

test('work keeps the event loop for a slice and one step at most, and begins at once', () => {
  const { clock, later, next, left, now } = longWork(20);
  const slicesMs: number[] = [];
  const timed = (act: () => void): void => {
    const sinceMs = now();
    act();
    slicesMs.push(now() - sinceMs);
  };
  timed(() => callInSlices(next, { clock, sliceMs: SLICE_MS }, timed));
  expect(left()).toBeLessThan(20);
  while (later.length > 0) later.shift()!();
  expect(left()).toBe(0);
  expect(slicesMs.length).toBeGreaterThan(5);
  expect(Math.max(...slicesMs)).toBeLessThan(SLICE_MS + STEP_MS);
});

test('short work is done in one go', () => {
  const { clock, later, next, left } = longWork(2);
  callInSlices(next, { clock, sliceMs: SLICE_MS }, (act) => act());
  expect([left(), later.length]).toEqual([0, 0]);
});
