/** Replicas that train alone between averages, against plain models of tf.js that do the same. */
import * as tf from '@tensorflow/tfjs-core';
import * as tfl from '@tensorflow/tfjs-layers';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { ArgumentError, ClusterConfigError, ReplicaError } from './errors.js';
import { LocalUpdateStrategy } from './local-update.js';
import type { LocalUpdateOptions } from './strategy-options.js';
import { CLASSES, compiled, EXAMPLES, expectSame, FEATURES, mlp, oneHot, QUIET, rows, weightsOf } from './models.fixture.js';
import { MirroredStrategy, OneDeviceStrategy } from './thread-strategies.js';
import type { ThreadPool } from './threads/thread-pool.js';

const BATCH = 16;
const [REPLICAS, EPOCHS] = [2, 2];
let strategy: LocalUpdateStrategy;
beforeAll(async () => {
  await tf.setBackend('cpu');
  strategy = new LocalUpdateStrategy({ threads: REPLICAS, localSteps: 3 });
});
afterAll(() => strategy.dispose());

const momentum = () => tf.train.momentum(0.1, 0.9);
const build = () => compiled(mlp(), momentum);
const args = { ...QUIET, epochs: EPOCHS, batchSize: BATCH };
const mean = (values: readonly number[][][]): number[][] =>
  values[0]!.map((of, w) => of.map((_, i) => values.reduce((sum, one) => sum + one[w]![i]!, 0) / values.length));

/** The same with a model of tf.js for each replica. Batches of 16, 16, 16 and 2 rows, in halves. */
async function simulated(
  localSteps: number,
  outer?: { readonly rate: number; readonly momentum: number },
  syncSteps = 0,
  keepsSlots = false,
): Promise<number[][]> {
  const models = Array.from({ length: REPLICAS }, build);
  const shapes = models[0]!.getWeights().map(({ shape }) => shape);
  const tensors = (values: number[][]) => values.map((of, i) => tf.tensor(of, shapes[i]));
  const slotsOf = async (model: tfl.Sequential) =>
    (await model.optimizer.getWeights()).slice(1).map(({ tensor }) => [...tensor.dataSync()]);
  let common = weightsOf(models[0]!);
  let velocity = common.map((of) => of.map(() => 0));
  let alone = 0;
  const average = async (): Promise<void> => {
    alone = 0;
    const reached = mean(models.map(weightsOf));
    if (outer) {
      const gradient = common.map((of, w) => of.map((value, i) => value - reached[w]![i]!));
      velocity = velocity.map((of, w) => of.map((value, i) => outer.momentum * value + gradient[w]![i]!));
      common = common.map((of, w) => of.map((value, i) => value - outer.rate * (gradient[w]![i]! + outer.momentum * velocity[w]![i]!)));
    } else common = reached;
    const slots = mean(await Promise.all(models.map(slotsOf)));
    for (const model of models) {
      model.setWeights(tensors(common));
      if (keepsSlots) continue;
      const [steps, ...accumulations] = await model.optimizer.getWeights();
      await model.optimizer.setWeights([
        steps!,
        ...accumulations.map(({ name }, i) => ({ name, tensor: tf.tensor(slots[i]!, shapes[i]) })),
      ]);
    }
  };
  const [xs, ys] = [rows(), oneHot()];
  for (let step = 0; step < EPOCHS * 4; step++) {
    const from = (step % 4) * BATCH;
    const half = Math.min(BATCH, EXAMPLES - from) / 2;
    for (const [r, model] of models.entries())
      await model.trainOnBatch(tf.slice(xs, from + r * half, half), tf.slice(ys, from + r * half, half));
    if (++alone === (step < syncSteps ? 1 : localSteps)) await average();
  }
  if (alone > 0) await average();
  return common;
}
const trained = async (of: LocalUpdateStrategy): Promise<number[][]> => {
  const model = of.scope(build);
  await model.fit(rows(), oneHot(), args);
  return weightsOf(model);
};
function expectClose(actual: number[][], expected: number[][]): void {
  for (const [w, of] of expected.entries()) for (const [i, value] of of.entries()) expect(actual[w]![i]).toBeCloseTo(value, 5);
}

