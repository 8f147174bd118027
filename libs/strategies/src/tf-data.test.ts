/** Pipelines of tf.data: what reads, maps, shuffles, batches and prefetches for tf.js does so for a distributed model. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import * as tf from '@tensorflow/tfjs-core';
import * as tfd from '@tensorflow/tfjs-data';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { CLASSES, compiled, expectSame, FEATURES, mlp } from './models.fixture.js';
import { MirroredStrategy } from './thread-strategies.js';

const EXAMPLES = 100;

let folder: string;
let strategy: MirroredStrategy;
beforeAll(async () => {
  await tf.setBackend('cpu');
  folder = mkdtempSync(join(tmpdir(), 'tf-data-'));
  const names = Array.from({ length: FEATURES }, (_, i) => `x${i}`);
  const rows = Array.from({ length: EXAMPLES }, (_, row) => [...names.map((_, i) => Math.sin(row * 3.1 + i).toFixed(4)), row % CLASSES]);
  writeFileSync(join(folder, 'rows.csv'), [[...names, 'label'], ...rows].map((row) => row.join(',')).join('\n'));
  strategy = new MirroredStrategy({ threads: 2, replicas: 3 });
});
afterAll(async () => {
  await strategy.dispose();
  rmSync(folder, { recursive: true, force: true });
});

const examples = () =>
  tfd.csv(`file://${folder}/rows.csv`, { columnConfigs: { label: { isLabel: true } } }).map((row) => {
    const { xs, ys } = row as unknown as { xs: Record<string, number>; ys: { label: number } };
    return { xs: tf.tensor1d(Object.values(xs)), ys: tf.tensor1d(Array.from({ length: CLASSES }, (_, i) => Number(i === ys.label))) };
  });

/** What `fitDataset` takes; tf.data says less of it. */
const ofBatches = (dataset: tfd.Dataset<tf.TensorContainer>) => dataset as tfd.Dataset<tf.TensorContainerObject>;

it('a CSV that is mapped, shuffled, batched and prefetched trains, validates and evaluates a model as with tf.js', async () => {
  const build = () => compiled(mlp(), () => tf.train.adam(0.02), { metrics: ['accuracy'] });
  const [plain, distributed] = [build(), strategy.scope(build)];
  const args = () => ({ epochs: 3, verbose: 0 as const, validationData: ofBatches(examples().batch(40)) });
  // The last batch of an epoch has 4 rows.
  const batches = () => ofBatches(examples().shuffle(50, 'a seed').batch(16).prefetch(2));
  expectSame(await distributed.fitDataset(batches(), args()), await plain.fitDataset(batches(), args()));
  const measured = [distributed, plain].map((model) => model.evaluateDataset(ofBatches(examples().batch(30)), {}));
  const [mine, theirs] = (await Promise.all(measured)).map((values) => [values].flat().map((value) => value.dataSync()[0]!));
  mine!.forEach((value, i) => expect(value).toBeCloseTo(theirs![i]!, 4));
});

it('repeats, and takes as many batches as an epoch is told to have', async () => {
  const build = () => compiled(mlp(), () => tf.train.sgd(0.1));
  const [plain, distributed] = [build(), strategy.scope(build)];
  const args = { epochs: 2, batchesPerEpoch: 5, verbose: 0 as const };
  const batches = () => ofBatches(examples().take(50).repeat().batch(20));
  expectSame(await distributed.fitDataset(batches(), args), await plain.fitDataset(batches(), args));
});

it('is shared out to the replicas of a step of your own', async () => {
  const rows: number[] = [];
  for await (const { xs } of strategy.distributeDataset(ofBatches(examples().batch(32))) as AsyncIterable<{ xs: { values: tf.Tensor[] } }>)
    rows.push(...xs.values.map(({ shape }) => shape[0]!));
  expect(rows).toEqual([10, 11, 11, 10, 11, 11, 10, 11, 11, 1, 1, 2]);
});
