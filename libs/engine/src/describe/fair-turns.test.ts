import { expect, test } from 'vitest';
import { FairTurns, QueueFullError, WaitOverError } from './fair-turns.js';

/** Work that ends when it is told to, in the order in which it began. */
function bench(turns: FairTurns) {
  const began: string[] = [];
  const ends: (() => void)[] = [];
  const ask = (group: string, name: string, waitMs = 10_000) =>
    turns.take(group, waitMs, () => {
      began.push(name);
      return new Promise<void>((resolve) => ends.push(resolve));
    });
  const endOldest = async (): Promise<void> => {
    ends.shift()!();
    await new Promise((resolve) => setImmediate(resolve));
  };
  return { began, ask, endOldest };
}

test('a group with many requests waits behind its own, not in front of others', async () => {
  const { began, ask, endOldest } = bench(new FairTurns(1, 10, 20));
  const all = ['a1', 'a2', 'a3', 'a4', 'b1', 'c1', 'b2'].map((name) => ask(name[0]!, name));
  for (let i = 0; i < all.length; i++) await endOldest();
  await Promise.all(all);
  expect(began).toEqual(['a1', 'a2', 'b1', 'c1', 'a3', 'b2', 'a4']);
});

test('a queue that is full refuses at once, by group and over all', async () => {
  const turns = new FairTurns(1, 2, 3);
  const { ask, endOldest } = bench(turns);
  const all = [ask('a', '1'), ask('a', '2'), ask('a', '3')];
  await expect(ask('a', '4')).rejects.toBeInstanceOf(QueueFullError);
  all.push(ask('b', '5'));
  await expect(ask('c', '6')).rejects.toBeInstanceOf(QueueFullError);
  for (let i = 0; i < all.length; i++) await endOldest();
  await Promise.all(all);
  expect(turns.waitingCount).toBe(0);
});

test('who has waited too long is out of the queue, and the place goes to the next', async () => {
  const { began, ask, endOldest } = bench(new FairTurns(1, 10, 20));
  const first = ask('a', 'first');
  await expect(ask('a', 'late', 1)).rejects.toBeInstanceOf(WaitOverError);
  const next = ask('b', 'next');
  await endOldest();
  await endOldest();
  await Promise.all([first, next]);
  expect(began).toEqual(['first', 'next']);
});

test('work that fails gives its place back', async () => {
  const turns = new FairTurns(1, 1, 1);
  await expect(turns.take('a', 1, () => Promise.reject(new Error('no')))).rejects.toThrow('no');
  expect(await turns.take('a', 1, () => Promise.resolve(7))).toBe(7);
});
