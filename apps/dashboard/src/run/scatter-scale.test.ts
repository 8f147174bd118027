import { describe, expect, it } from 'vitest';
import { cellTints } from './matrix-tints.js';
import { scatterScale } from './scatter-scale.js';

describe('the scale of a scatter', () => {
  it('holds all points with a margin, and has round numbers on it', () => {
    const scale = scatterScale([
      [0.12, 0.2],
      [0.9, 0.31],
    ])!;
    expect(scale.ticks).toEqual([0.2, 0.4, 0.6, 0.8]);
    expect([scale.from < 0.12, scale.to > 0.9, scale.share(scale.from), scale.share(scale.to)]).toEqual([true, true, 0, 1]);
    expect(scatterScale([[-433_000, 812_000]])!.ticks).toEqual([-400_000, -200_000, 0, 200_000, 400_000, 600_000, 800_000]);
  });

  it('has room around points that are all one, and is not there without any', () => {
    for (const at of [0, 5, -1e9, 1e-9]) {
      const scale = scatterScale([[at, at]])!;
      expect([scale.from < at, scale.to > at, scale.ticks.length > 1, scale.share(at)]).toEqual([true, true, true, expect.closeTo(0.5, 6)]);
    }
    expect(scatterScale([])).toBeUndefined();
  });
});

it('cells of a confusion matrix are the darker the larger their part of the row', () => {
  const tints = cellTints([
    [98, 2, 0],
    [5, 5, 0],
    [0, 0, 0],
  ]);
  expect(tints[0]![0]).toBeGreaterThan(tints[1]![1]!);
  expect(tints[1]![0]).toBeGreaterThan(tints[0]![1]!);
  expect(tints[0]![1]).toBeGreaterThan(0);
  expect([tints[0]![2], ...tints[2]!]).toEqual([0, 0, 0, 0]);
  expect(Math.max(...tints.flat())).toBeLessThanOrEqual(42);
});