it.each(['average', 'keep'] as const)(
  'averages models after their steps, with the same bits on 1 and 2 threads, innerState %s of optimizers',
  async (innerState) => {
    const options = { replicas: REPLICAS, localSteps: 3, innerState };
    const [two, one] = [2, 1].map((threads) => new LocalUpdateStrategy({ ...options, threads })) as [
      LocalUpdateStrategy,
      LocalUpdateStrategy,
    ];
    const weights = await trained(two);
    expectClose(weights, await simulated(3, undefined, 0, innerState === 'keep'));
    expect(await trained(one)).toEqual(weights);
    await one.dispose();
    await two.dispose();
  },
);

it('takes its first steps together, with the bits of MirroredStrategy, and goes on alone from there', async () => {
  const options = { replicas: REPLICAS, localSteps: 3, syncSteps: 3 };
  const [two, one] = [2, 1].map((threads) => new LocalUpdateStrategy({ ...options, threads })) as [
    LocalUpdateStrategy,
    LocalUpdateStrategy,
  ];
  const weights = await trained(two);
  // With momentum the mean of one step of each replica is the step of their mean gradient.
  expectClose(weights, await simulated(3, undefined, 3));
  expect(await trained(one)).toEqual(weights);
  await one.dispose();
  await two.dispose();
  const together = new LocalUpdateStrategy({ ...options, threads: REPLICAS, syncSteps: EPOCHS * 4 });
  const mirrored = new MirroredStrategy({ threads: REPLICAS });
  const fit = async (of: LocalUpdateStrategy | MirroredStrategy) => {
    const model = of.scope(build);
    const { history } = await model.fit(rows(), oneHot(), args);
    return [weightsOf(model), history['loss']];
  };
  expect(await fit(together)).toEqual(await fit(mirrored));
  await together.dispose();
  await mirrored.dispose();
});

it.each(['average', 'keep'] as const)('takes an outer step with Nesterov momentum, innerState %s', async (innerState) => {
  const outer = new LocalUpdateStrategy({
    threads: REPLICAS,
    localSteps: 2,
    outer: 'nesterov',
    innerState,
    outerLearningRate: 0.5,
    outerMomentum: 0.8,
  });
  const weights = await trained(outer);
  await outer.dispose();
  expectClose(weights, await simulated(2, { rate: 0.5, momentum: 0.8 }, 0, innerState === 'keep'));
});

/** Plain models of tf.js that exchange the weights of a layer at a time: kernel and bias of layer l are fragment l. */
async function simulatedFragments(
  localSteps: number,
  delay: number,
  mixing: number,
  outer: { readonly rate: number; readonly momentum: number },
) {
  const models = Array.from({ length: REPLICAS }, build);
  const shapes = models[0]!.getWeights().map(({ shape }) => shape);
  const common = weightsOf(models[0]!);
  const velocity = common.map((of) => of.map(() => 0));
  const fragments = shapes.length / 2;
  let underWay: { readonly fragment: number; readonly due: number; readonly reached: number[][] } | undefined;
  const take = (own: number): void => {
    if (!underWay) return;
    const weights = models.map(weightsOf);
    for (const w of [2 * underWay.fragment, 2 * underWay.fragment + 1]) {
      const gradient = common[w]!.map((value, i) => value - underWay!.reached[w]![i]!);
      velocity[w] = velocity[w]!.map((value, i) => outer.momentum * value + gradient[i]!);
      common[w] = common[w]!.map((value, i) => value - outer.rate * (gradient[i]! + outer.momentum * velocity[w]![i]!));
      for (const of of weights) of[w] = of[w]!.map((value, i) => own * value + (1 - own) * common[w]![i]!);
    }
    for (const [r, model] of models.entries()) model.setWeights(weights[r]!.map((of, w) => tf.tensor(of, shapes[w])));
    underWay = undefined;
  };
  const begin = (fragment: number, due: number): void => void (underWay = { fragment, due, reached: mean(models.map(weightsOf)) });
  const [xs, ys] = [rows(), oneHot()];
  for (let step = 1; step <= EPOCHS * 4; step++) {
    const from = ((step - 1) % 4) * BATCH;
    const half = Math.min(BATCH, EXAMPLES - from) / 2;
    for (const [r, model] of models.entries())
      await model.trainOnBatch(tf.slice(xs, from + r * half, half), tf.slice(ys, from + r * half, half));
    if (underWay?.due === step) take(mixing);
    for (let fragment = 0; fragment < fragments; fragment++)
      if (step % localSteps === Math.floor(((fragment + 1) * localSteps) / fragments) % localSteps) begin(fragment, step + delay);
    if (delay === 0) take(0);
  }
  take(mixing);
  for (let fragment = 0; fragment < fragments; fragment++) {
    begin(fragment, 0);
    take(0);
  }
  return common;
}

