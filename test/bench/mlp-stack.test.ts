import { expect, test } from 'vitest';
import { missedBy, timesSlowOf } from '../../bench/mlp-stack.mjs';

const ROW = { cpuMsApi: 0.1, cpuMsBeside: 5 };

test('a figure that is not a number misses its bar', () => {
  expect(missedBy({ pace: 'free', ...ROW })).toBe('');
  expect(missedBy({ pace: 'free', ...ROW, cpuMsApi: 0.3 })).toBe('cpuMsApi 0.2');
  expect(missedBy({ pace: 'free', ...ROW, cpuMsBeside: Number.NaN })).toBe('cpuMsBeside 6');
  expect(missedBy({ pace: 'slow', cpuMsApi: 9, cpuMsBeside: 90 }), 'held by free rounds only').toBe('');
  for (const timesSlow of [1.2, Number.NaN]) expect(missedBy({ pace: 'quick', ...ROW, timesSlow })).toBe('timesSlow 1.1');
});

test('quick rounds that were too few are not judged', () => {
  const slow = { apiMsPerSecond: 10, postgresMsPerSecond: 10 };
  const quick = { apiMsPerSecond: 20, postgresMsPerSecond: 10 };
  expect(timesSlowOf({ roundsPerSecond: 70, ...quick }, slow)).toBe(1.5);
  for (const roundsPerSecond of [69, Number.NaN]) {
    const timesSlow = timesSlowOf({ roundsPerSecond, ...quick }, slow);
    expect([timesSlow, missedBy({ pace: 'quick', ...ROW, timesSlow })]).toEqual([null, '']);
  }
});
