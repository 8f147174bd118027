import { expect, test } from 'vitest';
import type { TracedProcess } from '../contract/traces.js';
import { chromeTrace } from './chrome-trace.js';

const RUN = '0f2f1d3c-8c5b-4f7e-9a53-0c9f4d1b2a3e';
const NAMES = ['round', 'compute'];

/** Rounds of 100 µs from `first` on, each with 60 µs of computing; its clock shows `startUs` when the wall clock shows `wallStartUs`. */
function process(id: string, host: string, first: number, count: number, clock: { startUs: number; wallStartUs: number }): TracedProcess {
  const spans = Array.from({ length: count }, (_, i): [number, number, number, number, number][] => [
    [0, 1, i * 100, 100, first + i],
    [1, 0, i * 100 + 20, 60, first + i],
  ]).flat();
  const threads = [{ thread: 'main', tracks: ['main', 'rounds'], spans, lost: 0, ...clock }];
  return { kind: 'traced', runId: RUN, attempt: 1, traceId: RUN, role: 'worker', id, host, pid: 7, names: NAMES, threads };
}

test('processes of one host lie by its clock, those of another by the wall clock', () => {
  const trace = chromeTrace(
    [
      process('a', 'here', 5, 4, { startUs: 1_000, wallStartUs: 900_000 }),
      process('b', 'here', 6, 4, { startUs: 1_110, wallStartUs: 888_888 }), // its wall clock was read later: not believed
      process('c', 'there', 5, 4, { startUs: 50, wallStartUs: 900_020 }),
    ],
    2,
  )!;
  expect(trace.otherData).toMatchObject({ fromRound: 7, toRound: 8, processes: 3, isWhole: true });
  const starts = [1, 2, 3].map((pid) => trace.traceEvents.find((event) => event.pid === pid && event.name === 'round 7')!.ts);
  expect(starts).toEqual([0, 10, 20]);
  expect(trace.traceEvents.every(({ ts, dur = 0 }) => ts >= 0 && ts + dur <= 220)).toBe(true);
});

test('without a round that all have seen whole there is no trace', () => {
  const clock = { startUs: 0, wallStartUs: 0 };
  expect(chromeTrace([process('a', 'here', 0, 3, clock), process('b', 'here', 3, 3, clock)], 3)).toBeUndefined();
  expect(chromeTrace([], 3)).toBeUndefined();
});

test('a trace says when spans of its rounds were lost', () => {
  const whole = process('a', 'here', 0, 4, { startUs: 0, wallStartUs: 0 });
  const cut = { ...whole, threads: whole.threads.map((thread) => ({ ...thread, lost: 1, spans: thread.spans.filter((_, i) => i !== 1) })) };
  expect(chromeTrace([cut], 2)?.otherData).toMatchObject({ fromRound: 2, isWhole: true });
  expect(chromeTrace([cut], 4)?.otherData).toMatchObject({ fromRound: 0, isWhole: false });
});
