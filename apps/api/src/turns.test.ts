import { expect, it } from 'vitest';
import { heldTurns, Turns } from './turns.js';

const refusal = () => new Error('full');

it('runs so many at once, lets so many wait in order, and refuses the rest', async () => {
  const turns = new Turns({ atOnce: 2, waiting: 2, waitMs: 10_000 }, refusal);
  const begun: number[] = [];
  const finish: (() => void)[] = [];
  const all = [0, 1, 2, 3].map((n) =>
    turns.run('a', () => {
      begun.push(n);
      return new Promise<number>((resolve) => finish.push(() => resolve(n)));
    }),
  );
  await expect(turns.run('a', () => Promise.resolve(4))).rejects.toThrow('full');
  expect(begun).toEqual([0, 1]);
  for (const n of [0, 1, 2, 3]) {
    finish[n]!();
    expect(await all[n]).toBe(n);
  }
  expect(begun).toEqual([0, 1, 2, 3]);
});

it('gives the place on when the work fails, and refuses who has waited too long', async () => {
  const turns = new Turns({ atOnce: 1, waiting: 5, waitMs: 20 }, refusal);
  let finish: () => void = () => undefined;
  const first = turns.run('a', () => new Promise<void>((resolve) => (finish = resolve)));
  await expect(turns.run('a', () => Promise.resolve())).rejects.toThrow('full');
  const failing = turns.run('a', () => Promise.reject(new Error('broken')));
  const last = turns.run('a', () => Promise.resolve('through'));
  finish();
  await first;
  await expect(failing).rejects.toThrow('broken');
  expect(await last).toBe('through');
});

it('keeps turns of a team for the others', async () => {
  const turns = heldTurns(2, 3, 'uploads', 1);
  let release!: () => void;
  const held = new Promise<void>((resolve) => (release = resolve));
  const both = [1, 2].map(() => turns.run('a', () => held));
  await expect(turns.run('a', () => Promise.resolve(1))).rejects.toThrow(/at most 2 at once/);
  await expect(turns.run('b', () => Promise.resolve(1))).resolves.toBe(1);
  release();
  await Promise.all(both);
  await expect(turns.run('a', () => Promise.resolve(1))).resolves.toBe(1);
});

it('serves the teams in turn, and past one that has no room', async () => {
  const turns = new Turns({ atOnce: 2, atOnceOfTeam: 1, waiting: 9, waitMs: 10_000 }, refusal);
  const begun: string[] = [];
  const finish = new Map<string, () => void>();
  const run = (name: string): Promise<void> =>
    turns.run(name[0]!, () => {
      begun.push(name);
      return new Promise<void>((resolve) => finish.set(name, resolve));
    });
  const all = ['a1', 'a2', 'a3', 'b1', 'b2', 'c1'].map(run);
  for (const name of ['b1', 'a1', 'b2', 'c1', 'a2', 'a3']) {
    await expect.poll(() => begun).toContain(name);
    finish.get(name)!();
  }
  await Promise.all(all);
  expect(begun).toEqual(['a1', 'b1', 'b2', 'a2', 'c1', 'a3']);
});