it('exchanges a fragment at a time, takes it some steps later, and mixes it, with the same bits on 1 and 2 threads', async () => {
  for (const delay of [0, 2]) {
    const streaming = { fragments: 2, ...(delay > 0 ? { delay, mixing: 0.25 } : {}) };
    const options = {
      replicas: REPLICAS,
      localSteps: 5,
      outer: 'nesterov',
      outerLearningRate: 0.5,
      outerMomentum: 0.8,
      ...streaming,
    } as const;
    const [two, one] = [2, 1].map((threads) => new LocalUpdateStrategy({ ...options, threads })) as [
      LocalUpdateStrategy,
      LocalUpdateStrategy,
    ];
    const { pool } = (two as unknown as { exchange: { pool: ThreadPool } }).exchange;
    const course: string[] = [];
    const [ask, began] = [pool.ask.bind(pool), pool.begin.bind(pool)];
    pool.ask = (message, threads) => {
      if (message.kind === 'fragment') course.push(`${message.part} ${message.fragment}`);
      return ask(message, threads);
    };
    pool.begin = (...of) => {
      course.push('step');
      return began(...of);
    };
    const weights = await trained(two);
    expectClose(weights, await simulatedFragments(5, delay, 0.25, { rate: 0.5, momentum: 0.8 }));
    const [begin, middle] = [
      ['step', 'step', 'collect 0'],
      ['step', 'step', 'step', 'collect 1'],
    ];
    const known =
      delay === 0
        ? [...begin, 'take 0', ...middle, 'take 1', 'step', 'step', 'collect 0', 'take 0', 'step']
        : [...begin, 'step', 'step', 'take 0', 'step', 'collect 1', 'step', 'step', 'take 1', 'collect 0', 'step', 'take 0'];
    expect(course.slice(0, known.length)).toEqual(known);
    expect(await trained(one)).toEqual(weights);
    await one.dispose();
    await two.dispose();
  }
});

it('refuses more fragments than a model has layers, and what a run of the service does not do with them', async () => {
  const three = new LocalUpdateStrategy({ threads: 1, replicas: 2, localSteps: 4, fragments: 3 });
  await expect(three.scope(build).trainOnBatch(rows(), oneHot())).rejects.toThrow('it has 2 layers with weights');
  expect(() => three.toRun()).toThrow('set localSteps to a multiple of fragments');
  await three.dispose();
  const [even, late] = [{}, { delay: 1 }].map(
    (more) => new LocalUpdateStrategy({ threads: 1, replicas: 2, localSteps: 6, fragments: 3, ...more }),
  );
  expect(even!.toRun().strategy).toMatchObject({ kind: 'local-update', localSteps: 2, fragments: 3 });
  expect(() => late!.toRun()).toThrow('leave delay out');
  await Promise.all([even!.dispose(), late!.dispose()]);
});

/** Plain models of tf.js that go on with their own weights, and a centre. */
async function simulatedElastic(localSteps: number, rate: number): Promise<number[][]> {
  const models = Array.from({ length: REPLICAS }, build);
  const shapes = models[0]!.getWeights().map(({ shape }) => shape);
  let centre = weightsOf(models[0]!);
  let alone = 0;
  const exchange = (): void => {
    alone = 0;
    const own = models.map(weightsOf);
    const reached = mean(own);
    for (const [r, model] of models.entries())
      model.setWeights(
        own[r]!.map((of, w) =>
          tf.tensor(
            of.map((value, i) => value + rate * (centre[w]![i]! - value)),
            shapes[w],
          ),
        ),
      );
    centre = centre.map((of, w) => of.map((value, i) => value + rate * REPLICAS * (reached[w]![i]! - value)));
  };
  const [xs, ys] = [rows(), oneHot()];
  for (let step = 0; step < EPOCHS * 4; step++) {
    const from = (step % 4) * BATCH;
    const half = Math.min(BATCH, EXAMPLES - from) / 2;
    for (const [r, model] of models.entries())
      await model.trainOnBatch(tf.slice(xs, from + r * half, half), tf.slice(ys, from + r * half, half));
    if (++alone === localSteps) exchange();
  }
  if (alone > 0) exchange();
  return centre;
}

