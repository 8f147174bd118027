/** Where series begin, however many files there are. */
import { DATASET_LIMITS } from '@paceline/spec';
import { expect, test } from 'vitest';
import { SeriesStarts } from './series.js';

function filesOf(count: number, rows: number): SeriesStarts {
  const series = new SeriesStarts();
  for (let i = 0; i < count; i++) {
    series.begin();
    series.add('train', rows);
  }
  return series;
}

test('each file but the first begins a series, in the split that its rows come to', () => {
  const series = filesOf(5, 4);
  expect(series.startsOf('train')).toEqual([4, 8, 12, 16]);
  series.divide({ train: 10, validation: 2, test: 8 });
  expect([series.startsOf('train'), series.startsOf('validation'), series.startsOf('test')]).toEqual([[4, 8], undefined, [4]]);
  expect(series.isOverfull).toBe(false);
});

test('more files than a manifest may name are remembered, also when they are divided', () => {
  const most = DATASET_LIMITS.seriesPerSplit;
  const full = filesOf(most, 1);
  expect([full.startsOf('train')!.length, full.isOverfull]).toEqual([most - 1, false]);
  const overfull = filesOf(most + 1, 1);
  overfull.divide({ train: most / 2, validation: 0, test: most / 2 + 1 });
  expect(overfull.isOverfull).toBe(true);
});
