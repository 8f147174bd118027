/** What a distributed model is to the program around it: callbacks, weights, the optimizer, refusals, errors. */
import { createRequire } from 'node:module';
import * as tf from '@tensorflow/tfjs-core';
import * as tfl from '@tensorflow/tfjs-layers';
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { ArgumentError, ForeignModelError, ReplicaError, ScopeError, StrategyError, UnsupportedError } from './errors.js';
import type { Exchange } from './exchange.js';
import { DistributedModel } from './model/distributed-model.js';
import { CLASSES, compiled, EXAMPLES, expectSame, labels, mlp, oneHot, type Optimizer, QUIET, rows, weightsOf } from './models.fixture.js';
import { MirroredStrategy, OneDeviceStrategy } from './thread-strategies.js';
import type { ThreadPool } from './threads/thread-pool.js';

let strategy: MirroredStrategy;
beforeAll(async () => {
  await tf.setBackend('cpu');
  strategy = new MirroredStrategy({ threads: 2 });
});
afterAll(() => strategy.dispose());

const adam = () => tf.train.adam(0.02);
const pair = (optimizer: Optimizer = adam): [plain: tfl.Sequential, distributed: tfl.Sequential] => [
  compiled(mlp(), optimizer),
  strategy.scope(() => compiled(mlp(), optimizer)),
];
const args = { ...QUIET, epochs: 2, batchSize: 16 };
const isDistributed = (model: tfl.LayersModel): boolean =>
  Object.hasOwn((model as unknown as { model: object }).model, 'makeTrainFunction');

