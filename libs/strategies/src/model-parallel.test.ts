/** Models in stages: the bits of MirroredStrategy with as many replicas as micro-batches, the numbers of tf.js, and what is refused. */
import * as tf from '@tensorflow/tfjs-core';
import * as tfl from '@tensorflow/tfjs-layers';
import { afterEach, beforeAll, describe, expect, it } from 'vitest';
import { ThreadError } from './errors.js';
import { ModelParallelStrategy } from './model-parallel.js';
import {
  kindAndSize,
  CLASSES,
  compiled,
  expectSame,
  FEATURES,
  mlp,
  oneHot,
  QUIET,
  rows,
  values,
  weightsOf,
  type Optimizer,
} from './models.fixture.js';
import type { Strategy } from './strategy.js';
import { MirroredStrategy } from './thread-strategies.js';

const IS_SOAK = process.env['PACELINE_SOAK'] === '1';

beforeAll(() => tf.setBackend('cpu'));

const open: Strategy[] = [];
function kept<S extends Strategy>(strategy: S): S {
  open.push(strategy);
  return strategy;
}
afterEach(async () => {
  for (const strategy of open.splice(0)) await strategy.dispose();
});

const kernel = (seed: number) => tfl.initializers.glorotUniform({ seed });
const IMAGES = 22;
const images = (): tf.Tensor4D => tf.tensor4d(values(IMAGES * 64, 7), [IMAGES, 8, 8, 1]);

/** Random numbers, moving averages and penalties, in more than one stage. */
function cnn(): tfl.Sequential {
  return tfl.sequential({
    layers: [
      tfl.layers.conv2d({ filters: 4, kernelSize: 3, inputShape: [8, 8, 1], kernelInitializer: kernel(1), name: 'conv' }),
      tfl.layers.batchNormalization({ name: 'norm' }),
      tfl.layers.activation({ activation: 'relu', name: 'relu' }),
      tfl.layers.maxPooling2d({ poolSize: 2, name: 'pool' }),
      tfl.layers.dropout({ rate: 0.25, name: 'drop' }),
      tfl.layers.flatten({ name: 'flat' }),
      tfl.layers.dense({
        units: 8,
        activation: 'tanh',
        kernelInitializer: kernel(2),
        kernelRegularizer: tfl.regularizers.l2({ l2: 0.01 }),
        name: 'hidden',
      }),
      tfl.layers.dropout({ rate: 0.25, name: 'drop2' }),
      tfl.layers.dense({ units: CLASSES, activation: 'softmax', kernelInitializer: kernel(3), name: 'out' }),
    ],
  });
}

const bits = (model: tfl.LayersModel): string =>
  JSON.stringify(weightsOf(model).map((weight) => [...new Uint32Array(Float32Array.from(weight).buffer)]));

