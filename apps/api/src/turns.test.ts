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

/** Turns whose work is ended by hand; the first letter of a name is the team. */
function byHand(turns: Turns) {
  const begun: string[] = [];
  const ends = new Map<string, () => void>();
  const run = (name: string): Promise<void> =>
    turns.run(name[0]!, () => {
      begun.push(name);
      return new Promise<void>((resolve) => ends.set(name, resolve));
    });
  const end = async (...names: string[]): Promise<void> => {
    for (const name of names) {
      ends.get(name)!();
      await new Promise((resolve) => setImmediate(resolve));
    }
  };
  return { begun, run, end };
}

it('passes a team that has no room', async () => {
  const { begun, run, end } = byHand(new Turns({ atOnce: 2, atOnceOfTeam: 1, waiting: 9, waitMs: 10_000 }, refusal));
  const all = ['a1', 'a2', 'a3', 'b1', 'b2', 'c1'].map(run);
  await end('b1', 'a1', 'b2', 'c1', 'a2', 'a3');
  await Promise.all(all);
  expect(begun).toEqual(['a1', 'b1', 'b2', 'a2', 'c1', 'a3']);
});

it('serves the team that has fewest next', async () => {
  const { begun, run, end } = byHand(new Turns({ atOnce: 2, waiting: 4, waitMs: 10_000 }, refusal));
  const all = ['b1', 'b2', 'b3', 'b4', 'a1'].map(run);
  await end('b1', 'b2', 'a1', 'b3', 'b4');
  await Promise.all(all);
  expect(begun).toEqual(['b1', 'b2', 'a1', 'b3', 'b4']);
});

it('lets so many of a team wait, so that others find a place', async () => {
  const { begun, run, end } = byHand(new Turns({ atOnce: 1, waiting: 3, waitingOfTeam: 2, waitMs: 10_000 }, refusal));
  const all = ['b1', 'b2', 'b3'].map(run);
  await expect(run('b4')).rejects.toThrow('full');
  all.push(run('a1'));
  await expect(run('c1')).rejects.toThrow('full');
  await end('b1', 'b2', 'a1', 'b3');
  await Promise.all(all);
  expect(begun).toEqual(['b1', 'b2', 'a1', 'b3']);
});
