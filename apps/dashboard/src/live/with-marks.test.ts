import { expect, it } from 'vitest';
import { withMarks } from './with-marks.js';

it('loads a list only when a mark of it has changed, and misses no change that comes while it loads', async () => {
  let state = { round: 1 };
  let changes: (() => void) | undefined;
  let loads = 0;
  const poll = withMarks(
    async () => ({ ...state }),
    async () => {
      loads++;
      const seen = { ...state };
      changes?.();
      return seen;
    },
  );
  const { signal } = new AbortController();
  const first = await poll(signal);
  expect([first, await poll(signal), loads]).toEqual([{ round: 1 }, { round: 1 }, 1]);
  expect(await poll(signal)).toBe(first);
  changes = () => {
    state = { round: 3 };
    changes = undefined;
  };
  state = { round: 2 };
  expect([await poll(signal), await poll(signal), loads]).toEqual([{ round: 2 }, { round: 3 }, 3]);
});

it('asks again after a list that could not be loaded', async () => {
  let fails = true;
  const poll = withMarks(
    async () => 'same',
    async () => {
      if (fails) throw new Error('away');
      return 'list';
    },
  );
  const { signal } = new AbortController();
  await expect(poll(signal)).rejects.toThrow('away');
  fails = false;
  expect(await poll(signal)).toBe('list');
});
