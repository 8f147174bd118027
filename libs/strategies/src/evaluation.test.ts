/** evaluate and predict of a distributed model against those of tf.js. */
import * as tf from '@tensorflow/tfjs-core';
import * as tfl from '@tensorflow/tfjs-layers';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ThreadError } from './errors.js';
import { CLASSES, compiled, EXAMPLES, expectSame, FEATURES, labels, mlp, numbers, oneHot, QUIET, rows, values } from './models.fixture.js';
import { MirroredStrategy, OneDeviceStrategy } from './thread-strategies.js';
import { PREDICT } from './threads/cells.js';
import type { ThreadPool } from './threads/thread-pool.js';

let strategy: MirroredStrategy;
beforeAll(async () => {
  await tf.setBackend('cpu');
  strategy = new MirroredStrategy({ threads: 2 });
});
afterAll(() => strategy.dispose());

const initializer = (seed: number) => tfl.initializers.heNormal({ seed });
/** Normalises by moving averages, drops nothing, and has a penalty that evaluate leaves out. */
function cnn(): tfl.Sequential {
  return tfl.sequential({
    layers: [
      tfl.layers.conv2d({ filters: 4, kernelSize: 3, activation: 'relu', inputShape: [8, 8, 1], kernelInitializer: initializer(1) }),
      tfl.layers.batchNormalization({ movingVarianceInitializer: tfl.initializers.constant({ value: 2 }) }),
      tfl.layers.dropout({ rate: 0.5, name: 'drop' }),
      tfl.layers.maxPooling2d({ poolSize: 2 }),
      tfl.layers.flatten(),
      tfl.layers.dense({
        units: CLASSES,
        activation: 'softmax',
        kernelInitializer: initializer(2),
        kernelRegularizer: tfl.regularizers.l2({ l2: 0.1 }),
      }),
    ],
  });
}
function twoEnds(): tfl.LayersModel {
  const [a, b] = [tfl.input({ shape: [FEATURES], name: 'a' }), tfl.input({ shape: [2], name: 'b' })];
  const both = tfl.layers.concatenate().apply([a, b]) as tfl.SymbolicTensor;
  const kind = tfl.layers.dense({ units: CLASSES, activation: 'softmax', name: 'kind', kernelInitializer: initializer(3) });
  const size = tfl.layers.dense({ units: 1, name: 'size', kernelInitializer: initializer(4) });
  return tfl.model({ inputs: [a, b], outputs: [kind.apply(both) as tfl.SymbolicTensor, size.apply(both) as tfl.SymbolicTensor] });
}
const images = () => tf.tensor4d(values(EXAMPLES * 64, 7), [EXAMPLES, 8, 8, 1]);
const pairs = () => [rows(), tf.tensor2d(values(EXAMPLES * 2, 4), [EXAMPLES, 2])];
const ends = { loss: ['categoricalCrossentropy', 'meanSquaredError'], metrics: ['accuracy'] };
const own = (target: tf.Tensor, output: tf.Tensor) => tf.max(tf.abs(tf.sub(target, output)));

const numbersOf = (given: tf.Tensor | tf.Tensor[]): number[][] => [given].flat().map((tensor) => [...tensor.dataSync()]);
function expectClose(actual: tf.Tensor | tf.Tensor[], expected: tf.Tensor | tf.Tensor[]): void {
  expect([actual].flat().map(({ shape, dtype }) => [shape, dtype])).toEqual([expected].flat().map(({ shape, dtype }) => [shape, dtype]));
  const [mine, theirs] = [numbersOf(actual), numbersOf(expected)];
  for (const [i, of] of theirs.entries())
    for (const [j, value] of of.entries()) expect(mine[i]![j], `value ${j} of ${i}`).toBeCloseTo(value, 5);
}
const bothOf = <M extends tfl.LayersModel>(build: () => M): [plain: M, distributed: M] => [build(), strategy.scope(build)];

