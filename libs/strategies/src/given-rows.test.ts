/** Arrays in place of tensors, and weights of rows, in the calls of a distributed model. */
import * as tf from '@tensorflow/tfjs-core';
import * as tfl from '@tensorflow/tfjs-layers';
import { afterAll, beforeAll, describe, expect, expectTypeOf, it } from 'vitest';
import {
  CLASSES,
  compiled,
  EXAMPLES,
  expectSame,
  FEATURES,
  kindAndSize,
  labels,
  mlp,
  numbers,
  oneHot,
  QUIET,
  rows,
  values,
  weightsOf,
} from './models.fixture.js';
import type { UserModel } from './model/tf-model.js';
import { MirroredStrategy, OneDeviceStrategy } from './thread-strategies.js';

let strategy: MirroredStrategy;
beforeAll(async () => {
  await tf.setBackend('cpu');
  strategy = new MirroredStrategy({ threads: 2 });
});
afterAll(() => strategy.dispose());

const SGD = () => tf.train.sgd(0.1);
const regression = () => compiled(mlp('linear', 1), SGD, { loss: 'meanSquaredError', metrics: ['mae'] });
const X = values(EXAMPLES * FEATURES, 1);
const Y = values(EXAMPLES, 5);
const nested = (flat: Float32Array, width: number): number[][] =>
  Array.from({ length: flat.length / width }, (_, row) => [...flat.subarray(row * width, (row + 1) * width)]);
/** Ends in the same model and numbers. */
const ARGS = { ...QUIET, epochs: 2, batchSize: 16, validationSplit: 0.1 };
const scalars = (found: tf.Scalar | tf.Scalar[]): number[] => [found].flat().map((value) => value.dataSync()[0]!);

