import { expect, test } from 'vitest';
import { RunTraffic } from './run-traffic.js';

const counts = (bytes: number) => ({
  toServersBytes: bytes,
  toWorkersBytes: 2 * bytes,
  denseToServersBytes: 4 * bytes,
  denseToWorkersBytes: 2 * bytes,
});

test('adds up what workers have counted, each in all of its seats', () => {
  const traffic = new RunTraffic();
  traffic.heard('a', counts(10));
  traffic.heard('b', counts(100));
  traffic.heard('a', counts(30));
  traffic.heard('a', counts(5)); // another seat
  const { workers, ...sum } = traffic.report();
  expect(sum).toEqual(counts(135));
  expect(workers).toEqual([
    { workerId: 'b', ...counts(100) },
    { workerId: 'a', ...counts(35) },
  ]);
});

test('of many workers the sum stays whole, and the newest are told', () => {
  const traffic = new RunTraffic();
  traffic.heard('stays', counts(1));
  for (let i = 0; i < 3000; i++) {
    traffic.heard(`worker-${i}`, counts(1));
    traffic.heard('stays', counts(1));
  }
  const { workers, toServersBytes } = traffic.report();
  expect([workers.length, toServersBytes]).toEqual([256, 3001]);
  expect(workers.at(-1)!.workerId).toBe('stays');
});
