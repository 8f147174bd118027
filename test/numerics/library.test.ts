/** The library against the reference of the service: the same rows, seed and replicas end in the same bits, where both compute the optimizer alike. */
import { createHash } from 'node:crypto';
import * as tf from '@tensorflow/tfjs-core';
import * as tfl from '@tensorflow/tfjs-layers';
import '@tensorflow/tfjs-backend-cpu';
import { openDataset } from '@paceline/data';
import { describeModel } from '@paceline/engine';
import { createInitialValues, permutedIndex } from '@paceline/learning';
import { parseRunSpec, type RunSpecInput } from '@paceline/spec';
import { CentralStorageStrategy, MirroredStrategy, type Strategy } from '@paceline/strategies';
import { beforeAll, expect, test } from 'vitest';
import { trainReference } from './reference.js';

const [ROUNDS, BATCH, REPLICAS, SEED] = [8, 60, 4, 3];
const LOSS = 'sparseCategoricalCrossentropy';

const build = (): tfl.Sequential =>
  tfl.sequential({
    layers: [
      tfl.layers.dense({ name: 'first', units: 32, activation: 'relu', inputShape: [784] }),
      tfl.layers.batchNormalization({ name: 'normal' }),
      tfl.layers.dropout({ name: 'drop', rate: 0.3 }),
      tfl.layers.dense({ name: 'last', units: 10, activation: 'softmax' }),
    ],
  });

/** What the service is asked for. */
const input = (optimizer: RunSpecInput['optimizer']): RunSpecInput => ({
  model: { topology: build().toJSON(null, false) as never },
  loss: LOSS,
  globalBatch: BATCH,
  replicas: REPLICAS,
  length: { rounds: ROUNDS },
  seed: SEED,
  ...(optimizer ? { optimizer } : {}),
});

beforeAll(() => tf.setBackend('cpu'));

async function compared(optimizer: RunSpecInput['optimizer'], make: () => tf.Optimizer, strategy: Strategy) {
  const parsed = parseRunSpec(input(optimizer));
  if (!parsed.ok) throw new Error(JSON.stringify(parsed.issues));
  const { spec } = parsed;
  const { weightsSha256 } = await trainReference(spec);
  const { train, format } = await openDataset('mnist');
  const values = createInitialValues(await describeModel(spec, format), SEED);
  const flat = new Float32Array(values.layout.totalLength);
  values.fill(0, flat);
  const model = build();
  const byPath = new Map(model.weights.map((weight) => [weight.originalName, weight]));
  for (const { path, shape, offset, length } of values.layout.variables)
    byPath.get(path)!.write(tf.tensor(flat.slice(offset, offset + length), [...shape]));
  model.compile({ optimizer: make(), loss: LOSS });
  strategy.distribute(model);
  const rows = Int32Array.from({ length: BATCH * ROUNDS }, (_, i) => permutedIndex(SEED, 0, train.count, i));
  const [x, y] = [new Float32Array(rows.length * 784), new Float32Array(rows.length)];
  train.gather(rows, 0, rows.length, { inputs: [x], targets: [y], weights: undefined });
  const args = { batchSize: BATCH, epochs: 1, shuffle: false, verbose: 0 as const };
  await model.fit(tf.tensor2d(x, [rows.length, 784]), tf.tensor2d(y, [rows.length, 1]), args);
  for (const { path, offset } of values.layout.variables) flat.set(byPath.get(path)!.read().dataSync<'float32'>(), offset);
  await strategy.dispose();
  return { library: createHash('sha256').update(flat).digest('hex'), weightsSha256, flat };
}

test.each([1, 2])(
  'dropout and batch normalisation with SGD, MirroredStrategy on %i threads: the weightsSha256 of the service',
  async (threads) => {
    const sgd = { name: 'sgd', learningRate: 0.1 } as const;
    const strategy = new MirroredStrategy({ threads, replicas: REPLICAS, seed: SEED });
    const { library, weightsSha256 } = await compared(sgd, () => tf.train.sgd(0.1), strategy);
    expect(library).toBe(weightsSha256);
  },
);

test('Adam of tf.js is another one than that of the service, and so are the bits', async () => {
  const strategy = new CentralStorageStrategy({ threads: 1, replicas: REPLICAS, seed: SEED });
  const { library, weightsSha256 } = await compared({ name: 'adam', learningRate: 0.01 }, () => tf.train.adam(0.01), strategy);
  expect(library).not.toBe(weightsSha256);
});