describe('arrays', () => {
  it.each<
    [what: string, x: Parameters<ReturnType<typeof regressionOf>['fit']>[0], y: Parameters<ReturnType<typeof regressionOf>['fit']>[1]]
  >([
    ['typed', X, Y],
    ['of doubles', Float64Array.from(X), [...Y]],
    ['nested', nested(X, FEATURES), nested(Y, 1)],
    ['of rows', nested(X, FEATURES).map((row) => Float32Array.from(row)), [Y]],
    ['by name', { [INPUT]: X }, { [OUTPUT]: Y }],
    ['beside tensors', rows(), Y],
  ])('%s end in what tensors end in', async (_, x, y) => {
    const [ofTensors, ofArrays] = [strategy.scope(regression), regressionOf()];
    const before = tf.memory().numTensors;
    const validationData = [x, y] as const;
    const history = await ofArrays.fit(x, y, ARGS);
    await ofArrays.fit(x, y, { ...QUIET, epochs: 1, validationData });
    expect(tf.memory().numTensors - before, 'tensors are left').toBeLessThanOrEqual(0);
    expectSame(history, await ofTensors.fit(rows(), numbers(), ARGS), 0);
    await ofTensors.fit(rows(), numbers(), { ...QUIET, epochs: 1, validationData: [rows(), numbers()] });
    expect(weightsOf(ofArrays)).toEqual(weightsOf(ofTensors));
    expect(scalars(ofArrays.evaluate(x, y, { batchSize: 20 }))).toEqual(scalars(ofTensors.evaluate(rows(), numbers(), { batchSize: 20 })));
    const [mine, theirs] = [ofArrays.predict(x) as tf.Tensor, ofTensors.predict(rows()) as tf.Tensor];
    expect([mine.shape, mine.dataSync()]).toEqual([theirs.shape, theirs.dataSync()]);
    expect((ofArrays.predictOnBatch(x) as tf.Tensor).dataSync()).toEqual(theirs.dataSync());
    expect(await ofArrays.trainOnBatch(x, y)).toEqual(await ofTensors.trainOnBatch(rows(), numbers()));
  });

  it('are the numbers of classes, and rows of several inputs and outputs', async () => {
    const ofClasses = () => compiled(mlp(), SGD, { loss: 'sparseCategoricalCrossentropy' });
    const [ofTensors, ofArrays] = [strategy.scope(ofClasses), strategy.scope(ofClasses)];
    const given = Int32Array.from(labels().dataSync());
    expectSame(await ofArrays.fit(X, given, ARGS), await ofTensors.fit(rows(), labels(), ARGS), 0);
    const several = strategy.scope(twoOfEach);
    const [first, second] = [X.subarray(0, EXAMPLES * 2), X.subarray(EXAMPLES * 2, EXAMPLES * 5)];
    const { history } = await several.fit([first, nested(second, 3)], { kind: oneHot(), size: Y }, { ...QUIET, epochs: 1 });
    expect(Object.keys(history)).toContain('size_loss');
    expect((several.predict({ a: first, b: second }) as tf.Tensor[]).map(({ shape }) => shape)).toEqual([
      [EXAMPLES, CLASSES],
      [EXAMPLES, 1],
    ]);
  });

  it.each<[what: string, x: Float32Array | number[][], y: Float32Array, message: RegExp]>([
    [
      'a part of a row',
      X.subarray(1),
      Y,
      new RegExp(`^input ${'.*'}: an array of 599 numbers holds no whole number of rows of 12, .* \\[12\\]$`),
    ],
    ['too few targets', X, Y.subarray(1), /^target of output .* has 49 rows, and input .* has 50: give all the same number of rows$/],
    ['ragged', [[1, 2], [3]], Y, /^input .*: an array of 1 stands in a nested array where others have 2: give rows of one shape$/],
  ])('of another length are refused with both numbers: %s', async (_, x, y, message) => {
    const model = regressionOf();
    const expected = { code: 'STRATEGY_ARGUMENT', message: expect.stringMatching(message) as string };
    await expect(model.fit(x, y, QUIET)).rejects.toMatchObject(expected);
    expect(() => model.evaluate(x, y)).toThrow(expect.objectContaining(expected));
  });

  it('are for models of one strategy alone: afterwards the model is one of tf.js', async () => {
    const own = new OneDeviceStrategy();
    const model = own.scope(regression);
    expect(() => strategy.scope(twoOfEach).predict(X)).toThrow(/has 2 inputs \(a, b\), and one array was given/);
    await own.dispose();
    expect(Object.keys((model as unknown as UserModel).model ?? {})).not.toContain('fit');
    expectTypeOf(strategy.distribute<tfl.LayersModel>).returns.toHaveProperty('fit');
  });
});

const INPUT = 'rows';
const OUTPUT = 'number';
function named(): tfl.LayersModel {
  const initializer = (seed: number) => tfl.initializers.glorotUniform({ seed });
  const input = tfl.input({ shape: [FEATURES], name: INPUT });
  const hidden = tfl.layers.dense({ units: 16, activation: 'relu', kernelInitializer: initializer(1) }).apply(input);
  const output = tfl.layers.dense({ units: 1, name: OUTPUT, kernelInitializer: initializer(2) }).apply(hidden);
  return compiled(tfl.model({ inputs: input, outputs: output as tfl.SymbolicTensor }), SGD, { loss: 'meanSquaredError', metrics: ['mae'] });
}
const regressionOf = () => strategy.scope(named);

function twoOfEach(): tfl.LayersModel {
  const [a, b] = [tfl.input({ shape: [2], name: 'a' }), tfl.input({ shape: [3], name: 'b' })];
  const both = tfl.layers.concatenate().apply([a, b]) as tfl.SymbolicTensor;
  return kindAndSize(a, b, both, (seed) => tfl.initializers.glorotUniform({ seed }));
}

