/** Steps that threads begin while tf.js still keeps its books of the step before: when they do, and that nothing else changes by it. */
import * as tf from '@tensorflow/tfjs-core';
import * as tfl from '@tensorflow/tfjs-layers';
import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import { ReplicaError } from './errors.js';
import { compiled, labels, mlp, oneHot, QUIET, rows, weightsOf } from './models.fixture.js';
import { MirroredStrategy } from './thread-strategies.js';
import type { ThreadPool } from './threads/thread-pool.js';

let strategy: MirroredStrategy;
let pool: ThreadPool;
beforeAll(async () => {
  await tf.setBackend('cpu');
  strategy = new MirroredStrategy({ threads: 2 });
  ({ pool } = (strategy as unknown as { exchange: { pool: ThreadPool } }).exchange);
});
afterAll(() => strategy.dispose());

const made = (): tfl.Sequential => strategy.scope(() => compiled(mlp(), () => tf.train.adam(0.02)));

/** For each step of the training: how many others ran when it was given to the threads. */
async function runningAt(train: () => Promise<unknown>): Promise<number[]> {
  const { running } = pool as unknown as { running: ReadonlySet<unknown> };
  const seen: number[] = [];
  const begin = pool.begin.bind(pool);
  const spy = vi.spyOn(pool, 'begin').mockImplementation((...args) => {
    seen.push(running.size);
    return begin(...args);
  });
  try {
    await train();
  } finally {
    spy.mockRestore();
  }
  return seen;
}

it('a batch follows the one before without a word of tf.js, in each epoch, with the bits of steps one by one', async () => {
  // 50 rows: batches of 16, 16, 16 and 2.
  const args = { ...QUIET, shuffle: true, epochs: 2, batchSize: 16, validationSplit: 0 };
  const chance = () => {
    let state = 7;
    return vi.spyOn(Math, 'random').mockImplementation(() => (state = (Math.imul(state, 48_271) >>> 0) % 2_147_483_647) / 2_147_483_647);
  };
  const train = async (model: tfl.Sequential, more: Partial<tfl.ModelFitArgs>) => {
    const random = chance();
    try {
      return await model.fit(rows(), oneHot(), { ...args, ...more });
    } finally {
      random.mockRestore();
    }
  };
  const [ahead, one] = [made(), made()];
  const histories: tfl.History[] = [];
  // Before the second batch the threads are told where the other set of buffers is, which waits for the first one.
  expect(await runningAt(async () => histories.push(await train(ahead, {})))).toEqual([0, 0, 1, 1, 0, 1, 1, 1]);
  const looks = { callbacks: { onBatchEnd: () => undefined } };
  expect(await runningAt(async () => histories.push(await train(one, looks)))).toEqual(Array(8).fill(0));
  expect(weightsOf(ahead)).toEqual(weightsOf(one));
  expect(histories[0]!.history).toEqual(histories[1]!.history);
  expect((ahead.optimizer as unknown as { iterations: number }).iterations).toBe(8);
});

it.each([
  [5, 'while the threads wait for buffers of the batch behind it'],
  [20, 'while that one waits'],
])('a step that was given behind one that fails, at row %i, is left out (%s), and every later one counts', async (row) => {
  const build = () => compiled(mlp(), () => tf.train.sgd(0.1), { loss: 'sparseCategoricalCrossentropy', metrics: [] });
  const undisturbed = new MirroredStrategy({ threads: 2 }); // another model of the same threads would wait for all steps
  const [failing, expected] = [strategy.scope(build), undisturbed.scope(build)];
  const wrong = labels().dataSync().slice();
  wrong[row] = 99;
  const good = Math.floor(row / 16);
  for (let i = 0; i < 2; i++) {
    await expect(failing.fit(rows(), tf.tensor2d(wrong, [50, 1]), { ...QUIET, batchSize: 16 })).rejects.toBeInstanceOf(ReplicaError);
    if (good > 0) await expected.fit(rows(16), labels(16), { ...QUIET, batchSize: 16 });
    // Nobody reads the weights in between: that would wait for all steps.
    for (let step = 0; step < 2; step++) {
      const [loss, wanted] = [await failing.trainOnBatch(rows(16), labels(16)), await expected.trainOnBatch(rows(16), labels(16))];
      expect(loss).toBe(wanted);
    }
  }
  expect(weightsOf(failing)).toEqual(weightsOf(expected));
  const iterations = (model: tfl.LayersModel) => (model.optimizer as unknown as { iterations: number }).iterations;
  expect(iterations(failing)).toBe(iterations(expected));
  await undisturbed.dispose();
});

it('a step that was given behind one that fails is left out, and fit can go on', async () => {
  const build = () =>
    strategy.scope(() => compiled(mlp(), () => tf.train.adam(0.02), { loss: 'sparseCategoricalCrossentropy', metrics: [] }));
  const [failing, expected] = [build(), build()];
  await expected.fit(rows(16), labels(16), { ...QUIET, batchSize: 16 });
  const wrong = labels().dataSync().slice();
  wrong[20] = 99; // in the second of four batches
  const ys = tf.tensor2d(wrong, [50, 1]);
  const seen: unknown[] = [];
  const given = await runningAt(async () =>
    failing.fit(rows(), ys, { ...QUIET, batchSize: 16 }).catch((error: unknown) => seen.push(error)),
  );
  expect(given).toEqual([0, 0, 1]);
  expect(seen[0]).toBeInstanceOf(ReplicaError);
  expect(seen[0]).toMatchObject({ step: 1 });
  expect(weightsOf(failing)).toEqual(weightsOf(expected));
  for (const model of [failing, expected]) await model.fit(rows(), labels(), { ...QUIET, batchSize: 16 });
  expect(weightsOf(failing)).toEqual(weightsOf(expected));
});

it('whoever looks while a step runs sees what it leaves behind, and a training that is stopped has counted it', async () => {
  const [model, all] = [made(), made()];
  let seen: number[][] = [];
  const fitted = model.fit(rows(), oneHot(), { ...QUIET, batchSize: 16, yieldEvery: 'batch' });
  setImmediate(() => {
    seen = weightsOf(model);
    model.stopTraining = true;
  });
  const { history } = await fitted;
  expect(history['loss']).toHaveLength(1);
  const { iterations } = model.optimizer as unknown as { iterations: number };
  await all.fit(tf.slice(rows(), 0, Math.min(50, 16 * iterations)), tf.slice(oneHot(), 0, Math.min(50, 16 * iterations)), {
    ...QUIET,
    batchSize: 16,
  });
  expect(weightsOf(model)).toEqual(weightsOf(all));
  expect(seen).toHaveLength(4);
});