describe('a model in stages', () => {
  it.each([
    { stages: 3, pipelines: 1, microBatches: 5, batchSize: 7 },
    // Micro-batches, and in predictions pipelines, without rows; nodes of the tree that lie in two pipelines.
    { stages: 2, pipelines: 3, microBatches: 3, batchSize: 5 },
    ...(IS_SOAK
      ? [
          { stages: 2, pipelines: 1, microBatches: 4, batchSize: 8 },
          { stages: 2, pipelines: 1, microBatches: 1, batchSize: 8 },
          { stages: 3, pipelines: 1, microBatches: 4, batchSize: 2 },
          { stages: 2, pipelines: 2, microBatches: 2, batchSize: 9 },
          { stages: 3, pipelines: 2, microBatches: 5, batchSize: 22 },
          { stages: 2, pipelines: 4, microBatches: 1, batchSize: 8 },
        ]
      : []),
  ])('%o has the bits of as many replicas', async ({ stages, pipelines, microBatches, batchSize }) => {
    const build = () => compiled(cnn(), () => tf.train.adam(0.01));
    const mirrored = kept(new MirroredStrategy({ threads: 1, replicas: pipelines * microBatches, seed: 5 }));
    const parallel = kept(new ModelParallelStrategy({ stages, pipelines, microBatches, seed: 5 }));
    expect(parallel.numReplicasInSync).toBe(pipelines);
    const [expected, staged] = [mirrored.scope(build), parallel.scope(build)];
    const args = { ...QUIET, epochs: 3, batchSize };
    const [xs, ys] = [images(), oneHot(IMAGES)];
    expectSame(await staged.fit(xs, ys, args), await expected.fit(xs, ys, args), 1e-6);
    expect(bits(staged)).toBe(bits(expected));
    expect(parallel.stagesOf(staged)).toHaveLength(stages);
    for (const rowsAtOnce of [5, 1, 1000, 9]) {
      const [a, b] = [staged, expected].map((model) => (model.predict(xs, { batchSize: rowsAtOnce }) as tf.Tensor).dataSync());
      expect(a).toEqual(b);
    }
    // What the program writes is what the stages go on with; a frozen layer keeps its values.
    for (const model of [staged, expected]) {
      model.setWeights(model.getWeights().map((weight) => tf.mul(weight, 0.5)));
      model.getLayer('hidden').trainable = false;
      compiled(model, () => tf.train.momentum(0.05, 0.9));
      await model.fit(xs, ys, args);
    }
    expect(bits(staged)).toBe(bits(expected));
  });

  it.each(['adamax', 'rmsprop', ...(IS_SOAK ? (['sgd', 'adagrad'] as const) : [])] as const)(
    'is trained by %s as tf.js does it, with validation and class weights',
    async (optimizer) => {
      const build = () => compiled(mlp(), () => optimizer);
      const parallel = kept(new ModelParallelStrategy({ stages: 2, microBatches: 3 }));
      const [plain, staged] = [build(), parallel.scope(build)];
      const args = { ...QUIET, epochs: 3, batchSize: 16, validationSplit: 0.1, classWeight: { 0: 1, 1: 3, 2: 0.5 } };
      expectSame(await staged.fit(rows(), oneHot(), args), await plain.fit(rows(), oneHot(), args));
      await parallel.dispose();
      expectSame(await staged.fit(rows(), oneHot(), args), await plain.fit(rows(), oneHot(), args));
    },
  );

  it('with two inputs, of which the second stage reads one, and two outputs', async () => {
    const build = () => {
      const [a, b] = [tfl.input({ shape: [FEATURES], name: 'a' }), tfl.input({ shape: [2], name: 'b' })];
      const first = tfl.layers
        .dense({ units: 5, activation: 'tanh', kernelInitializer: kernel(1), name: 'first' })
        .apply(a) as tfl.SymbolicTensor;
      const both = tfl.layers.concatenate({ name: 'both' }).apply([first, b]) as tfl.SymbolicTensor;
      return kindAndSize(a, b, both, kernel);
    };
    const parallel = kept(new ModelParallelStrategy({ cutAfter: ['first'] }));
    const [plain, staged] = [build(), parallel.scope(build)];
    expect(parallel.stagesOf(staged)).toEqual([['first'], ['both', 'kind', 'size']]);
    const xs = [rows(), tf.tensor2d(values(50 * 2, 4), [50, 2])];
    const args = { ...QUIET, epochs: 3, batchSize: 16 };
    const ys = [oneHot(), tf.tensor2d(values(50, 5), [50, 1])];
    expectSame(await staged.fit(xs, ys, args), await plain.fit(xs, ys, args));
    const evaluated = (model: tfl.LayersModel) =>
      (model.evaluate(xs, ys, { batchSize: 8 }) as tf.Scalar[]).map((value) => value.dataSync()[0]!);
    evaluated(staged).forEach((value, i) => expect(value).toBeCloseTo(evaluated(plain)[i]!, 4));
  });

  it('goes on after a step that has failed in the last stage, with the weights from before it, and names the micro-batch', async () => {
    const sparse: Partial<tfl.ModelCompileArgs> = { loss: 'sparseCategoricalCrossentropy', metrics: [] };
    const parallel = kept(new ModelParallelStrategy({ stages: 2, microBatches: 4 }));
    const model = parallel.scope(() => compiled(mlp(), () => tf.train.sgd(0.1), sparse));
    const good = tf.tensor2d(
      Array.from({ length: 16 }, (_, i) => i % CLASSES),
      [16, 1],
    );
    const bad = tf.tensor2d(
      Array.from({ length: 16 }, (_, i) => (i === 9 ? CLASSES : 0)),
      [16, 1],
    );
    const train = (ys: tf.Tensor) => model.trainOnBatch(rows(16), ys);
    await train(good);
    const before = bits(model);
    for (let i = 0; i < 2; i++)
      await expect(train(bad)).rejects.toThrow(/replica 2, step 1: label 3 of example 1 is not one of the 3 classes/);
    expect(bits(model)).toBe(before);
    await train(good);
    expect(bits(model)).not.toBe(before);
  });

  it.each([
    { stages: 3, pipelines: 1, microBatches: 5, failed: 2 },
    { stages: 2, pipelines: 2, microBatches: 3, failed: 3 },
  ])('goes on after a step, and a prediction, that have failed in the first stage: %o', async ({ failed, ...sizes }) => {
    const build = () => {
      const layers = [
        tfl.layers.rescaling({ scale: 1, inputShape: [2] }), // ids that come from the data are looked at before the step
        tfl.layers.reshape({ targetShape: [2] }), // tf.js writes the shape of the encoding over that of what comes
        tfl.layers.categoryEncoding({ numTokens: 4, outputMode: 'multiHot' }),
        tfl.layers.dense({ units: 6, kernelInitializer: kernel(1) }),
        tfl.layers.dense({ units: 5, kernelInitializer: kernel(2) }),
        tfl.layers.dense({ units: 1, kernelInitializer: kernel(3) }),
      ];
      return compiled(tfl.sequential({ layers }), () => tf.train.sgd(0.1), { loss: 'meanSquaredError', metrics: [] });
    };
    const parallel = kept(new ModelParallelStrategy(sizes));
    const mirrored = kept(new MirroredStrategy({ threads: 1, replicas: sizes.pipelines * sizes.microBatches }));
    const [staged, expected] = [parallel.scope(build), mirrored.scope(build)];
    const named = new RegExp(`replica ${failed}, step 1, layer .*: .*numTokens`);
    const numbersWith = (wrong: number) =>
      tf.tensor2d(
        Array.from({ length: 40 }, (_, i) => (i === 22 ? wrong : i % 4)),
        [20, 2],
      );
    const ys = tf.ones([20, 1]);
    for (const model of [staged, expected]) {
      await model.trainOnBatch(numbersWith(1), ys);
      await expect(model.trainOnBatch(numbersWith(9), ys)).rejects.toThrow(named);
      expect(() => model.predict(numbersWith(9), { batchSize: 3 })).toThrow(/numTokens/);
      await model.trainOnBatch(numbersWith(2), ys);
    }
    expect(bits(staged)).toBe(bits(expected));
  });

  it('marks a step whose loss is no number where other strategies do', async () => {
    const build = () => compiled(mlp('linear', 1), () => tf.train.sgd(0.1), { loss: 'meanAbsoluteError', metrics: [] });
    const [parallel, mirrored] = [
      kept(new ModelParallelStrategy({ pipelines: 2, microBatches: 2 })),
      kept(new MirroredStrategy({ threads: 1, replicas: 4 })),
    ];
    const [staged, expected] = [parallel.scope(build), mirrored.scope(build)];
    const ys = tf.tensor2d(
      Array.from({ length: 16 }, (_, i) => (i === 5 ? Infinity : i)),
      [16, 1],
    );
    for (const model of [staged, expected]) await model.trainOnBatch(rows(16), ys);
    expect(weightsOf(staged)[0]![0]).toBeNaN();
    expect(weightsOf(staged)).toEqual(weightsOf(expected));
  });

  it('says that a thread has ended while others wait at a boundary, and ends them', async () => {
    const parallel = new ModelParallelStrategy({ stages: 2, pipelines: 2 });
    const model = parallel.scope(() => compiled(mlp(), () => 'adam'));
    await model.fit(rows(), oneHot(), { ...QUIET, epochs: 1 });
    const { exchange } = parallel as unknown as { exchange: { pool: { workers: { terminate(): Promise<number> }[] } } };
    await exchange.pool.workers[2]!.terminate(); // the first stage of the second pipeline, for which its second one waits
    await expect(model.fit(rows(), oneHot(), { ...QUIET, epochs: 1 })).rejects.toBeInstanceOf(ThreadError);
    await parallel.dispose();
    await model.fit(rows(), oneHot(), { ...QUIET, epochs: 1 });
  });

  it('two models of a strategy take turns', async () => {
    const parallel = kept(new ModelParallelStrategy({ stages: 2 }));
    const build = (optimizer: Optimizer) => parallel.scope(() => compiled(mlp(), optimizer));
    const models = [build(() => tf.train.sgd(0.1)), build(() => tf.train.adam(0.1))];
    const alone = kept(new ModelParallelStrategy({ stages: 2 }));
    const expected = alone.scope(() => compiled(mlp(), () => tf.train.adam(0.1)));
    for (let i = 0; i < 3; i++)
      for (const model of [...models, expected]) await model.fit(rows(), oneHot(), { ...QUIET, epochs: 1, batchSize: 20 });
    expect(bits(models[1]!)).toBe(bits(expected));
  });
});