describe('weights of rows', () => {
  const weights = Float32Array.from({ length: EXAMPLES }, (_, i) => [0, 1, 2.5, 0.5][i % 4]!);

  it('multiply the loss of each row, whose sum is divided by the number of rows', async () => {
    const model = strategy.scope(named);
    const plain = named();
    plain.setWeights(model.getWeights());
    const predicted = (plain.predict(rows()) as tf.Tensor).dataSync();
    const ofRows = Array.from(Y, (target, i) => weights[i]! * (predicted[i]! - target) ** 2);
    const expected = ofRows.reduce((sum, loss) => sum + loss, 0) / EXAMPLES;
    const [loss, mae] = scalars(model.evaluate(X, Y, { sampleWeight: weights, batchSize: 16 }));
    expect(loss).toBeCloseTo(expected, 5);
    expect(mae, 'metrics are not weighted').toBeCloseTo(scalars(model.evaluate(X, Y))[1]!, 6);
    const { history } = await model.fit(X, Y, { ...QUIET, epochs: 1, batchSize: EXAMPLES, sampleWeight: weights });
    expect(history['loss']![0]).toBeCloseTo(expected, 5);
  });

  it('that are whole numbers end in the same step as rows that are there so many times', async () => {
    const times = (i: number): number => i % 3;
    const repeated = Array.from({ length: EXAMPLES }, (_, i) => Array<number>(times(i)).fill(i)).flat();
    const [weighted, copied] = [strategy.scope(named), strategy.scope(named)];
    await weighted.fit(X, Y, { ...QUIET, epochs: 1, batchSize: EXAMPLES, sampleWeight: Array.from(Y, (_, i) => times(i)) });
    // The mean is over more or fewer rows there.
    copied.optimizer.dispose();
    copied.compile({ optimizer: tf.train.sgd((0.1 * repeated.length) / EXAMPLES), loss: 'meanSquaredError', metrics: ['mae'] });
    const ofRows = (width: number, from: Float32Array): Float32Array =>
      Float32Array.from(repeated.flatMap((row) => [...from.subarray(row * width, (row + 1) * width)]));
    await copied.fit(ofRows(FEATURES, X), ofRows(1, Y), { ...QUIET, epochs: 1, batchSize: repeated.length });
    const [mine, theirs] = [weightsOf(weighted).flat(), weightsOf(copied).flat()];
    for (const [i, value] of mine.entries()) expect(value).toBeCloseTo(theirs[i]!, 5);
  });

  it('end in the same bits on any number of threads, and nearly the same as with one replica', async () => {
    const trained = async (options: object): Promise<number[]> => {
      const own = new MirroredStrategy(options);
      const model = own.scope(named);
      await model.fit(X, Y, { ...ARGS, sampleWeight: weights });
      const found = weightsOf(model).flat();
      await own.dispose();
      return found;
    };
    const [two, one, alone] = [
      await trained({ threads: 2, replicas: 2 }),
      await trained({ threads: 1, replicas: 2 }),
      await trained({ threads: 1, replicas: 1 }),
    ];
    expect(two).toEqual(one);
    for (const [i, value] of two.entries()) expect(value).toBeCloseTo(alone[i]!, 5);
  });

  it('multiply those of classes', async () => {
    const classWeight = { 0: 1, 1: 3, 2: 0.5 };
    const build = () => compiled(mlp(), SGD);
    const [both, product] = [strategy.scope(build), strategy.scope(build)];
    const classes = labels().dataSync();
    const sampleWeight = weights.map((weight, i) => weight * classWeight[classes[i]! as 0 | 1 | 2]);
    const args = { ...QUIET, epochs: 2, batchSize: 16 };
    expectSame(
      await both.fit(rows(), oneHot(), { ...args, classWeight, sampleWeight: weights }),
      await product.fit(rows(), oneHot(), { ...args, sampleWeight }),
      0,
    );
    expect(weightsOf(both)).toEqual(weightsOf(product));
  });

  it('are those of the validation too: of its split, or its own', async () => {
    const model = strategy.scope(named);
    const split = 45;
    const { history } = await model.fit(X, Y, { ...QUIET, epochs: 1, validationSplit: 0.1, sampleWeight: weights });
    const after = (sampleWeight?: Float32Array): number =>
      scalars(model.evaluate(X.subarray(split * FEATURES), Y.subarray(split), sampleWeight ? { sampleWeight } : {}))[0]!;
    expect(history['val_loss']![0]).toBeCloseTo(after(weights.subarray(split)), 6);
    expect(Math.abs(after() - after(weights.subarray(split)))).toBeGreaterThan(1e-3);
    const own = tf.tensor1d([2, 0, 1, 0, 3]);
    const validationData = [X.subarray(split * FEATURES), Y.subarray(split), own] as const;
    const { history: second } = await model.fit(X, Y, { ...QUIET, epochs: 1, validationData });
    expect(second['val_loss']![0]).toBeCloseTo(after(Float32Array.of(2, 0, 1, 0, 3)), 6);
    expect(own.isDisposed, 'it is of the program').toBe(false);
  });

  it('do not let class weights of several outputs through', async () => {
    const inputs = [X.subarray(0, EXAMPLES * 2), X.subarray(EXAMPLES * 2, EXAMPLES * 5)];
    const args = { ...QUIET, epochs: 1, batchSize: EXAMPLES, classWeight: { kind: { 0: 1, 1: 3, 2: 0.5 } } };
    for (const more of [{}, { sampleWeight: weights }, { validationData: [inputs, { kind: oneHot(), size: Y }, weights] as const }]) {
      const fitting = strategy.scope(twoOfEach).fit(inputs, { kind: oneHot(), size: Y }, { ...args, ...more });
      await expect(fitting).rejects.toThrow('classWeight: is not supported for models with several outputs');
    }
  });

  it('count at every output', async () => {
    const model = strategy.scope(twoOfEach);
    const [first, second] = [X.subarray(0, EXAMPLES * 2), X.subarray(EXAMPLES * 2, EXAMPLES * 5)];
    const targets = { kind: oneHot(), size: Y };
    const [, total] = scalars(model.evaluate([first, second], targets, { sampleWeight: weights.map(() => 2) }));
    const [, plain] = scalars(model.evaluate([first, second], targets));
    expect(total).toBeCloseTo(2 * plain!, 5);
    const args = { ...QUIET, epochs: 1, batchSize: EXAMPLES, sampleWeight: weights.map(() => 2) };
    const { history } = await model.fit([first, second], targets, args);
    expect(history['loss']![0]).toBeCloseTo(2 * plain!, 5);
    expect((history['kind_loss']![0] as number) + (history['size_loss']![0] as number)).toBeCloseTo(2 * plain!, 5);
  });

  it.each<[what: string, build: () => tfl.LayersModel, sampleWeight: unknown, code: string, message: RegExp]>([
    ['too few', named, [1, 2], 'STRATEGY_ARGUMENT', /^sampleWeight has 2 values, and input rows has 50 rows: give one for each row$/],
    [
      'of two dimensions',
      named,
      tf.ones([EXAMPLES, 2]),
      'STRATEGY_ARGUMENT',
      /^sampleWeight: give one number .*not a tensor of the shape \[50, 2\]/,
    ],
    ['no numbers', named, 'balanced', 'STRATEGY_ARGUMENT', /^sampleWeight: give one number for each row/],
    [
      'of each output',
      twoOfEach,
      [weights, weights],
      'STRATEGY_UNSUPPORTED',
      /^sampleWeight: .* weights of single outputs are not supported/,
    ],
    [
      'with a loss of a batch',
      () => compiled(mlp('linear', 1), SGD, { loss: tf.losses.meanSquaredError as unknown as string }),
      weights,
      'STRATEGY_UNSUPPORTED',
      /^sampleWeight: needs a loss by its name/,
    ],
  ])('are refused: %s', async (_, build, sampleWeight, code, message) => {
    const model = strategy.scope(build);
    const isTwo = build === twoOfEach;
    const x = isTwo ? [X.subarray(0, EXAMPLES * 2), X.subarray(EXAMPLES * 2, EXAMPLES * 5)] : X;
    const y = isTwo ? [oneHot(), Y] : Y;
    const args = { sampleWeight: sampleWeight as Float32Array };
    const expected = { code, message: expect.stringMatching(message) as string };
    await expect(model.fit(x, y, { ...QUIET, epochs: 1, ...args })).rejects.toMatchObject(expected);
    expect(() => model.evaluate(x, y, args)).toThrow(expect.objectContaining(expected));
  });
});

