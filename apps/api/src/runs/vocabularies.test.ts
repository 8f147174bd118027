import type { Features } from '@paceline/spec';
import { expect, it } from 'vitest';
import { Vocabularies } from './vocabularies.js';

const LIMITS = { atOnce: 1, waiting: 3, waitingOfTeam: 2, waitMs: 60_000 };
const learned = (column: string): Features => ({ weightColumn: column });
const request = (teamId: string, column = 'a') => ({ teamId, version: 'f'.repeat(64), features: learned(column) });

/** Work that ends when the test says so, and the order in which it began. */
function works() {
  const began: string[] = [];
  const ends = new Map<string, () => void>();
  const make = (name: string) => () => {
    began.push(name);
    return new Promise<Features>((resolve) => ends.set(name, () => resolve(learned(name))));
  };
  const end = async (name: string): Promise<void> => {
    ends.get(name)!();
    for (let i = 0; i < 10; i++) await Promise.resolve();
  };
  return { began, make, end };
}

it('one at a time; teams take turns, whoever of them came first', async () => {
  const { began, make, end } = works();
  const vocabularies = new Vocabularies(LIMITS);
  const all = [
    ['one', 'a'],
    ['one', 'b'],
    ['one', 'c'],
    ['two', 'd'],
  ].map(([team, name]) => vocabularies.of(request(team!, name), make(name!)));
  expect(began).toEqual(['a']);
  await end('a');
  await end('b');
  expect(began).toEqual(['a', 'b', 'd']);
  await end('d');
  await end('c');
  expect((await Promise.all(all)).map((features) => features!.weightColumn)).toEqual(['a', 'b', 'c', 'd']);
});

it('a team that waits too often, and too many that wait, are told to come back', async () => {
  const { make, end } = works();
  const vocabularies = new Vocabularies(LIMITS);
  const ask = (team: string, name: string) => vocabularies.of(request(team, name), make(name));
  const served = ['a', 'b', 'c'].map((name) => ask('one', name));
  await expect(ask('one', 'd')).rejects.toMatchObject({ code: 'TOO_BUSY' });
  served.push(ask('two', 'e'));
  await expect(ask('three', 'f')).rejects.toMatchObject({ code: 'TOO_BUSY' });
  // Calls that still wait are refused after a minute. Nobody would catch that: it would fail the test that runs then.
  for (const name of ['a', 'b', 'e', 'c']) await end(name);
  await Promise.all(served);
});

it('what was made is kept: of the team, the version and the features', async () => {
  const vocabularies = new Vocabularies(LIMITS);
  let made = 0;
  const make = () => Promise.resolve(learned(`made-${++made}`));
  const found = await Promise.all([request('one'), request('one')].map((each) => vocabularies.of(each, make)));
  expect(found).toEqual([learned('made-1'), learned('made-1')]);
  expect(await vocabularies.of(request('two'), make)).toEqual(learned('made-2'));
  expect(await vocabularies.of(request('one', 'b'), make)).toEqual(learned('made-3'));
  expect(await vocabularies.of(request('one'), make)).toEqual(learned('made-1'));
  for (let i = 0; i < 16; i++) await vocabularies.of(request('one', `c${i}`), make);
  const before = made;
  await vocabularies.of(request('one'), make);
  expect(made).toBe(before + 1);
});

it('a failure is not kept', async () => {
  const vocabularies = new Vocabularies(LIMITS);
  await expect(vocabularies.of(request('one'), () => Promise.reject(new Error('gone')))).rejects.toThrow('gone');
  expect(await vocabularies.of(request('one'), () => Promise.resolve(learned('a')))).toEqual(learned('a'));
});
