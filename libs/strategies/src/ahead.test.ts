/** Steps that threads begin while tf.js still keeps its books of the step before: when they do, and that nothing else changes by it. */
import * as tf from '@tensorflow/tfjs-core';
import * as tfl from '@tensorflow/tfjs-layers';
import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import { ReplicaError } from './errors.js';
import { compiled, labels, mlp, oneHot, QUIET, rows, weightsOf } from './models.fixture.js';
import { ModelParallelStrategy } from './model-parallel.js';
import type { Strategy } from './strategy.js';
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

const threads = (): Strategy => new MirroredStrategy({ threads: 2 });
const stages = (): Strategy => new ModelParallelStrategy({ stages: 2, microBatches: 2 });
const SPARSE = { loss: 'sparseCategoricalCrossentropy', metrics: [] };
const iterations = (model: tfl.LayersModel) => (model.optimizer as unknown as { iterations: number }).iterations;

it.each([
  [5, 'threads', 'while these wait for buffers of the batch behind it', threads],
  [20, 'threads', 'while that one waits', threads],
  [5, 'stages', 'while these wait for buffers of the batch behind it', stages],
  [20, 'stages', 'while that one waits', stages],
])('a step given behind one that fails at row %i of %s, %s, is left out, and every later one counts', async (row, _, __, open) => {
  const build = () => compiled(mlp(), () => tf.train.sgd(0.1), SPARSE);
  const [disturbed, undisturbed] = [open(), open()]; // another model of the same threads would wait for all steps
  const [failing, expected] = [disturbed.scope(build), undisturbed.scope(build)];
  const wrong = labels().dataSync().slice();
  wrong[row] = 99;
  for (let i = 0; i < 2; i++) {
    await expect(failing.fit(rows(), tf.tensor2d(wrong, [50, 1]), { ...QUIET, batchSize: 16 })).rejects.toBeInstanceOf(ReplicaError);
    if (row >= 16) await expected.fit(rows(16), labels(16), { ...QUIET, batchSize: 16 });
    // Nobody reads the weights in between: that would wait for all steps.
    for (let step = 0; step < 2; step++) {
      const [loss, wanted] = [await failing.trainOnBatch(rows(16), labels(16)), await expected.trainOnBatch(rows(16), labels(16))];
      expect(loss).toBe(wanted);
    }
  }
  expect(weightsOf(failing)).toEqual(weightsOf(expected));
  expect(iterations(failing)).toBe(iterations(expected));
  await disturbed.dispose();
  await undisturbed.dispose();
});

it('a step that fails is told to whoever trains that model, and another model of the strategy goes on beside it', async () => {
  const build = () => compiled(mlp(), () => tf.train.sgd(0.1), SPARSE);
  const [failing, other] = [strategy.scope(build), strategy.scope(build)];
  const wrong = labels().dataSync().slice();
  wrong[20] = 99;
  const fit = failing.fit(rows(), tf.tensor2d(wrong, [50, 1]), { ...QUIET, epochs: 3, batchSize: 16 }).then(
    () => undefined,
    (error: unknown) => error,
  );
  for (let i = 0; i < 20; i++) await other.trainOnBatch(rows(16), labels(16));
  expect(await fit).toBeInstanceOf(ReplicaError);
  expect(iterations(other)).toBe(20);
  expect(iterations(failing)).toBe(1);
});

it("a batch beside a fit of the same model counts as one, and the failure of the fit is the fit's", async () => {
  const model = strategy.scope(() => compiled(mlp(), () => tf.train.sgd(0.1), SPARSE));
  const wrong = labels().dataSync().slice();
  wrong[40] = 99; // in the third of four batches
  const fit = model.fit(rows(), tf.tensor2d(wrong, [50, 1]), { ...QUIET, batchSize: 16 }).then(
    () => undefined,
    (error: unknown) => error,
  );
  let [counted, refused] = [0, 0];
  for (let i = 0; i < 12; i++)
    await model.trainOnBatch(rows(16), labels(16)).then(
      () => counted++,
      () => refused++,
    );
  expect(await fit).toBeInstanceOf(ReplicaError);
  expect(refused).toBeLessThan(12); // those behind the one that failed, until the fit has heard of it
  expect(iterations(model)).toBe(2 + counted);
});

it('buffers are made once for each size, whatever is computed in turns', async () => {
  const messages: string[] = [];
  const ask = pool.ask.bind(pool);
  const spy = vi.spyOn(pool, 'ask').mockImplementation((message, ...more) => {
    messages.push(message.kind);
    return ask(message, ...more);
  });
  try {
    const model = made();
    for (let i = 0; i < 3; i++) {
      await model.fit(rows(), oneHot(), { ...QUIET, batchSize: 16, validationSplit: 0.2 });
      for (const batchSize of [7, 1_000_000]) model.predict(rows(), { batchSize });
      await model.trainOnBatch(rows(8), oneHot(8));
    }
  } finally {
    spy.mockRestore();
  }
  // Two sets for steps, and that of predictions, which grows once: the validation has 10 rows.
  expect(messages.filter((kind) => kind === 'buffers')).toHaveLength(4);
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
