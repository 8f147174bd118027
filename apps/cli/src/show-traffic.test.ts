import { expect, test } from 'vitest';
import { printLostResiduals, printTraffic, trafficText } from './show-traffic.js';

const counts = {
  toServersBytes: 2 ** 20,
  toWorkersBytes: 3 * 2 ** 20,
  denseToServersBytes: 74 * 2 ** 20,
  denseToWorkersBytes: 3 * 2 ** 20,
};

test('bytes both ways, and how many times fewer than without a codec where there is one', () => {
  expect(trafficText(counts)).toBe('1.0 MiB (74x fewer) to servers, 3.0 MiB to workers');
  expect(trafficText({ ...counts, denseToWorkersBytes: 12 * 2 ** 20 })).toContain('3.0 MiB (4.0x fewer) to workers');
});

test('a line for each of several workers, and nothing before anything was sent', () => {
  const lines: string[] = [];
  const line = (name: string, value: string): void => void lines.push(`${name} ${value}`);
  printTraffic(null, line);
  printTraffic({ ...counts, toServersBytes: 0, workers: [] }, line);
  expect(lines).toEqual([]);
  printTraffic({ ...counts, workers: ['a', 'b'].map((workerId) => Object.assign({ workerId }, counts)) }, line);
  expect(lines.map((text) => text.slice(0, 20))).toEqual(['network 1.0 MiB (74x', ' a: 1.0 MiB (74x few', ' b: 1.0 MiB (74x few']);
});

test('what is lost, of what, why, and what that means', () => {
  const lines: string[] = [];
  const line = (name: string, value: string): void => void lines.push(`${name}: ${value}`);
  printLostResiduals(null, line);
  printLostResiduals({ replicas: 7, causes: ['moved', 'gap'], fromRound: 12 }, line);
  printLostResiduals({ replicas: 1, causes: ['checkpoint'], fromRound: 40 }, line);
  expect(lines).toEqual([
    'residuals: 7 residuals of replicas are lost (moved, gap): from round 12 on the bits are not those of an undisturbed run',
    'residuals: 1 residual of a replica is lost (checkpoint): from round 40 on the bits are not those of an undisturbed run',
  ]);
});