describe('fit', () => {
  it('calls callbacks as tf.js does, with the weights of that moment', async () => {
    const record = async (model: tfl.LayersModel): Promise<unknown[]> => {
      const seen: unknown[] = [];
      await model.fit(rows(), oneHot(), {
        ...args,
        initialEpoch: 1,
        epochs: 3,
        callbacks: {
          onEpochBegin: (epoch) => void seen.push(['begin', epoch]),
          onBatchEnd: (batch, logs) => {
            seen.push([batch, Object.keys(logs!), logs!['size'], Number(weightsOf(model)[0]![5]!.toFixed(4))]);
          },
          onEpochEnd: (epoch, logs) => void seen.push(['end', epoch, Object.keys(logs!)]),
        },
      });
      return seen;
    };
    const [plain, distributed] = pair();
    const seen = await record(distributed);
    expect(seen).toEqual(await record(plain));
    expect(new Set(seen.flatMap((entry) => (entry as unknown[])[3] ?? [])).size).toBe(8);
  });

  it('takes the rows of the epochs that follow where a training of several processes is continued', async () => {
    const { exchange } = strategy as unknown as { exchange: Exchange };
    // Rows are in the common order of all processes, though there is one only.
    const shared = {
      replicas: 2,
      isShared: true,
      local: exchange.local,
      call: () => [],
      shareValues: (_, values) => values,
      open: (plan) => exchange.open(plan),
      dispose: () => exchange.dispose(),
    } satisfies Exchange;
    const trained = async (...parts: [initialEpoch: number, epochs: number][]): Promise<unknown> => {
      let weights: tf.Tensor[] | undefined;
      for (const [initialEpoch, epochs] of parts) {
        const model = compiled(mlp(), () => tf.train.sgd(0.1));
        if (weights) model.setWeights(weights);
        const distributed = new DistributedModel(model as never, shared, 3, () => undefined);
        await model.fit(rows(), oneHot(), { ...args, shuffle: true, initialEpoch, epochs });
        distributed.detach();
        weights = model.getWeights();
      }
      return weights!.map((weight) => [...weight.dataSync()]);
    };
    expect(await trained([0, 2], [2, 3])).toEqual(await trained([0, 3]));
  });

  it('shows the weights of the moment in tensors of getWeights that were kept, too', async () => {
    const [plain, distributed] = pair();
    const record = async (model: tfl.LayersModel): Promise<string[]> => {
      const [kernel] = model.getWeights();
      const seen: string[] = [];
      const note = () => void seen.push(kernel!.dataSync()[7]!.toFixed(4), tf.sum(kernel!).dataSync()[0]!.toFixed(3));
      await model.fit(rows(), oneHot(), { ...args, callbacks: { onEpochEnd: note } });
      return seen;
    };
    const seen = await record(distributed);
    expect(seen).toEqual(await record(plain));
    expect(new Set(seen).size).toBe(4);
  });

  it('stops early, and when it is told to', async () => {
    const [plain, distributed] = pair(() => tf.train.adam(0.3));
    const stopping = () => ({
      ...args,
      epochs: 12,
      validationSplit: 0.3,
      callbacks: [tfl.callbacks.earlyStopping({ monitor: 'val_loss', patience: 1 })],
    });
    const [mine, theirs] = [await distributed.fit(rows(), oneHot(), stopping()), await plain.fit(rows(), oneHot(), stopping())];
    expect(mine.epoch.length).toBeLessThan(12);
    expect(mine.epoch).toEqual(theirs.epoch);
    const told = await distributed.fit(rows(), oneHot(), {
      ...args,
      epochs: 5,
      callbacks: { onEpochEnd: (epoch) => void (epoch === 1 && (distributed.stopTraining = true)) },
    });
    expect(told.epoch).toEqual([0, 1]);
  });

  it('goes on where the last one ended, also in tf.js, and back', async () => {
    const [plain, distributed] = pair();
    for (const _ of [1, 2]) expectSame(await distributed.fit(rows(), oneHot(), args), await plain.fit(rows(), oneHot(), args));
    const [mine, theirs] = [await distributed.optimizer.getWeights(), await plain.optimizer.getWeights()];
    expect(mine.map(({ name }) => name.replace(/_\d+|Dense\d+/g, ''))).toEqual(
      theirs.map(({ name }) => name.replace(/_\d+|Dense\d+/g, '')),
    );
    for (const [i, { tensor }] of mine.entries()) {
      const [a, b] = [tensor.dataSync(), theirs[i]!.tensor.dataSync()];
      a.forEach((value, j) => expect(value).toBeCloseTo(b[j]!, 4));
    }
    // The state that getWeights gives makes another optimizer go on as this one.
    const other = strategy.scope(() => compiled(mlp(), adam));
    other.setWeights(distributed.getWeights());
    await other.optimizer.setWeights(mine);
    const expected = await plain.fit(rows(), oneHot(), args);
    expectSame(await other.fit(rows(), oneHot(), args), expected);
    expectSame(await distributed.fit(rows(), oneHot(), args), expected);
  });

  it('takes up weights that were set, and another learning rate', async () => {
    const [plain, distributed] = pair(() => tf.train.momentum(0.05, 0.9));
    await distributed.fit(rows(), oneHot(), args);
    await plain.fit(rows(), oneHot(), args);
    for (const model of [plain, distributed]) {
      const [first, ...rest] = model.getWeights();
      model.setWeights([tf.mul(first!, 0.5), ...rest]);
      (model.optimizer as tf.SGDOptimizer).setLearningRate(0.2);
    }
    expectSame(await distributed.fit(rows(), oneHot(), args), await plain.fit(rows(), oneHot(), args));
  });

  it('goes on after compile, and with an optimizer that is put in its place', async () => {
    const [plain, distributed] = pair();
    for (const model of [plain, distributed]) {
      await model.fit(rows(), oneHot(), args);
      compiled(model, () => tf.train.sgd(0.1), { metrics: ['mse'] });
    }
    expectSame(await distributed.fit(rows(), oneHot(), args), await plain.fit(rows(), oneHot(), args));
    for (const model of [plain, distributed]) model.optimizer = tf.train.rmsprop(0.01);
    expectSame(await distributed.fit(rows(), oneHot(), args), await plain.fit(rows(), oneHot(), args));
  });

  it('leaves no tensor behind', async () => {
    const [, distributed] = pair();
    const [xs, ys] = [rows(), oneHot()];
    await distributed.fit(xs, ys, args);
    weightsOf(distributed);
    const before = tf.memory().numTensors;
    await distributed.fit(xs, ys, { ...args, validationData: [xs, ys] });
    weightsOf(distributed);
    expect(tf.memory().numTensors).toBe(before);
  });
});

