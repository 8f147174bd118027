import type { MetricSeries, RunSummary } from '@paceline/client';
import { describe, expect, it } from 'vitest';
import { inOrder, measureText, shortMeasure } from './measures.js';
import { metricColumns, readRows, rowsOf } from './read-metrics.js';
import { historyLines } from './show-history.js';
import { widthOf } from './terminal/format.js';
import { validationLines } from './watch-run.js';

const names = ['auc', 'recall', 'f1Score', 'topKCategoricalAccuracy', 'loss', 'accuracy', 'precision', 'perplexity'];
const values = Object.fromEntries(names.map((name, i) => [name, 0.9 + i / 100]));
const progress = (training: object, validated: object) =>
  ({ progress: { values: training, validation: { round: 19, examples: 9, values: validated } } }) as unknown as RunSummary;

describe('measures on the command line', () => {
  it('stand in one order, under short names, errors and scores as numbers and shares as percent', () => {
    const own = ['rent_meanAbsoluteError', 'meanAbsoluteError', 'loss', 'accuracy'];
    expect(inOrder(own).map(shortMeasure)).toEqual(['loss', 'accuracy', 'mae', 'rent_mae']);
    expect([measureText('grade_accuracy', 0.5), measureText('auc', 0.5), measureText('loss', null), measureText('x', 1)]).toEqual([
      '50.00 %',
      '0.5000',
      '–',
      '1.0000',
    ]);
  });

  it('are one line while they fit, and else pairs in columns', () => {
    expect(validationLines(progress({ loss: 0.25 }, { loss: 0.5 }), 80)).toEqual(['round 20  loss 0.2500  val_loss 0.5000']);
    const lines = validationLines(progress(values, values), 80);
    expect(lines).toEqual([
      'round 20',
      '  loss        0.9400 val  0.9400   recall     91.00 % val 91.00 %',
      '  accuracy   95.00 % val 95.00 %   f1         92.00 % val 92.00 %',
      '  topK       93.00 % val 93.00 %   auc         0.9000 val  0.9000',
      '  precision  96.00 % val 96.00 %   perplexity  0.9700 val  0.9700',
    ]);
    for (let width = 40; width < 200; width++)
      expect(Math.max(...validationLines(progress(values, values), width).map(widthOf))).toBeLessThanOrEqual(width);
  });

  it('of a history go on in a table below where a terminal is narrow, each with its validation beside it', () => {
    const pairs = ['A', 'B', 'C'].map((title) => ({ titles: [title, `VAL_${title}`] as const, cells: [['0.1', '0.2'] as const] }));
    expect(historyLines(['10'], pairs, 30, (text) => text)).toEqual([
      'ROUND    A  VAL_A    B  VAL_B',
      '   10  0.1    0.2  0.1    0.2',
      '',
      'ROUND    C  VAL_C',
      '   10  0.1    0.2',
    ]);
    expect(historyLines(['10'], pairs, 80, (text) => text)).toHaveLength(2);
  });
});

describe('the numbers of a run', () => {
  const point = (round: number, value: number, rounds = 1) => ({ round, rounds, value, min: value, max: value, atMs: 0 });

  it('are put together round by round, a validation in the row of its round', () => {
    const series = new Map([
      ['loss', [point(2, 0.5, 2), point(3, 0.4)]],
      ['val_loss', [point(0, 9), point(1, 8), point(2, 0.7)]],
      ['val_accuracy', [point(0, 1), point(4, 1)]],
      ['examplesPerSecond', [point(2, 100, 2), point(3, 90), point(5, 80)]],
    ]);
    expect(rowsOf(series)).toEqual([
      { round: 3, rounds: 2, values: { loss: 0.5, val_loss: 0.7, examplesPerSecond: 100 } },
      { round: 4, rounds: 1, values: { loss: 0.4, examplesPerSecond: 90 } },
      { round: 6, rounds: 1, values: { examplesPerSecond: 80 } },
    ]);
  });

  it('are asked for in pages that one query may cost, every round once', async () => {
    const many = Array.from({ length: 17 }, (_, i) => `m${i}`);
    const asked: [number, number | undefined, number | undefined][] = [];
    const client = {
      metrics: (_id: string, query: { names: readonly string[]; fromRound?: number; toRound?: number }): Promise<MetricSeries[]> => {
        asked.push([query.names.length, query.fromRound, query.toRound]);
        return Promise.resolve(query.names.map((name) => ({ name, points: [point(query.fromRound ?? 0, 1)] })));
      },
    };
    const rows: number[] = [];
    for await (const page of readRows(client, 'id', { names: [...many, 'examplesPerSecond'], rounds: 4_500 }))
      rows.push(...page.map(({ round }) => round));
    expect(rows).toEqual([1, 2001, 4001]);
    expect(asked.slice(0, 4)).toEqual([
      [15, 0, 1999],
      [3, 0, 1999],
      [15, 2000, 3999],
      [3, 2000, 3999],
    ]);
  });

  it('have a column for each measure, and for its validation where there is one', () => {
    const of = { progress: { values: { accuracy: 1, loss: 1 }, validation: null }, result: null } as unknown as RunSummary;
    expect(metricColumns(of, inOrder)).toEqual(['loss', 'accuracy', 'examplesPerSecond']);
    expect(metricColumns(Object.assign({ result: null }, progress({ loss: 1 }, {})), inOrder)).toEqual([
      'loss',
      'val_loss',
      'examplesPerSecond',
    ]);
  });
});
