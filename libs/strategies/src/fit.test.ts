/** fit of a distributed model against fit of tf.js: the same numbers, the same History, whatever is asked of it. */
import { createHash } from 'node:crypto';
import '@tensorflow/tfjs-backend-wasm';
import * as tf from '@tensorflow/tfjs-core';
import * as tfl from '@tensorflow/tfjs-layers';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  kindAndSize,
  CLASSES,
  compiled,
  EXAMPLES,
  expectSame,
  FEATURES,
  labels,
  mlp,
  numbers,
  oneHot,
  QUIET,
  rows,
  values,
  weightsOf,
  type Optimizer,
} from './models.fixture.js';
import { CentralStorageStrategy, MirroredStrategy, OneDeviceStrategy } from './thread-strategies.js';

let strategy: MirroredStrategy;
beforeAll(async () => {
  await tf.setBackend('cpu');
  strategy = new MirroredStrategy({ threads: 2 });
});
afterAll(() => strategy.dispose());

const OPTIMIZERS: Readonly<Record<string, Optimizer>> = {
  sgd: () => tf.train.sgd(0.1),
  'sgd by name': () => 'sgd',
  momentum: () => tf.train.momentum(0.05, 0.9),
  nesterov: () => tf.train.momentum(0.05, 0.9, true),
  adam: () => tf.train.adam(0.01),
  'adam with a large epsilon': () => tf.train.adam(0.05, 0.8, 0.99, 0.1),
  'adam by name': () => 'adam',
  adamax: () => tf.train.adamax(0.01, 0.9, 0.999, 1e-7, 0.01),
  adagrad: () => tf.train.adagrad(0.1),
  adadelta: () => tf.train.adadelta(1),
  rmsprop: () => tf.train.rmsprop(0.01),
  'rmsprop with momentum': () => tf.train.rmsprop(0.01, 0.9, 0.5),
};