it('takes the name of a nested model for its last layer', async () => {
  const parallel = kept(new ModelParallelStrategy({ cutAfter: ['encoder'] }));
  const model = parallel.scope(() => {
    const dense = (name: string, units: number) => tfl.layers.dense({ name, units });
    const encoder = tfl.sequential({
      name: 'encoder',
      layers: [tfl.layers.dense({ name: 'a', units: 4, inputShape: [FEATURES] }), dense('b', 3)],
    });
    const input = tfl.input({ shape: [FEATURES] });
    const output = dense('out', CLASSES).apply(encoder.apply(input)) as tfl.SymbolicTensor;
    return compiled(tfl.model({ inputs: input, outputs: output }), () => 'sgd', { loss: 'meanSquaredError' });
  });
  await model.fit(rows(), oneHot(), QUIET);
  expect(parallel.stagesOf(model)).toEqual([['encoder/a', 'encoder/b'], ['out']]);
});

describe('is refused', () => {
  it.each([
    [{ stages: 1 }, /stages must be a whole number from 2 to 256, not 1/],
    [{ stages: 2.5 }, /stages must be a whole number/],
    [{ pipelines: 0 }, /pipelines must be a whole number from 1 to 128 with 2 stages, as there are at most 256 threads, not 0/],
    [{ stages: 100, pipelines: 3 }, /pipelines must be a whole number from 1 to 2 with 100 stages/],
    [{ microBatches: 0 }, /microBatches must be a whole number from 1 to 1024, not 0/],
    [{ pipelines: 4, microBatches: 257 }, /microBatches must be a whole number from 1 to 256, 1024 in all pipelines, not 257/],
    [{ cutAfter: 'first' }, /cutAfter must be an array of 1 to 255 names of layers/],
    [{ cutAfter: [] }, /cutAfter must be an array/],
    [{ stages: 3, cutAfter: ['a'] }, /3 stages end after 2 layers and the last one, and cutAfter names 1/],
    [{ threads: 2 }, /ModelParallelStrategy has no option "threads": it takes stages, pipelines, microBatches, cutAfter, seed, deadlineMs/],
    [{ seed: -1 }, /seed must be a whole number/],
    [null, /ModelParallelStrategy takes an object with stages/],
  ])('the options %j', (options, message) => {
    expect(() => new ModelParallelStrategy(options as never)).toThrow(message);
  });

  it('a model that has too few layers, a layer that is not there, and a function', async () => {
    const parallel = kept(new ModelParallelStrategy({ stages: 3 }));
    const model = parallel.scope(() => compiled(mlp(), () => 'sgd'));
    const refused = /stages: the model can be cut into at most 2 stages, and not into 3: set stages to 2 or less/;
    await expect(model.fit(rows(), oneHot(), QUIET)).rejects.toThrow(refused);
    expect(() => parallel.stagesOf(model)).toThrow(refused);
    await expect(parallel.run({ module: 'file:///step.mjs', name: 'step' })).rejects.toThrow(/a function is not cut into stages/);
    const named = kept(new ModelParallelStrategy({ cutAfter: ['hiden'] }));
    const other = named.scope(() => compiled(mlp(), () => 'sgd'));
    await expect(other.fit(rows(), oneHot(), QUIET)).rejects.toThrow(/cutAfter: the model has no layer "hiden". It can be cut after \S+$/);
    expect(() => named.stagesOf(model)).toThrow(/stagesOf takes a model that this strategy distributes/);
    await named.dispose();
    expect(() => named.stagesOf(other)).toThrow(/the strategy is disposed/);
    await expect(named.run({ module: 'file:///step.mjs', name: 'step' })).rejects.toThrow(/the strategy is disposed/);
  });
});
