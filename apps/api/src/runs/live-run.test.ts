import { afterEach, expect, it, vi } from 'vitest';
import type { Database } from '../database/database.js';
import { LiveRun } from './live-run.js';
import { RunHeads } from './run-heads.js';
import { RunSignals } from './run-signals.js';

afterEach(() => void vi.useRealTimers());

/** A run with so many events, in a database that counts what it is asked. */
function runWith(events: number) {
  const state = { status: 'PAUSED', events, looks: 0, reads: 0, isBroken: false };
  const database = {
    rows: async () => {
      state.looks++;
      if (state.isBroken) throw new Error('a fault');
      return [{ status: state.status, attempt: 1, eventSeq: state.events, metricSeq: 0 }];
    },
    runEvent: {
      findMany: async ({ where }: { where: { seq: { gt: number } } }) => {
        state.reads++;
        return Array.from({ length: state.events - where.seq.gt }, (_, i) => ({ seq: where.seq.gt + 1 + i }));
      },
    },
  } as unknown as Database;
  const signals = new RunSignals();
  return { state, signals, live: new LiveRun(database, new RunHeads(database, signals)) };
}

const WATCHERS = 100;

it('many who watch a run cost one look at it, and one read of what is new', async () => {
  vi.useFakeTimers();
  const { state, signals, live } = runWith(3);
  const seen = Array.from({ length: WATCHERS }, (): number[] => []);
  const all = seen.map(async (own) => {
    for await (const { seq } of live.events('run', 0, new AbortController().signal)) own.push(seq);
  });
  await vi.advanceTimersByTimeAsync(0);
  expect(seen).toEqual(seen.map(() => [1, 2, 3]));
  expect(state.reads).toBe(1);
  expect(state.looks).toBeLessThanOrEqual(2);

  // Nothing happens for ten seconds.
  state.looks = 0;
  await vi.advanceTimersByTimeAsync(10_000);
  expect(state.looks).toBe(10);
  expect(state.reads).toBe(1);

  state.events = 4;
  signals.changed('run');
  await vi.advanceTimersByTimeAsync(0);
  expect(seen).toEqual(seen.map(() => [1, 2, 3, 4]));
  expect([state.looks, state.reads]).toEqual([11, 2]);

  // They end with the run, and nobody looks at it any more.
  Object.assign(state, { events: 5, status: 'SUCCEEDED' });
  await vi.advanceTimersByTimeAsync(1_000);
  await Promise.all(all);
  expect(seen).toEqual(seen.map(() => [1, 2, 3, 4, 5]));
  expect(signals.watchCount).toBe(0);
});

it('who comes later sees what is there by then, and those who go leave the others alone', async () => {
  vi.useFakeTimers();
  const { state, signals, live } = runWith(1);
  const [one, other] = [new AbortController(), new AbortController()];
  const seen: string[] = [];
  const watch = async (name: string, { signal }: AbortController): Promise<void> => {
    for await (const { seq } of live.events('run', 0, signal)) seen.push(`${name}${seq}`);
  };
  const first = watch('a', one);
  await vi.advanceTimersByTimeAsync(100);
  state.events = 2; // another api has stored it
  const second = watch('b', other);
  await vi.advanceTimersByTimeAsync(0);
  expect([...seen].sort()).toEqual(['a1', 'a2', 'b1', 'b2']);
  one.abort();
  await first;
  state.events = 3;
  await vi.advanceTimersByTimeAsync(1_000);
  expect(seen.at(-1)).toBe('b3');
  other.abort();
  await second;
  await vi.advanceTimersByTimeAsync(0);
  expect(signals.watchCount).toBe(0);
});

it('a fault ends those who watch, and not who comes after them', async () => {
  const { state, live } = runWith(1);
  state.isBroken = true;
  const { signal } = new AbortController();
  await expect(live.events('run', 0, signal).next()).rejects.toThrow('a fault');
  state.isBroken = false;
  expect((await live.events('run', 0, signal).next()).value).toMatchObject({ seq: 1 });
});
