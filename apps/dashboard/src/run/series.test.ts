import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  NO_METRICS,
  csvOf,
  fromHistory,
  indexAt,
  lastRound,
  seriesOf,
  smoothed,
  thinned,
  withDetail,
  withRows,
  type Point,
  type Row,
} from './series.js';

const row = (round: number, loss: number | null = round): Row => ({
  round,
  rounds: 1,
  values: { loss },
  examplesPerSecond: 10,
});
const point = (round: number, value: number, rounds = 1): Point => ({ round, rounds, value, min: value, max: value });

describe('series of metrics', () => {
  it('appends live rows behind the history and drops what it knows', () => {
    const history = fromHistory([{ name: 'loss', points: [point(3, 2, 4), point(7, 1, 4)] }]);
    const metrics = withRows(history, [row(6), row(7), row(8, 0.5)], 100);
    expect(seriesOf(metrics, 'loss').map((p) => [p.round, p.value])).toEqual([
      [3, 2],
      [7, 1],
      [8, 0.5],
    ]);
  });
  it('is the same however the rows are cut into batches and repeated', () => {
    const rows = Array.from({ length: 60 }, (_, i) => row(i, i % 7));
    fc.assert(
      fc.property(fc.array(fc.tuple(fc.integer({ min: 0, max: 59 }), fc.integer({ min: 1, max: 20 })), { maxLength: 30 }), (replays) => {
        let metrics = NO_METRICS;
        for (const [start, length] of replays) {
          // A reconnect never skips ahead of what was seen.
          const from = Math.min(start, lastRound(metrics) + 1);
          metrics = withRows(metrics, rows.slice(from, from + length), 1000);
        }
        expect(metrics).toEqual(withRows(NO_METRICS, rows.slice(0, lastRound(metrics) + 1), 1000));
      }),
    );
  });
  it('leaves out what a row does not have', () => {
    const metrics = withRows(NO_METRICS, [row(0, null), row(1, Number.NaN), row(2, 1)], 10);
    expect(seriesOf(metrics, 'loss').map((p) => p.round)).toEqual([2]);
    expect(seriesOf(metrics, 'accuracy')).toEqual([]);
    expect(lastRound(metrics)).toBe(2);
    expect(lastRound(NO_METRICS)).toBe(-1);
  });
  it('has a line for each name that a row tells, in training and of validations, also for one that the history did not have', () => {
    const told: Row = {
      ...row(8, 0.5),
      values: { loss: 0.5, price_r2Score: 0.9, auc: null },
      validation: { values: { loss: 0.7, auc: '1' } },
    };
    const metrics = withRows(fromHistory([{ name: 'loss', points: [point(3, 2, 4)] }]), [told], 100);
    expect([...metrics.keys()]).toEqual(['loss', 'price_r2Score', 'val_loss', 'examplesPerSecond']);
    expect(seriesOf(metrics, 'val_loss')).toEqual([point(8, 0.7)]);
  });
  it('keeps its size bounded, its ends, its extremes, its rounds and its mean', () => {
    fc.assert(
      fc.property(
        fc.array(fc.double({ min: -1e6, max: 1e6, noNaN: true }), { minLength: 1, maxLength: 300 }),
        fc.integer({ min: 1, max: 20 }),
        (values, max) => {
          const points = values.map((value, round) => point(round, value));
          const kept = thinned(points, max);
          expect(kept.length).toBeLessThanOrEqual(2 * max);
          expect(kept.at(-1)!.round).toBe(values.length - 1);
          expect(Math.min(...kept.map((p) => p.min))).toBe(Math.min(...values));
          expect(Math.max(...kept.map((p) => p.max))).toBe(Math.max(...values));
          expect(kept.reduce((sum, p) => sum + p.rounds, 0)).toBe(values.length);
          const mean = kept.reduce((sum, p) => sum + p.value * p.rounds, 0) / values.length;
          expect(mean).toBeCloseTo(values.reduce((a, b) => a + b, 0) / values.length, 4);
        },
      ),
    );
  });
  it('finds the point of a round, also where several rounds are one point', () => {
    const points = [point(3, 2, 4), point(7, 1, 4), point(8, 0.5)];
    expect([0, 3, 4, 8, 99].map((round) => indexAt(points, round))).toEqual([0, 0, 1, 2, 2]);
    expect(indexAt([], 3)).toBeUndefined();
  });
  it('takes finer points in place of coarse ones and loses none around them', () => {
    const coarse = new Map([['loss', [point(3, 4, 4), point(7, 3, 4), point(11, 2, 4), point(15, 1, 4)]]]);
    const detail = new Map([['loss', [4, 5, 6, 7, 8, 9, 10, 11].map((round) => point(round, 2.5))]]);
    expect(seriesOf(withDetail(coarse, detail), 'loss').map(({ round }) => round)).toEqual([3, 4, 5, 6, 7, 8, 9, 10, 11, 15]);
    expect(withDetail(coarse, NO_METRICS)).toEqual(coarse);
  });
  it('smooths without a pull towards zero, and leaves a constant as it is', () => {
    expect(smoothed([point(0, 5), point(1, 5), point(2, 5)], 0.9).map((value) => Number(value.toFixed(9)))).toEqual([5, 5, 5]);
    expect(smoothed([point(0, 1), point(1, 3)], 0)).toEqual([1, 3]);
    expect(smoothed([point(0, 1), point(1, 3)], 0.5)[1]).toBeCloseTo((0.25 * 1 + 0.5 * 3) / 0.75, 9);
  });
  it('writes a table with rounds from one', () => {
    expect(csvOf([point(3, 2, 4), point(4, 0.5)])).toBe('first_round,last_round,mean,lowest,highest\n1,4,2,2,2\n5,5,0.5,0.5,0.5\n');
    const validation = [point(1, 7), point(2, 8)];
    expect(
      csvOf([point(3, 2, 4), point(4, 0.5)], validation)
        .split('\n')
        .slice(0, 3),
    ).toEqual(['first_round,last_round,mean,lowest,highest,validation', '1,4,2,2,2,8', '5,5,0.5,0.5,0.5,']);
  });
});