it('evaluate, predict and toJSON show what fit has learned', async () => {
  const [plain, distributed] = pair();
  for (const model of [plain, distributed]) await model.fit(rows(), oneHot(), args);
  const of = (model: tfl.LayersModel): number[] => [
    ...(model.evaluate(rows(), oneHot()) as tf.Scalar[]).map((value) => value.dataSync()[0]!),
    ...(model.predict(rows()) as tf.Tensor).dataSync<'float32'>(),
  ];
  const theirs = of(plain);
  of(distributed).forEach((value, i) => expect(value).toBeCloseTo(theirs[i]!, 4));
  expect(JSON.stringify(distributed.toJSON())).toContain('Sequential');
});

describe('scope', () => {
  afterEach(() => void vi.restoreAllMocks());

  it('touches no other model, and no prototype', () => {
    const { compile, makeTrainFunction } = tfl.LayersModel.prototype as unknown as Record<string, unknown>;
    const own = compiled(mlp(), adam);
    const result = strategy.scope(() => ({ a: compiled(mlp(), adam), b: mlp(), n: 3 }));
    expect(result.n).toBe(3);
    expect((tfl.LayersModel.prototype as unknown as Record<string, unknown>)['compile']).toBe(compile);
    expect((tfl.LayersModel.prototype as unknown as Record<string, unknown>)['makeTrainFunction']).toBe(makeTrainFunction);
    expect(isDistributed(own)).toBe(false);
    expect(isDistributed(result.a)).toBe(true);
    compiled(result.b, adam);
    expect(isDistributed(result.b), 'compiled later').toBe(true);
    expect(() => strategy.scope(() => expect.fail('mine'))).toThrow('mine');
    expect((tfl.LayersModel.prototype as unknown as Record<string, unknown>)['compile']).toBe(compile);
  });

  it('refuses an asynchronous function, whose later models it would miss', () => {
    let early: tfl.LayersModel | undefined;
    const build = async () => {
      early = compiled(mlp(), adam);
      await Promise.resolve();
      return compiled(mlp(), adam);
    };
    expect(() => strategy.scope(build)).toThrow(ScopeError);
    expect(() => strategy.scope(build)).toThrow('Await what the models need before');
    expect(isDistributed(early!)).toBe(false);
  });

  it('a model of another copy of tf.js is refused', () => {
    const require = createRequire(import.meta.url);
    const path = require.resolve('@tensorflow/tfjs-layers');
    const kept = require.cache[path];
    delete require.cache[path];
    const copy = require('@tensorflow/tfjs-layers') as typeof tfl;
    require.cache[path] = kept;
    const foreign = copy.sequential({ layers: [copy.layers.dense({ name: 'foreign', units: 1, inputShape: [2] })] });
    expect(() => strategy.distribute(foreign)).toThrow(ForeignModelError);
    expect(() => strategy.scope(() => foreign)).toThrow('another copy of @tensorflow/tfjs-layers');
  });

  it('a model that is disposed or released takes no memory in the threads any more', async () => {
    const { exchange } = strategy as unknown as { exchange: { pool: ThreadPool } };
    const asked = vi.spyOn(exchange.pool, 'ask');
    for (const end of [(model: tfl.LayersModel) => model.dispose(), (model: tfl.LayersModel) => strategy.release(model)]) {
      const model = strategy.scope(() => compiled(mlp(), adam));
      await model.trainOnBatch(rows(), oneHot());
      asked.mockClear();
      end(model);
      strategy.release(model);
      expect(asked.mock.calls.map(([{ kind }]) => kind)).toEqual(['close']);
      expect(isDistributed(model)).toBe(false);
    }
  });

  it('a model that one thread cannot open is closed in the others', async () => {
    const { exchange } = strategy as unknown as { exchange: { pool: ThreadPool } };
    const ask = exchange.pool.ask.bind(exchange.pool);
    const asked = vi.spyOn(exchange.pool, 'ask').mockImplementation((message, threads) => {
      const answers = ask(message, threads);
      return message.kind === 'open' ? [answers[0]!, { kind: 'failed', message: 'no memory left' }] : answers;
    });
    const model = strategy.scope(() => compiled(mlp(), adam));
    await expect(model.trainOnBatch(rows(), oneHot())).rejects.toThrow('no memory left');
    expect(asked.mock.calls.map(([{ kind }]) => kind)).toEqual(['describe', 'open', 'close']);
    vi.restoreAllMocks();
    await model.trainOnBatch(rows(), oneHot());
    model.dispose();
  });

  it('distribute takes a model once, and of one strategy', async () => {
    const model = compiled(mlp(), adam);
    expect(strategy.distribute(model)).toBe(model);
    expect(strategy.distribute(model)).toBe(model);
    expect(strategy.numReplicasInSync).toBe(2);
    const other = new OneDeviceStrategy();
    expect(() => other.distribute(model)).toThrow(ArgumentError);
    expect(() => other.distribute({} as never)).toThrow('a model of tf.js');
    await other.dispose();
    await other.dispose();
    expect(() => other.scope(() => 1)).toThrow(StrategyError);
  });
});

