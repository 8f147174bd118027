import { describe, expect, it } from 'vitest';
import {
  canBeLogarithmic,
  decadesOnly,
  firstRoundOf,
  isBetterLogarithmic,
  placeOf,
  tickLabel,
  trainedSpan,
  valueRange,
  zoomBy,
  zoomTo,
} from './chart-scale.js';
import { NO_METRICS, type Point } from './series.js';

const point = (round: number, value = 1, rounds = 1): Point => ({ round, rounds, value, min: value, max: value });
const plain = (text: string): string => text.replaceAll('\u202f', ' ');

describe('the x axis', () => {
  it('has round k at k: the 150 rounds of a run stand at 1 to 150, and a bucket at its last round', () => {
    expect([placeOf(point(0)), placeOf(point(149))]).toEqual([1, 150]);
    expect([firstRoundOf(point(0)), firstRoundOf(point(9, 1, 4)), placeOf(point(9, 1, 4))]).toEqual([1, 7, 10]);
  });
  it('holds what was trained, not what is to come', () => {
    expect(trainedSpan(new Map([['loss', [point(0), point(29)]]]), 1000)).toEqual([0, 30]);
    const two = new Map([
      ['loss', [point(403, 1, 4)]],
      ['examplesPerSecond', [point(403, 9, 4), point(409)]],
    ]);
    expect(trainedSpan(two, 1000)).toEqual([400, 410]);
    expect([trainedSpan(NO_METRICS, 1000), trainedSpan(NO_METRICS, 0)]).toEqual([
      [0, 1000],
      [0, 1],
    ]);
  });
  it('zooms to whole rounds within what there is, and to nothing by a click', () => {
    expect(zoomTo([10.4, 50.2], [0, 100])).toEqual([10, 51]);
    expect(zoomTo([50, -8], [0, 100])).toEqual([0, 50]);
    expect([zoomTo([10, 12], [0, 100]), zoomTo([-5, 500], [0, 100])]).toEqual([undefined, undefined]);
    expect(zoomBy(0.5, 50, [0, 100], [0, 100])).toEqual([25, 75]);
    expect(zoomBy(2, 50, [25, 75], [0, 100])).toBeUndefined();
    expect(zoomBy(0.5, 50, [48, 53], [0, 100])).toEqual([48, 53]);
  });
});

describe('the y axis', () => {
  it('has short labels, also of a run that diverged', () => {
    const labels = [3.4e21, -3e15, 1234, 40_000, 2.5, 0.25, 0.004, 1e-5, 0].map((value) => tickLabel(value, false));
    expect(labels).toEqual(['3.4e21', '-3e15', '1.23K', '40K', '2.5', '0.25', '0.004', '1e-5', '0']);
    expect(Math.max(...labels.map(({ length }) => length))).toBeLessThanOrEqual(7);
    expect(plain(tickLabel(0.975, true))).toBe('97.5 %');
  });
  it('is logarithmic by itself where a linear one would show a flat line and a wall', () => {
    expect(isBetterLogarithmic([point(0, 2.3), point(1, 0.1)])).toBe(false);
    expect(isBetterLogarithmic([point(0, 2.3), point(1, 3.4e21)])).toBe(true);
    expect([isBetterLogarithmic([]), canBeLogarithmic([]), canBeLogarithmic([point(0, 0)])]).toEqual([false, false, false]);
  });
  it('has at most six lines at powers of ten', () => {
    expect(decadesOnly([0.1, 0.2, 0.5, 1, 2, 10])).toEqual([0.1, null, null, 1, null, 10]);
    const wide = decadesOnly(Array.from({ length: 22 }, (_, i) => 10 ** i)).filter((value) => value !== null);
    expect(wide.length).toBeLessThanOrEqual(6);
    expect(wide.map(Math.log10)).toEqual([0, 4, 8, 12, 16, 20]);
  });
  it('does not go past what the metric can be', () => {
    expect(valueRange(0.1, 1, { fromZero: false, ceiling: 1, logarithmic: false })).toEqual([0, 1]);
    expect(valueRange(null, null, { fromZero: false, ceiling: undefined, logarithmic: true })).toEqual([0.1, 1]);
  });
});