it('elastic: copies keep their weights and optimizers, and are pulled towards the common ones, with equal bits on 1 and 2 threads', async () => {
  const options = { replicas: REPLICAS, localSteps: 2, outer: 'elastic', movingRate: 0.3 } as const;
  const [two, one] = [2, 1].map((threads) => new LocalUpdateStrategy({ ...options, threads })) as [
    LocalUpdateStrategy,
    LocalUpdateStrategy,
  ];
  const weights = await trained(two);
  expectClose(weights, await simulatedElastic(2, 0.3));
  expect(await trained(one)).toEqual(weights);
  await one.dispose();
  // Weights that are set are those of all copies; the state of the optimizer is shown as the mean of theirs.
  const model = two.scope(build);
  await model.fit(rows(), oneHot(), args);
  const zeros = model.getWeights().map(({ shape }) => tf.zeros(shape));
  const slots = (await model.optimizer.getWeights()).slice(1).map(({ tensor }) => [...tensor.dataSync()]);
  expect(slots.flat().some((value) => value !== 0)).toBe(true);
  model.setWeights(zeros);
  tf.dispose(model.predict(rows()));
  expect(
    weightsOf(model)
      .flat()
      .every((value) => value === 0),
  ).toBe(true);
  await model.trainOnBatch(rows(), oneHot());
  expect(Math.max(...weightsOf(model).flat().map(Math.abs))).toBeLessThan(0.5);
  await two.dispose();
});

it('replicas that go on with their own optimizers take over the state that the program sets, without its weights', async () => {
  for (const [options, part] of [
    [{ outer: 'elastic', movingRate: 0.3 }, 0.3 * REPLICAS],
    [{ fragments: 2 }, 1],
    [{ delay: 2 }, 1],
  ] as const) {
    const own = new LocalUpdateStrategy({ threads: REPLICAS, localSteps: 8, ...options });
    const model = own.scope(build);
    for (let step = 0; step < 3; step++) await model.trainOnBatch(rows(), oneHot());
    const [steps, ...slots] = await model.optimizer.getWeights();
    await model.optimizer.setWeights([steps!, ...slots.map(({ name, tensor }) => ({ name, tensor: tf.fill(tensor.shape, 1000) }))]);
    const before = weightsOf(model).flat();
    await model.trainOnBatch(rows(), oneHot());
    // The rate times what is left of the accumulation; gradients are below 10.
    for (const [i, value] of weightsOf(model).flat().entries()) expect(Math.abs(value - before[i]! + 90 * part)).toBeLessThan(1);
    for (const { tensor } of (await model.optimizer.getWeights()).slice(1))
      for (const value of tensor.dataSync()) expect(Math.abs(value - 900)).toBeLessThan(10);
    await own.dispose();
  }
});

it('a count of steps that goes back to steps together loses none that replicas took alone', async () => {
  const reached: number[][][] = [];
  for (const options of [{}, { fragments: 2 }]) {
    const own = new LocalUpdateStrategy({ threads: REPLICAS, localSteps: 8, syncSteps: 2, ...options });
    const after = async (looks: boolean): Promise<number[][]> => {
      const model = own.scope(() => compiled(mlp(), () => tf.train.sgd(0.1)));
      const step = () => model.trainOnBatch(rows(), oneHot());
      for (let taken = 0; taken < 4; taken++) await step();
      if (looks) weightsOf(model);
      const [steps] = await model.optimizer.getWeights();
      await model.optimizer.setWeights([{ name: steps!.name, tensor: tf.scalar(0, 'int32') }]);
      for (let taken = 0; taken < 3; taken++) await step();
      return weightsOf(model);
    };
    reached.push(await after(true), await after(false));
    await own.dispose();
  }
  // No fragment is exchanged in so few steps.
  for (const weights of reached) expect(weights).toEqual(reached[0]);
});

it('with one replica it is an ordinary training, with frozen layers, state and validation', async () => {
  const made = () => {
    const kernelInitializer = (seed: number) => tfl.initializers.glorotUniform({ seed });
    const net = tfl.sequential({
      layers: [
        tfl.layers.dense({ units: 8, inputShape: [FEATURES], trainable: false, kernelInitializer: kernelInitializer(1) }),
        tfl.layers.batchNormalization(),
        tfl.layers.dense({ units: CLASSES, activation: 'softmax', kernelInitializer: kernelInitializer(2) }),
      ],
    });
    return compiled(net, () => tf.train.adam(0.01));
  };
  const fit = async (of: LocalUpdateStrategy | OneDeviceStrategy) => {
    const model = of.scope(made);
    const history = await model.fit(rows(), oneHot(), { ...args, validationSplit: 0.2 });
    await of.dispose();
    return [history, weightsOf(model)] as const;
  };
  const [mine, theirs] = [await fit(new LocalUpdateStrategy({ threads: 1, localSteps: 3 })), await fit(new OneDeviceStrategy())];
  expectSame(mine[0], theirs[0], 0);
  expect(mine[1]).toEqual(theirs[1]);
});