describe('refused with its name', () => {
  const refusal = (build: () => unknown): Error => {
    try {
      strategy.scope(build);
    } catch (error) {
      return error as Error;
    }
    throw new Error('nothing was refused');
  };

  it('a loss or an optimizer of your own', () => {
    const mine = (a: tf.Tensor, b: tf.Tensor) => tf.sub(a, b);
    const loss = refusal(() => compiled(mlp(), adam, { loss: mine }));
    expect(loss).toBeInstanceOf(UnsupportedError);
    expect(loss.message).toContain('loss mine: a loss of your own');
    class Own extends tf.SGDOptimizer {
      static override get className(): string {
        return 'Own';
      }
    }
    expect(refusal(() => compiled(mlp(), () => new Own(0.1))).message).toContain('optimizer Own');
    class Clipped extends tf.SGDOptimizer {}
    expect(refusal(() => compiled(mlp(), () => new Clipped(0.1))).message).toContain('optimizer Clipped (with methods of its own)');
    const changed = Object.assign(tf.train.sgd(0.1), { applyGradients: () => undefined });
    expect(refusal(() => compiled(mlp(), () => changed)).message).toContain('with methods of its own');
    const refused = compiled(mlp(), () => changed);
    expect(() => strategy.distribute(refused)).toThrow(UnsupportedError);
    expect([Object.hasOwn(refused, 'compile'), isDistributed(refused)]).toEqual([false, false]);
  });

  it('a layer that the engine does not have, or a setting of it', () => {
    class Lambda extends tfl.layers.Layer {
      static readonly className = 'Lambda';
      override call(inputs: tf.Tensor | tf.Tensor[]): tf.Tensor | tf.Tensor[] {
        return inputs;
      }
    }
    const withLayer = (layer: tfl.layers.Layer) => () => {
      const model = mlp();
      model.add(layer);
      return compiled(model, adam);
    };
    expect(refusal(withLayer(new Lambda({ name: 'mine' }))).message).toMatch(/^layer mine \(Lambda\)/);
    const constrained = tfl.layers.dense({ units: CLASSES, name: 'last', kernelConstraint: tfl.constraints.nonNeg() });
    expect(refusal(withLayer(constrained)).message).toMatch(/^layer last \(Dense\), kernel_constraint: constraints are not supported/);
  });

  it('an input of unknown size, and rows that do not fit', async () => {
    const open = () =>
      compiled(
        tfl.sequential({
          layers: [tfl.layers.conv1d({ filters: CLASSES, kernelSize: 1, inputShape: [null, 2] }), tfl.layers.globalMaxPooling1d()],
        }),
        adam,
      );
    expect(refusal(open).message).toContain('every dimension but that of the batch must be known');
    const [, distributed] = pair();
    const dataset = {
      iterator: () => Promise.resolve({ next: () => Promise.resolve({ value: { xs: tf.ones([4, 3]), ys: tf.ones([4, 3]) }, done: true }) }),
    };
    await expect(distributed.fitDataset(dataset as never, { epochs: 1, verbose: 0 })).rejects.toThrow('has the shape [4, 12], not [4, 3]');
  });

  it('targets that tf.js and Keras read otherwise, and class weights that mean nothing', async () => {
    const hinge = strategy.scope(() => compiled(mlp('linear'), adam, { loss: 'hinge' }));
    await expect(hinge.fit(rows(), oneHot(), args)).rejects.toThrow('loss hinge: its targets are −1 and 1');
    const ofBatch = strategy.scope(() => compiled(mlp('linear'), adam, { loss: tf.losses.softmaxCrossEntropy as never }));
    await expect(ofBatch.fit(rows(), oneHot(), { ...args, classWeight: { 0: 1, 1: 2, 2: 1 } })).rejects.toThrow(
      'classWeight: needs a loss by its name',
    );
  });

  it.each([
    [{ threads: 0 }, 'threads must be a whole number from 1'],
    [{ threads: 1.5 }, 'threads must be'],
    [{ threads: 3, replicas: 2 }, '3 threads for 2 replicas'],
    [{ replicas: 'two' }, 'replicas must be'],
    [{ thread: 2 }, 'has no option "thread"'],
    [{ deadlineMs: 0 }, 'deadlineMs must be'],
    ['two', 'takes an object'],
  ])('options %j', (options, message) => {
    expect(() => new MirroredStrategy(options as never)).toThrow(message);
  });
});

