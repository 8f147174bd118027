import { describe, expect, it } from 'vitest';
import {
  CAP_FACTOR,
  chargeRestart,
  excuseRestart,
  LONGEST_PAUSE_MS,
  NO_RESTARTS,
  restartPauseMs,
  restartsLeft,
  type RestartCount,
} from './restarts.js';

describe('the budget', () => {
  it.each<[string, RestartCount, number, number, boolean, RestartCount]>([
    ['a first failure', NO_RESTARTS, 3, 0, true, { used: 1, total: 1, bestRound: 0 }],
    ['no restarts at all', NO_RESTARTS, 0, 50, false, { used: 0, total: 0, bestRound: 50 }],
    ['the last one', { used: 2, total: 2, bestRound: 9 }, 3, 9, true, { used: 3, total: 3, bestRound: 9 }],
    ['spent', { used: 3, total: 3, bestRound: 9 }, 3, 9, false, { used: 3, total: 3, bestRound: 9 }],
    ['refilled by one round of progress', { used: 3, total: 3, bestRound: 9 }, 3, 10, true, { used: 1, total: 4, bestRound: 10 }],
    ['not refilled by what was reached before', { used: 3, total: 3, bestRound: 9 }, 3, 4, false, { used: 3, total: 3, bestRound: 9 }],
    ['the cap, with progress', { used: 1, total: 30, bestRound: 9 }, 3, 90, false, { used: 0, total: 30, bestRound: 90 }],
  ])('%s', (_, count, budget, committed, isGranted, after) => {
    expect(chargeRestart(count, budget, committed)).toEqual({ isGranted, count: after });
  });

  it('ends for every run, however much progress each attempt makes', () => {
    let count = NO_RESTARTS;
    let attempts = 0;
    for (let round = 1; ; round++) {
      const charge = chargeRestart(count, 5, round);
      count = charge.count;
      if (!charge.isGranted) break;
      attempts++;
    }
    expect(attempts).toBe(5 * CAP_FACTOR);
    expect(restartsLeft(count, 5)).toBe(0);
  });
});

it('what several runs lost together is charged to none, and comes to an end all the same', () => {
  const spent = { used: 3, total: 3, bestRound: 9 };
  expect(excuseRestart(spent, 3, 9)).toEqual({ isGranted: true, count: { used: 3, total: 4, bestRound: 9 } });
  expect(excuseRestart(spent, 3, 12)).toEqual({ isGranted: true, count: { used: 0, total: 4, bestRound: 12 } });
  let charge = excuseRestart(NO_RESTARTS, 5, 0);
  let attempts = 0;
  for (; charge.isGranted; charge = excuseRestart(charge.count, 5, 0)) attempts++;
  expect(attempts).toBe(5 * CAP_FACTOR);
});

it('a run without restarts outlives what a neighbour caused, and ends at the first loss of its own', () => {
  expect(chargeRestart(NO_RESTARTS, 0, 5).isGranted).toBe(false);
  let count = NO_RESTARTS;
  let attempts = 0;
  for (let charge = excuseRestart(count, 0, 0); charge.isGranted; charge = excuseRestart(count, 0, 0), attempts++) count = charge.count;
  expect([attempts, restartsLeft(count, 0), chargeRestart(count, 0, 0).isGranted]).toEqual([CAP_FACTOR, 0, false]);
});

it('pauses double, lie in their upper half and end at the longest', () => {
  expect([1, 2, 3, 4].map((used) => restartPauseMs(used, () => 0))).toEqual([100, 200, 400, 800]);
  expect([1, 2, 3, 4].map((used) => restartPauseMs(used, () => 0.999_999))).toEqual([200, 400, 800, 1600]);
  expect(restartPauseMs(1000, () => 0.999_999)).toBe(LONGEST_PAUSE_MS);
});
