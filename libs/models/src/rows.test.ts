/** What goes into a model and what its numbers mean, by the plan of its run. */
import type { Encoder, FeaturePlan } from '@paceline/spec';
import { expect, it } from 'vitest';
import { predictRows } from './predict-rows.js';
import { planPreprocessing } from './preprocessing-of.js';
import { encoderFor, predictionsCsv, predictionsOf, shares } from './rows.js';
import { layer, sequential } from './trained-model.fixture.js';

const numbers = (columns: string[], subtract = 0, divide = 1): Encoder => ({
  kind: 'numbers',
  columns,
  missing: columns.map(() => 5),
  subtract: columns.map(() => subtract),
  divide: columns.map(() => divide),
});

/** Two rows back, one ahead. */
const PLAN: FeaturePlan = {
  format: 'paceline.features',
  version: 1,
  rowFormat: {
    inputs: [
      { name: 'now', shape: [1] },
      { name: 'past', shape: [2, 1] },
    ],
    targets: [{ name: 'next', kind: 'values', shape: [1] }],
    isWeighted: false,
  },
  inputs: [
    { rows: { first: 1, step: 1, count: 1 }, encoders: [numbers(['a'])] },
    { rows: { first: 0, step: 1, count: 2 }, encoders: [numbers(['b'], 10, 2)] },
  ],
  targets: [{ rows: { first: 2, step: 1, count: 1 }, encoders: [numbers(['a'], 100, 4)] }],
  weight: {},
  span: 3,
  examples: { train: 1 },
  evaluateOn: 'train',
};
const MODEL = { model: { topology: sequential([layer('Dense', { units: 1, batch_input_shape: [null, 2] })]) } };
const ends = (...names: string[]) => names.map((name) => ({ name, shape: [1] }));
const said = planPreprocessing(MODEL, PLAN.rowFormat, { inputs: ends('past', 'now'), outputs: ends('out') }, PLAN);

async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const item of items) found.push(item);
  return found;
}

it('windows are cut from rows in their order, and inputs are in the order of the model', async () => {
  expect(said.inputOrder).toEqual([1, 0]);
  const encoder = encoderFor(said, []);
  expect(encoder.span).toBe(2);
  const { examples, inputs } = await encoder.encode([{ a: 1, b: 10 }, { a: 2, b: 14 }, { b: 12 }]);
  expect([examples, ...inputs.map((values) => [...values])]).toEqual([2, [0, 2, 2, 1], [2, 5]]);
});

it('windows go on over the batches of a file, and faults name file, row and column', async () => {
  const asked: number[][] = [];
  const predictor = {
    inputs: [],
    outputs: [{ name: 'out', shape: [1] }],
    predict: (given: readonly Float32Array[], count: number) => {
      asked.push([...given[1]!]);
      return [new Float32Array(count).fill(0.5)];
    },
    scorer: () => Promise.reject(new Error('not asked')) as never,
    dispose: () => undefined,
  };
  const rows = (file: string, firstRow: number, ...values: unknown[]) => ({ file, firstRow, rows: values.map((a) => ({ a, b: 1 })) });
  async function* files(...parts: ReturnType<typeof rows>[]) {
    for (const part of parts) yield await Promise.resolve(part);
  }
  const found = [];
  for await (const one of predictRows(
    { predictor, preprocessing: said, card: undefined },
    files(rows('x', 1, 1, 2), rows('x', 3, 3), rows('y', 1, 9, 8)),
  ))
    found.push(one);
  expect(asked).toEqual([[2], [3], [8]]);
  expect(found[0]).toEqual({ values: { next: [102] } });
  const bad = predictRows({ predictor, preprocessing: said, card: undefined }, files(rows('x', 1, 1, 2), rows('x', 3, 3, 'wide')));
  await expect(all(bad)).rejects.toThrow('x, row 4, column "a": must be a number, not "wide"');
});

it('a single number speaks for the second of two classes', () => {
  const preprocessing = {
    format: 'paceline.preprocessing' as const,
    version: 1 as const,
    outputs: [{ name: 'y', kind: 'classes' as const, gives: 'logits' as const, labels: ['no', 'yes'] }],
  };
  const [first, second] = predictionsOf([Float32Array.of(2, -2)], 2, preprocessing, ['y']);
  expect([first!.label, second!.label]).toEqual(['yes', 'no']);
  expect(first!.probabilities!['yes']).toBeCloseTo(1 / (1 + Math.exp(-2)), 10);
  expect(shares([0.25], 'probabilities')).toEqual([0.75, 0.25]);
  expect(predictionsCsv([first!]).split('\n')[0]).toBe('label,no,yes');
});

it('a target that nobody has named is called as its column, unless another target is', () => {
  const named = (...names: string[]) => {
    const targets = names.map((name) => ({ name, kind: 'values' as const, shape: [1] }));
    const plan = Object.assign({}, PLAN, { targets: names.map(() => ({ rows: PLAN.targets[0]!.rows, encoders: [numbers(['price'])] })) });
    const rowFormat = Object.assign({}, PLAN.rowFormat, { targets });
    return planPreprocessing(MODEL, rowFormat, { inputs: ends('now', 'past'), outputs: ends(...names) }, plan).outputs.map(
      ({ name }) => name,
    );
  };
  expect([named('y'), named('cost'), named('y', 'price')]).toEqual([['price'], ['cost'], ['y', 'price']]);
});
