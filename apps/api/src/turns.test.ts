import { expect, it } from 'vitest';
import { Turns } from './turns.js';

const refusal = () => new Error('full');

it('runs so many at once, lets so many wait in order, and refuses the rest', async () => {
  const turns = new Turns({ atOnce: 2, waiting: 2, waitMs: 10_000 }, refusal);
  const begun: number[] = [];
  const finish: (() => void)[] = [];
  const all = [0, 1, 2, 3].map((n) =>
    turns.run(() => {
      begun.push(n);
      return new Promise<number>((resolve) => finish.push(() => resolve(n)));
    }),
  );
  await expect(turns.run(() => Promise.resolve(4))).rejects.toThrow('full');
  expect(begun).toEqual([0, 1]);
  for (const n of [0, 1, 2, 3]) {
    finish[n]!();
    expect(await all[n]).toBe(n);
  }
  expect(begun).toEqual([0, 1, 2, 3]);
  expect(turns.isIdle).toBe(true);
});

it('gives the place on when the work fails, and refuses who has waited too long', async () => {
  const turns = new Turns({ atOnce: 1, waiting: 5, waitMs: 20 }, refusal);
  let finish: () => void = () => undefined;
  const first = turns.run(() => new Promise<void>((resolve) => (finish = resolve)));
  await expect(turns.run(() => Promise.resolve())).rejects.toThrow('full');
  const failing = turns.run(() => Promise.reject(new Error('broken')));
  const last = turns.run(() => Promise.resolve('through'));
  finish();
  await first;
  await expect(failing).rejects.toThrow('broken');
  expect(await last).toBe('through');
  expect(turns.isIdle).toBe(true);
});