describe('a replica that fails', () => {
  it('is named with the step, and nothing has changed', async () => {
    const distributed = strategy.scope(() => compiled(mlp(), adam, { loss: 'sparseCategoricalCrossentropy' }));
    await distributed.fit(rows(), labels(), args);
    const before = weightsOf(distributed);
    const wrong = labels().arraySync();
    wrong[EXAMPLES - 1] = [CLASSES];
    const fit = distributed.fit(rows(), tf.tensor2d(wrong), { ...args, batchSize: EXAMPLES });
    await expect(fit).rejects.toMatchObject({ name: 'ReplicaError', code: 'STRATEGY_REPLICA', replica: 1, step: 8, layer: undefined });
    expect(weightsOf(distributed)).toEqual(before);
    await distributed.fit(rows(), labels(), args);
    expect(distributed.optimizer.iterations).toBe(16);
  });

  it('is named with its layer', async () => {
    const encoded = strategy.scope(() => {
      const layers = [
        tfl.layers.reshape({ targetShape: [1], inputShape: [1] }),
        tfl.layers.categoryEncoding({ numTokens: 4, outputMode: 'oneHot', name: 'encoded' } as never),
        tfl.layers.dense({ units: CLASSES, activation: 'softmax' }),
      ];
      return compiled(tfl.sequential({ layers }), adam);
    });
    const fit = encoded.fit(tf.tensor2d([[1], [9]]), oneHot(2), { ...args, epochs: 1 });
    await expect(fit).rejects.toBeInstanceOf(ReplicaError);
    await expect(fit).rejects.toMatchObject({ layer: 'encoded', replica: 1, step: 0 });
  });
});

it('after dispose a model is one of tf.js again, with its weights and its optimizer', async () => {
  const own = new OneDeviceStrategy();
  const [plain] = pair();
  const model = own.scope(() => compiled(mlp(), adam));
  for (const each of [plain, model]) await each.fit(rows(), oneHot(), args);
  await own.dispose();
  expect(isDistributed(model)).toBe(false);
  expectSame(await model.fit(rows(), oneHot(), args), await plain.fit(rows(), oneHot(), args));
  expect(model.optimizer.iterations).toBe(16);
});
