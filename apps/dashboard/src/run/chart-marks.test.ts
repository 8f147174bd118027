import { expect, it } from 'vitest';
import { chartMarks } from './chart-marks.js';
import type { ChartMark } from './draw-chart.js';

const course = {
  metric: 'val_loss',
  best: { round: 40, values: {} },
  reductions: [
    { round: 20, was: 1, factor: 0.5 },
    { round: 60, was: 0.5, factor: 0.05 },
  ],
};

it('marks the best round where something waits for a better one, and each round in which the rate fell', () => {
  const labels = (spec: object) =>
    Object.values(chartMarks(course, spec)).map((marks) => marks.map(({ place, label }: ChartMark) => `${place} ${label}`));
  expect(labels({ reduceLROnPlateau: {} })).toEqual([['40 best'], ['20 × 0.5', '60 × 0.1']]);
  expect(labels({ validation: {} })).toEqual([[], ['20 × 0.5', '60 × 0.1']]);
  expect(chartMarks(undefined, { earlyStopping: {} })).toEqual({ best: [], reduced: [] });
  const often = { ...course, reductions: Array.from({ length: 21 }, (_, i) => ({ round: i, was: 1, factor: 0.9 })) };
  expect(chartMarks(often, {}).reduced).toEqual([]);
});
