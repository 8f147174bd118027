/**
 * The examples of tf.js by name, each as large as it is there: iris, mnist (dense and convolutional), and the weather in Jena (linear, dense and GRU,
 * on ten days of rows to the temperature a day later). Each reaches what it says, on one worker and on three, with the same bits. The weather is made up.
 */
import { mkdtempSync } from 'node:fs';
import path from 'node:path';
import { FINAL_STATUSES, type Run } from '@paceline/client';
import { importDataset } from '@paceline/ingest';
import type { RunSpecInput } from '@paceline/spec';
import { Stack } from '@paceline/testkit';
import { afterAll, beforeAll, expect, test } from 'vitest';

const DAY = 144;
const WINDOW = { lookback: 10 * DAY, step: 6 };
const TEMPERATURE = 'T (degC)';
const TRAIN_SHARE = 0.8;

let stack: Stack;
let columns: string[];
/** Mean absolute error of saying that a day later it is as warm as now, in deviations of the training split. */
let naive: number;
beforeAll(async () => {
  stack = await Stack.start({ servers: 1, workers: 1 });
  const module = path.join(import.meta.dirname, 'weather.mjs');
  const workFolder = mkdtempSync(path.join(stack.folder, 'import-'));
  const options = { sources: [module], format: 'module', inOrder: true, split: { train: TRAIN_SHARE, test: 1 - TRAIN_SHARE } } as const;
  const committed = await stack.client.datasets.import('jena', (sink) => importDataset(options, sink, { workFolder }));
  const { manifest } = await stack.client.datasets.manifest('jena');
  columns = manifest.columns.map(({ name }) => name);
  expect([columns.length, committed.rows]).toEqual([14, 16_000]);
  const { default: rows } = (await import(module)) as { default: () => Iterable<Record<string, number>> };
  const temperatures = Array.from(rows(), (row) => row[TEMPERATURE]!).slice(manifest.splits.train.rows);
  const column = manifest.columns.find(({ name }) => name === TEMPERATURE)!;
  if (column.kind !== 'number') throw new Error('no number');
  const first = WINDOW.lookback - 1;
  const errors = temperatures.slice(first + DAY).map((later, i) => Math.abs(later - temperatures[first + i]!));
  naive = errors.reduce((sum, error) => sum + error, 0) / errors.length / column.statistics.deviation;
});
afterAll(() => stack?.stop());

async function trained(spec: RunSpecInput): Promise<Run> {
  const { id } = await stack.client.createRun(spec);
  let run!: Run;
  await stack.until('the end of the run', 1_800_000, async () => {
    run = (await stack.client.run(id))!;
    return FINAL_STATUSES.has(run.status) || { seen: `${run.status} ${run.statusReason}` };
  });
  expect(run.status, run.statusReason ?? '').toBe('SUCCEEDED');
  return run;
}

/** On one worker and on three: the same bits. */
async function onOneAndThree(spec: RunSpecInput): Promise<NonNullable<Run['result']>> {
  await stack.haveWorkers(1);
  const one = (await trained(spec)).result!;
  await stack.haveWorkers(3);
  const three = (await trained(spec)).result!;
  expect([three.weightsSha256, three.loss]).toEqual([one.weightsSha256, one.loss]);
  return one;
}

const layer = (class_name: string, config: object) => ({ class_name, config });
const steps = Math.ceil(WINDOW.lookback / WINDOW.step);

const jena = (layers: (inputShape: object) => object[], rounds: number): RunSpecInput =>
  ({
    dataset: 'jena',
    model: {
      topology: {
        class_name: 'Sequential',
        config: { name: 'jena', layers: layers({ batch_input_shape: [null, steps, columns.length] }) },
      },
    },
    features: {
      inputs: { past: [Object.assign({ kind: 'window', columns }, WINDOW)] },
      targets: { next: { kind: 'window', columns: [TEMPERATURE], delay: DAY } },
    },
    loss: 'meanAbsoluteError',
    optimizer: { name: 'rmsprop', learningRate: 0.001 },
    globalBatch: 128,
    replicas: 4,
    length: { rounds },
    seed: 3,
  }) as RunSpecInput;

test('iris reaches 0.9', async () => {
  const iris: RunSpecInput = { dataset: 'iris', optimizer: { name: 'adam', learningRate: 0.01 }, globalBatch: 30, length: { epochs: 40 } };
  expect((await onOneAndThree(iris)).accuracy).toBeGreaterThanOrEqual(0.9);
});

test.each([
  ['mlp', 0.9],
  ['cnn', 0.95],
] as const)('mnist with the model %s reaches %s', async (model, accuracy) => {
  const optimizer = { name: 'adam', learningRate: 0.002 } as const;
  const result = await onOneAndThree({ dataset: 'mnist', model, optimizer, globalBatch: 128, length: { rounds: 300 } });
  expect(result.accuracy).toBeGreaterThanOrEqual(accuracy);
});

test.each([
  ['linear', (input: object) => [layer('Flatten', { name: 'flat', ...input }), layer('Dense', { name: 'out', units: 1 })], 120],
  [
    'dense',
    (input: object) => [
      layer('Flatten', { name: 'flat', ...input }),
      layer('Dense', { name: 'hidden', units: 32, activation: 'relu' }),
      layer('Dense', { name: 'out', units: 1 }),
    ],
    300,
  ],
  ['GRU', (input: object) => [layer('GRU', { name: 'gru', units: 32, ...input }), layer('Dense', { name: 'out', units: 1 })], 30],
] as const)('the weather of Jena by a %s model is nearer than what it is now', async (_, layers, rounds) => {
  const result = await onOneAndThree(jena(layers, rounds));
  expect(result.meanAbsoluteError).toBeLessThan(0.95 * naive);
});