it('averages when it is time, and when somebody looks', async () => {
  const { pool } = (strategy as unknown as { exchange: { pool: ThreadPool } }).exchange;
  let averages = 0;
  const ask = pool.ask.bind(pool);
  pool.ask = (message, threads) => {
    if (message.kind === 'average') averages++;
    return ask(message, threads);
  };
  const model = strategy.scope(build);
  await model.fit(rows(), oneHot(), args);
  expect(averages).toBe(2);
  const weights = weightsOf(model);
  expect(averages).toBe(3);
  tf.dispose(model.evaluate(rows(), oneHot()));
  expect(averages).toBe(3);
  await model.trainOnBatch(rows(), oneHot());
  tf.dispose(model.predict(rows()));
  expect(averages).toBe(4);
  expect(weightsOf(model)).not.toEqual(weights);
  // A replica that throws has taken no step, nor has any other.
  const before = weightsOf(model);
  await model.trainOnBatch(rows(), oneHot());
  const bad = compiled(mlp(), momentum, { loss: 'sparseCategoricalCrossentropy' });
  strategy.distribute(bad);
  const kept = weightsOf(bad);
  await expect(bad.trainOnBatch(rows(), tf.fill([EXAMPLES, 1], 7))).rejects.toBeInstanceOf(ReplicaError);
  expect(weightsOf(bad)).toEqual(kept);
  expect(weightsOf(model)).not.toEqual(before);
  pool.ask = ask;
});

it('refuses options that it does not know, and clusters without a secret, before anything starts', () => {
  const refused = (options: unknown, message: string) => {
    expect(() => new LocalUpdateStrategy(options as LocalUpdateOptions)).toThrow(message);
    expect(() => new LocalUpdateStrategy(options as LocalUpdateOptions)).toThrow(ArgumentError);
  };
  refused({ localSteps: 0 }, 'localSteps must be a whole number from 1');
  refused({ syncSteps: -1 }, 'syncSteps must be a whole number from 0');
  refused({ syncSteps: 4, outer: 'nesterov' }, "syncSteps needs outer: 'average', not 'nesterov'");
  refused({ fragments: 9, localSteps: 8 }, 'fragments must be at most localSteps (8)');
  refused({ fragments: 3, delay: 3 }, 'delay must be at most 2');
  refused({ fragments: 2, outer: 'elastic' }, "need outer: 'average' or 'nesterov'");
  refused({ mixing: 0.5 }, 'mixing needs a delay');
  refused({ delay: 1, mixing: 1 }, 'mixing must be a number from 0 to below 1');
  refused({ outer: 'adam' }, 'outer must be average, nesterov or elastic');
  refused({ movingRate: 0.1 }, "movingRate needs outer: 'elastic'");
  refused({ outer: 'elastic', threads: 1, replicas: 4, movingRate: 0.26 }, 'at most 1 / replicas (0.25)');
  refused({ outer: 'elastic', movingRate: 0 }, 'movingRate must be a number above 0');
  refused({ optimizerSharding: 'sharded' }, 'has no option "optimizerSharding"');
  refused({ outerMomentum: 0.5 }, "need outer: 'nesterov'");
  refused({ outer: 'nesterov', outerMomentum: 1 }, 'outerMomentum must be a number from 0 to below 1');
  refused({ outer: 'nesterov', outerLearningRate: 0 }, 'outerLearningRate must be a number above 0');
  refused({ cluster: {} }, 'cluster takes a resolver');
  process.env['TF_CONFIG'] = JSON.stringify({ cluster: { worker: ['a:1', 'b:2'] }, task: { type: 'worker', index: 0 } });
  try {
    expect(() => new LocalUpdateStrategy({ threads: 1 })).toThrow(ClusterConfigError);
    expect(() => new LocalUpdateStrategy({ threads: 1 })).toThrow('secret');
  } finally {
    delete process.env['TF_CONFIG'];
  }
});
