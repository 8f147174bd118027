import { expect, it } from 'vitest';
import { Batch } from './batch.js';

const sameKey = { ofKey: String, ofRow: ([key]: readonly [number, string]) => String(key) };

it('asks once for what is asked at the same time, in groups of a hundred, and gives everyone their rows in order', async () => {
  const asked: number[][] = [];
  const batch = new Batch<number, readonly [number, string]>(async (keys) => {
    asked.push([...keys]);
    return keys.filter((key) => key !== 7).flatMap((key) => [[key, 'a'] as const, [key, 'b'] as const]);
  }, sameKey);
  const rows = await Promise.all([...Array.from({ length: 150 }, (_, i) => batch.load(i)), batch.load(3)]);
  expect(asked.map((keys) => keys.length)).toEqual([100, 51]);
  expect([rows[0], rows[7], rows[149], rows[150]]).toEqual([
    [
      [0, 'a'],
      [0, 'b'],
    ],
    [],
    [
      [149, 'a'],
      [149, 'b'],
    ],
    [
      [3, 'a'],
      [3, 'b'],
    ],
  ]);
  await batch.load(3);
  expect(asked).toHaveLength(3);
});

it('fails for all who asked, and works again afterwards', async () => {
  let isAway = true;
  const batch = new Batch<number, readonly [number, string]>(
    (keys) => (isAway ? Promise.reject(new Error('away')) : Promise.resolve(keys.map((key) => [key, 'x'] as const))),
    sameKey,
  );
  const both = await Promise.allSettled([batch.load(1), batch.load(2)]);
  expect(both.map(({ status }) => status)).toEqual(['rejected', 'rejected']);
  isAway = false;
  expect(await batch.load(1)).toEqual([[1, 'x']]);
});