describe('bad data are named as tf.js names them', () => {
  const ones = (...shape: number[]): tf.Tensor => tf.ones(shape);
  type Given = readonly [x: unknown, y: unknown];
  const messageOf = async (call: () => unknown): Promise<string> => {
    try {
      await call();
    } catch (error) {
      return (error as Error).message;
    }
    throw new Error('it was taken');
  };
  const models = () => [named(), regressionOf()] as const;

  it.each<[what: string, given: Given]>([
    ['an input of another rank', [ones(4, FEATURES, 1), ones(4, 1)]],
    ['an input of another width', [ones(4, FEATURES - 1), ones(4, 1)]],
    ['an input by another name', [{ row: ones(4, FEATURES) }, ones(4, 1)]],
    ['too many inputs', [[ones(4, FEATURES), ones(4, FEATURES)], ones(4, 1)]],
    ['a target of another rank', [ones(4, FEATURES), ones(4, 1, 1)]],
    ['a target of another width', [ones(4, FEATURES), ones(4, 2)]],
    ['another number of targets', [ones(4, FEATURES), ones(3, 1)]],
    ['nothing', [undefined, ones(4, 1)]],
  ])('%s', async (_, [x, y]) => {
    const [plain, distributed] = models();
    const calls = (model: tfl.LayersModel): (() => unknown)[] => {
      const { fit, evaluate, trainOnBatch } = model as unknown as Record<string, (...data: unknown[]) => unknown>;
      return [
        () => fit!.call(model, x, y, { ...QUIET, epochs: 1 }),
        () => evaluate!.call(model, x, y),
        () => trainOnBatch!.call(model, x, y),
      ];
    };
    const [theirs, mine] = [calls(plain), calls(distributed)];
    for (const [i, call] of mine.entries()) expect(await messageOf(call)).toBe(await messageOf(theirs[i]!));
  });

  it('in predict, and as arrays: the same input, and the same numbers', async () => {
    const [plain, distributed] = models();
    for (const x of [ones(4, FEATURES, 1), ones(4, FEATURES - 1)]) {
      const theirs = await messageOf(() => plain.predict(x));
      expect(await messageOf(() => distributed.predict(x))).toBe(theirs);
      expect(await messageOf(() => distributed.predict(x.arraySync() as number[][]))).toBe(theirs);
    }
    const rank = await messageOf(() => plain.fit(ones(4, 1, 1), ones(4, 1), QUIET));
    expect(rank).toMatch(/^Error when checking input: expected rows to have 2 dimension/);
    const length = await messageOf(() => distributed.fit(new Float32Array(FEATURES + 1), [1], QUIET));
    expect(length).toMatch(/^input rows: an array of 13 numbers holds no whole number of rows of 12/);
  });

  it('a batch of a dataset, of which tf.js checks nothing: input, shape and rows', async () => {
    const [plain, distributed] = models();
    const dataset = {
      iterator: () =>
        Promise.resolve({ next: () => Promise.resolve({ done: false, value: { xs: ones(4, FEATURES - 1), ys: ones(4, 1) } }) }),
    };
    const fit = (model: tfl.LayersModel) => () => model.fitDataset(dataset as never, { epochs: 1, batchesPerEpoch: 1, verbose: 0 });
    // The first layer refuses it there.
    expect(await messageOf(fit(plain))).toMatch(/expected axis -1 of input shape to have value 12 but got shape 4,11/);
    expect(await messageOf(fit(distributed))).toBe('input rows: a batch of 4 examples has the shape [4, 12], not [4, 11]');
  });
});