describe('as tf.js', () => {
  it.each(Object.keys(OPTIMIZERS))('with %s', async (name) => {
    const build = () => compiled(mlp(), OPTIMIZERS[name]!);
    const [plain, distributed] = [build(), strategy.scope(build)];
    // 50 examples in batches of 16: the last one has two, one for each replica.
    const args = { ...QUIET, epochs: 4, batchSize: 16, validationSplit: 0.1 };
    expectSame(await distributed.fit(rows(), oneHot(), args), await plain.fit(rows(), oneHot(), args));
    expect(distributed.optimizer.iterations).toBe(plain.optimizer.iterations);
    const [mine, theirs] = [weightsOf(distributed), weightsOf(plain)];
    for (const [w, weight] of mine.entries()) for (const [i, value] of weight.entries()) expect(value).toBeCloseTo(theirs[w]![i]!, 3);
  });

  it.each([
    ['meanSquaredError', 'linear', 1, () => numbers()],
    ['meanAbsoluteError', 'linear', 1, () => numbers()],
    ['logcosh', 'linear', 1, () => numbers()],
    ['sparseCategoricalCrossentropy', 'softmax', CLASSES, () => labels()],
    ['kullbackLeiblerDivergence', 'softmax', CLASSES, () => oneHot()],
    ['categoricalHinge', 'linear', CLASSES, () => oneHot()],
    ['cosineProximity', 'linear', CLASSES, () => oneHot()],
    ['binaryCrossentropy', 'softmax', CLASSES, () => oneHot()],
    ['squaredHinge', 'linear', 1, () => tf.tensor2d(values(EXAMPLES, 3).map(Math.sign), [EXAMPLES, 1])],
    ['tf.losses.softmaxCrossEntropy', 'linear', CLASSES, () => oneHot()],
    ['tf.losses.sigmoidCrossEntropy', 'linear', CLASSES, () => oneHot()],
    ['tf.losses.meanSquaredError', 'linear', CLASSES, () => oneHot()],
    ['tf.losses.huberLoss', 'linear', CLASSES, () => oneHot()],
  ] as const)('with the loss %s', async (loss, output, units, targets) => {
    const functions = tf.losses as unknown as Readonly<Record<string, string>>;
    const given = loss.startsWith('tf.') ? functions[loss.slice('tf.losses.'.length)]! : loss;
    const build = () => compiled(mlp(output, units), () => tf.train.sgd(0.05), { loss: given, metrics: ['mse', 'accuracy'] });
    const [plain, distributed] = [build(), strategy.scope(build)];
    const args = { ...QUIET, epochs: 2, batchSize: 20 };
    expectSame(await distributed.fit(rows(), targets(), args), await plain.fit(rows(), targets(), args));
  });

  it('with a small CNN, regularizers and batches of one example', async () => {
    const build = () => {
      const initializer = (seed: number) => tfl.initializers.heNormal({ seed });
      const model = tfl.sequential({
        layers: [
          tfl.layers.conv2d({ filters: 4, kernelSize: 3, activation: 'relu', inputShape: [8, 8, 1], kernelInitializer: initializer(1) }),
          tfl.layers.maxPooling2d({ poolSize: 2 }),
          tfl.layers.flatten(),
          tfl.layers.dense({
            units: CLASSES,
            activation: 'softmax',
            kernelInitializer: initializer(2),
            kernelRegularizer: tfl.regularizers.l2({ l2: 0.01 }),
          }),
        ],
      });
      return compiled(model, () => tf.train.momentum(0.02, 0.9));
    };
    const xs = tf.tensor4d(values(13 * 64, 7), [13, 8, 8, 1]);
    const [plain, distributed] = [build(), strategy.scope(build)];
    const args = { ...QUIET, epochs: 3, batchSize: 6, validationData: [xs, oneHot(13)] as [tf.Tensor, tf.Tensor] };
    expectSame(await distributed.fit(xs, oneHot(13), args), await plain.fit(xs, oneHot(13), args));
  });

  it('with several inputs and outputs, a frozen layer and a nested model', async () => {
    const build = () => {
      const kernelInitializer = (seed: number) => tfl.initializers.glorotNormal({ seed });
      const [a, b] = [tfl.input({ shape: [FEATURES], name: 'a' }), tfl.input({ shape: [2], name: 'b' })];
      const encoder = tfl.sequential({
        name: 'encoder',
        layers: [tfl.layers.dense({ units: 5, inputShape: [FEATURES], activation: 'tanh', kernelInitializer: kernelInitializer(1) })],
      });
      const frozen = tfl.layers.dense({ units: 4, name: 'kept', kernelInitializer: kernelInitializer(2), trainable: false });
      const both = tfl.layers.concatenate().apply([encoder.apply(a) as tfl.SymbolicTensor, frozen.apply(b) as tfl.SymbolicTensor]);
      return kindAndSize(a, b, both as tfl.SymbolicTensor, kernelInitializer);
    };
    const [plain, distributed] = [build(), strategy.scope(build)];
    const before = distributed.getLayer('kept').getWeights()[0]!.dataSync<'float32'>().slice();
    const xs = [rows(), tf.tensor2d(values(EXAMPLES * 2, 4), [EXAMPLES, 2])];
    const args = { ...QUIET, epochs: 3, batchSize: 16 };
    expectSame(await distributed.fit(xs, [oneHot(), numbers()], args), await plain.fit(xs, [oneHot(), numbers()], args));
    expect(distributed.getLayer('kept').getWeights()[0]!.dataSync<'float32'>()).toEqual(before);
  });

  it('with class weights, a metric of your own and the rows in the order of tf.js', async () => {
    const own = (target: tf.Tensor, output: tf.Tensor) => tf.max(tf.abs(tf.sub(target, output)), -1);
    const build = () => compiled(mlp(), () => tf.train.sgd(0.1), { metrics: ['accuracy', own] });
    const [plain, distributed] = [build(), strategy.scope(build)];
    const args = { verbose: 0 as const, epochs: 3, batchSize: 16, classWeight: { 0: 1, 1: 3, 2: 0.5 } };
    const seeded = async (model: tfl.LayersModel) => {
      const { random } = Math;
      let state = 1;
      Math.random = () => (state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0) / 2 ** 32;
      try {
        return await model.fit(rows(), oneHot(), args);
      } finally {
        Math.random = random;
      }
    };
    expectSame(await seeded(distributed), await seeded(plain));
  });

  it('with a dataset, trainOnBatch and a batch of another size', async () => {
    const build = () => compiled(mlp(), () => tf.train.adam(0.01));
    const [plain, distributed] = [build(), strategy.scope(build)];
    const dataset = {
      iterator: () => {
        const sizes = [7, 1, 30];
        return Promise.resolve({
          next: () => {
            const size = sizes.shift();
            const value = size === undefined ? null : { xs: rows(size), ys: oneHot(size) };
            return Promise.resolve({ value, done: size === undefined });
          },
        });
      },
    };
    const args = { verbose: 0 as const, epochs: 3, validationData: [rows(), oneHot()] as [tf.Tensor, tf.Tensor] };
    expectSame(await distributed.fitDataset(dataset as never, args), await plain.fitDataset(dataset as never, args));
    const [mine, theirs] = [await distributed.trainOnBatch(rows(), oneHot()), await plain.trainOnBatch(rows(), oneHot())];
    (mine as number[]).forEach((value, i) => expect(value).toBeCloseTo((theirs as number[])[i]!, 4));
  });
});

