import { expect, test } from 'vitest';
import { Admission } from './admission.js';

/** What is inside is ended by hand; the wait of those outside ends with `expire`. */
function setUp() {
  const waits = new Set<() => void>();
  const entered: string[] = [];
  const ends = new Map<string, () => void>();
  const admission = new Admission({ atOnce: 2, waiting: 4, waitingOfTeam: 3, waitMs: 1000 }, (_ms, act) => {
    waits.add(act);
    return () => waits.delete(act);
  });
  const create = (teamId: string, name: string): Promise<void> =>
    admission.run(teamId, () => {
      entered.push(name);
      return new Promise((resolve) => ends.set(name, resolve));
    });
  const settle = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
  const end = (name: string): Promise<void> => {
    ends.get(name)!();
    return settle();
  };
  return { create, end, settle, entered, expire: () => [...waits].forEach((act) => act()) };
}

test('so many runs are created at once; the next is of the team that has fewest inside', async () => {
  const { create, end, settle, entered } = setUp();
  const made = [create('b', 'b1'), create('b', 'b2'), create('b', 'b3'), create('b', 'b4'), create('a', 'a1')];
  await settle();
  expect(entered).toEqual(['b1', 'b2']);
  await end('b1');
  expect(entered).toEqual(['b1', 'b2', 'a1']);
  for (const name of ['b2', 'a1', 'b3', 'b4']) await end(name);
  await Promise.all(made);
  expect(entered).toEqual(['b1', 'b2', 'a1', 'b3', 'b4']);
});

test('more than may wait, and those that wait too long, are told to come back before anything was done', async () => {
  const { create, end, settle, entered, expire } = setUp();
  const made = [create('b', 'b1'), create('b', 'b2')];
  const waiting = [create('b', 'b3'), create('b', 'b4'), create('b', 'b5')];
  const refusal = { code: 'TOO_BUSY', retryAfterSeconds: 2 };
  await expect(create('b', 'b6')).rejects.toMatchObject(refusal); // of its team
  const other = create('a', 'a1');
  await expect(create('c', 'c1')).rejects.toMatchObject(refusal); // of all
  expire();
  for (const each of [...waiting, other]) await expect(each).rejects.toMatchObject(refusal);
  for (const name of ['b1', 'b2']) await end(name);
  await Promise.all(made);
  expect(entered).toEqual(['b1', 'b2']);
  void create('a', 'a2');
  await settle();
  expect(entered).toEqual(['b1', 'b2', 'a2']);
});