describe('as tf.js', () => {
  it.each<[string, () => tfl.LayersModel, Partial<tfl.ModelCompileArgs>, () => tf.Tensor | tf.Tensor[], () => tf.Tensor | tf.Tensor[]]>([
    ['an MLP', mlp, { metrics: ['accuracy', 'mse'] }, rows, oneHot],
    ['classes as numbers', mlp, { loss: 'sparseCategoricalCrossentropy' }, rows, labels],
    ['a ratio over a batch', mlp, { metrics: ['accuracy', 'precision'] }, rows, oneHot],
    ['a metric of your own, over a batch', mlp, { metrics: [own, 'accuracy'] }, rows, oneHot],
    ['a loss of tf.losses', () => mlp('linear', 1), { loss: 'huberLoss', metrics: [] }, rows, numbers],
    ['a CNN with a penalty, dropout and batch normalisation', cnn, {}, images, oneHot],
    ['several inputs and outputs', twoEnds, ends as never, pairs, () => [oneHot(), numbers()]],
  ])('%s', (_, model, args, xs, ys) => {
    const given = args.loss === 'huberLoss' ? { ...args, loss: tf.losses.huberLoss as unknown as string } : args;
    const [plain, distributed] = bothOf(() => compiled(model(), () => 'sgd', given));
    for (const batchSize of [undefined, 7, 64]) {
      const options = batchSize === undefined ? {} : { batchSize };
      expectClose(distributed.evaluate(xs(), ys(), options), plain.evaluate(xs(), ys(), options));
      expectClose(distributed.predict(xs(), options), plain.predict(xs(), options));
    }
    expectClose(distributed.predictOnBatch(xs()), plain.predictOnBatch(xs()));
    strategy.release(distributed);
  });

  it('a dataset, and the validation of fit with several outputs', async () => {
    const [plain, distributed] = bothOf(() => compiled(twoEnds(), () => tf.train.sgd(0.05), ends as never));
    const dataset = () => {
      const sizes = [7, 1, 30];
      const next = () => {
        const size = sizes.shift();
        const part = (tensor: tf.Tensor) => tf.slice(tensor, 0, size);
        const value = size === undefined ? null : { xs: pairs().map(part), ys: [oneHot(), numbers()].map(part) };
        return Promise.resolve({ value, done: size === undefined });
      };
      return { iterator: () => Promise.resolve({ next }) } as never;
    };
    expectClose(await distributed.evaluateDataset(dataset(), {}), await plain.evaluateDataset(dataset(), {}));
    const args = { ...QUIET, epochs: 2, batchSize: 16, validationSplit: 0.3 };
    const fit = (model: tfl.LayersModel) => model.fit(pairs(), [oneHot(), numbers()], args);
    expectSame(await fit(distributed), await fit(plain));
  });

  it('more rows than fit into a block, and none left behind', () => {
    const inputShape = [1 << 16]; // so wide that a block has 32 rows
    const [xs, ys] = [tf.tensor2d(values(70 * inputShape[0]!, 2), [70, inputShape[0]!]), oneHot(70)];
    const dense = () => tfl.layers.dense({ units: CLASSES, activation: 'softmax', inputShape, kernelInitializer: initializer(1) });
    const [plain, distributed] = bothOf(() => compiled(tfl.sequential({ layers: [dense()] }), () => 'sgd'));
    tf.tidy(() => void distributed.predict(tf.slice(xs, 0, 3)));
    const before = tf.memory().numTensors;
    expectClose(distributed.evaluate(xs, ys, { batchSize: 10 }), plain.evaluate(xs, ys, { batchSize: 10 }));
    expectClose(distributed.predict(xs, { batchSize: 10 }), plain.predict(xs, { batchSize: 10 }));
    expect(tf.memory().numTensors - before).toBe(6);
  });

  it('refuses what tf.js refuses', () => {
    const [plain, distributed] = bothOf(() => compiled(mlp(), () => 'sgd'));
    for (const act of [
      (model: tfl.LayersModel) => model.evaluate(rows(), oneHot(), { steps: 2 }),
      (model: tfl.LayersModel) => model.evaluate(rows(), oneHot(), { verbose: 1 }),
      (model: tfl.LayersModel) => model.evaluate(rows(), oneHot(3)),
      (model: tfl.LayersModel) => model.predict(tf.ones([2, 5])),
    ]) {
      let message = '';
      try {
        act(plain);
      } catch (error) {
        ({ message } = error as Error);
      }
      expect(message).not.toBe('');
      expect(() => act(distributed)).toThrow(message.replace(/dense_Dense\d+/, distributed.inputNames[0]!.replace('_input', '')));
    }
  });
});

it('computes in the threads, with the weights that were set last', async () => {
  const one = new OneDeviceStrategy();
  const { pool } = (one as unknown as { exchange: { pool: ThreadPool } }).exchange;
  const kinds: number[] = [];
  const compute = pool.compute.bind(pool);
  pool.compute = (...args) => {
    kinds.push(args[0]);
    return compute(...args);
  };
  const model = one.scope(() => compiled(mlp(), () => 'sgd'));
  const first = model.predict(rows()) as tf.Tensor;
  expect(kinds).toEqual([PREDICT]);
  model.setWeights(model.getWeights().map((weight) => tf.zerosLike(weight)));
  const zeroed = model.predict(rows()) as tf.Tensor;
  expect([...zeroed.dataSync()].every((value) => Math.abs(value - 1 / CLASSES) < 1e-6)).toBe(true);
  expect([...first.dataSync()].some((value) => Math.abs(value - 1 / CLASSES) > 0.1)).toBe(true);
  const { workers } = pool as unknown as { workers: { terminate(): Promise<number> }[] };
  await workers[0]!.terminate();
  expect(() => model.predict(rows())).toThrow(ThreadError);
  await one.dispose();
  expectClose(model.predict(rows()) as tf.Tensor, zeroed);
});