describe('on the wasm backend of tf.js', () => {
  beforeAll(async () => void (await tf.setBackend('wasm')));
  afterAll(async () => void (await tf.setBackend('cpu')));

  it('is the same, also while its memory grows', async () => {
    const build = () => compiled(mlp(), () => tf.train.adam(0.01), { metrics: ['accuracy', 'mse'] });
    const [plain, distributed] = [build(), strategy.scope(build)];
    const args = { ...QUIET, epochs: 3, batchSize: 16, classWeight: { 0: 1, 1: 2, 2: 1 } };
    expectSame(await distributed.fit(rows(), oneHot(), args), await plain.fit(rows(), oneHot(), args));
    const kept: tf.Tensor[] = [];
    const growing = Object.assign({}, args, { callbacks: { onBatchEnd: () => void kept.push(tf.ones([1 << 20])) } });
    expectSame(await distributed.fit(rows(), oneHot(), growing), await plain.fit(rows(), oneHot(), growing));
    tf.dispose(kept);
  });
});

describe('bits', () => {
  const trained = async (of: MirroredStrategy | CentralStorageStrategy | OneDeviceStrategy): Promise<unknown> => {
    const model = of.scope(() => {
      const net = tfl.sequential({
        layers: [
          tfl.layers.dense({
            units: 400,
            activation: 'relu',
            inputShape: [FEATURES],
            kernelInitializer: tfl.initializers.glorotUniform({ seed: 1 }),
          }),
          tfl.layers.batchNormalization(),
          tfl.layers.dropout({ rate: 0.3, name: 'drop' }),
          tfl.layers.dense({ units: 100, activation: 'relu', kernelInitializer: tfl.initializers.glorotUniform({ seed: 2 }) }),
          tfl.layers.dense({ units: CLASSES, activation: 'softmax', kernelInitializer: tfl.initializers.glorotUniform({ seed: 3 }) }),
        ],
      });
      return compiled(net, () => tf.train.adam(0.01));
    });
    const { history } = await model.fit(rows(), oneHot(), { ...QUIET, epochs: 2, batchSize: 17 });
    const answers = [model.predict(rows()), model.evaluate(rows(), oneHot(), { batchSize: 17 })].flat();
    await of.dispose();
    const hash = createHash('sha256');
    for (const weight of [...model.getWeights(), ...answers]) hash.update(weight.dataSync<'float32'>());
    return { history, values: hash.digest('hex') };
  };

  it('are the same for 1, 2 and 4 threads, and for both strategies', async () => {
    const one = await trained(new MirroredStrategy({ threads: 1, replicas: 4, seed: 7 }));
    expect(await trained(new MirroredStrategy({ threads: 4, seed: 7 }))).toEqual(one);
    expect(await trained(new CentralStorageStrategy({ threads: 2, replicas: 4, seed: 7 }))).toEqual(one);
  });

  it('follow the seed, and one replica has one thread', async () => {
    const one = new OneDeviceStrategy({ seed: 7 });
    expect(one.numReplicasInSync).toBe(1);
    const [a, b] = [await trained(one), await trained(new MirroredStrategy({ replicas: 1, seed: 8 }))];
    expect(a).not.toEqual(b);
  });
});
