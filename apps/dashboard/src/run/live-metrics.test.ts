import { describe, expect, it } from 'vitest';
import { LiveMetrics } from './live-metrics.js';
import { fromHistory, seriesOf, type Row } from './series.js';

const row = (round: number, rounds = 1): Row => ({
  round,
  rounds,
  values: { loss: round },
  examplesPerSecond: 1,
});
const history = (...rounds: number[]) =>
  fromHistory([{ name: 'loss', points: rounds.map((round) => ({ round, rounds: 1, value: round, min: round, max: round })) }]);
const drawn = (metrics: LiveMetrics): number[] => seriesOf(metrics.draw(), 'loss').map(({ round }) => round);

describe('live metrics', () => {
  it('draws the history and what came since', () => {
    const metrics = new LiveMetrics(100);
    metrics.asking(0);
    metrics.answered(history(0, 1));
    metrics.add(row(2));
    expect(metrics.afterRound).toBe(2);
    expect(drawn(metrics)).toEqual([0, 1, 2]);
  });
  it('replaces a backlog that came as one row by its history, and keeps rows that came meanwhile', () => {
    const metrics = new LiveMetrics(100);
    metrics.asking(0);
    metrics.answered(history(0));
    metrics.add(row(5, 5));
    expect(drawn(metrics)).toEqual([0, 5]);
    metrics.asking(1000);
    metrics.add(row(6));
    metrics.add(row(7));
    expect(drawn(metrics)).toEqual([0, 5, 6, 7]);
    metrics.answered(history(0, 1, 2, 3, 4, 5, 6));
    expect(drawn(metrics)).toEqual([0, 1, 2, 3, 4, 5, 6, 7]);
    expect([metrics.ageMs(1500), metrics.afterRound]).toEqual([500, 7]);
  });
  it('is empty and old at first', () => {
    const metrics = new LiveMetrics(100);
    expect([drawn(metrics), metrics.afterRound, metrics.ageMs(0)]).toEqual([[], -1, Infinity]);
  });
});
