/** The optimizers of runs in tf.js: against Keras, in a plain fit, and in the strategies. */
import { readFileSync } from 'node:fs';
import * as tf from '@tensorflow/tfjs-core';
import * as tfl from '@tensorflow/tfjs-layers';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ArgumentError, UnsupportedError } from './errors.js';
import { LocalUpdateStrategy } from './local-update.js';
import { ModelParallelStrategy } from './model-parallel.js';
import { compiled, EXAMPLES, expectSame, mlp, oneHot, QUIET, rows, weightsOf } from './models.fixture.js';
import { ruleOf } from './model/optimizer-fields.js';
import { optimizers, type RunOptimizer } from './optimizers.js';
import type { Strategy } from './strategy.js';
import { CentralStorageStrategy, MirroredStrategy, OneDeviceStrategy } from './thread-strategies.js';

beforeAll(async () => void (await tf.setBackend('cpu')));

interface Golden {
  readonly initial: number[];
  readonly gradients: number[][];
  readonly cases: Record<string, { readonly trajectory: number[][] }>;
}
const golden = JSON.parse(readFileSync(new URL('../../testkit/golden/optimizers.json', import.meta.url), 'utf8')) as Golden;

const OF_KERAS: Record<string, () => RunOptimizer> = {
  sgd: () => optimizers.sgd({ learningRate: 0.05 }),
  momentum: () => optimizers.momentum({ learningRate: 0.05 }),
  nesterov: () => optimizers.momentum({ learningRate: 0.05, nesterov: true }),
  adam: () => optimizers.adam({ learningRate: 0.01 }),
  adamw: () => optimizers.adamw({ learningRate: 0.01, weightDecay: 0.004 }),
  adam_amsgrad: () => optimizers.amsgrad({ learningRate: 0.01 }),
  adamax: () => optimizers.adamax({ learningRate: 0.01 }),
  nadam: () => optimizers.nadam({ learningRate: 0.01 }),
  rmsprop: () => optimizers.rmsprop({ learningRate: 0.01 }),
  rmsprop_centered: () => optimizers.rmsprop({ learningRate: 0.01, momentum: 0.9, centered: true }),
  adagrad: () => optimizers.adagrad({ learningRate: 0.05 }),
  adadelta: () => optimizers.adadelta({ learningRate: 1, epsilon: 1e-6 }),
  ftrl: () => optimizers.ftrl({ learningRate: 0.05, l1: 0.01, l2: 0.01 }),
  lion: () => optimizers.lion({ learningRate: 0.01 }),
};

describe('without a strategy', () => {
  it.each(Object.keys(OF_KERAS))('%s follows 25 steps of Keras', (name) => {
    const optimizer = OF_KERAS[name]!();
    const weights = tf.variable(tf.tensor1d(golden.initial));
    for (const [step, gradient] of golden.gradients.entries()) {
      optimizer.applyGradients({ [weights.name]: tf.tensor1d(gradient) });
      const wanted = golden.cases[name]!.trajectory[step]!;
      const most = Math.max(...wanted.map(Math.abs));
      for (const [i, value] of weights.dataSync().entries()) expect(Math.abs(value - wanted[i]!) / most).toBeLessThan(2e-6);
    }
    expect(optimizer.iterations).toBe(25);
    weights.dispose();
  });

  it.each(['adamw', 'rmsprop_centered', 'ftrl'])('%s updates a large variable as it updates its parts', (name) => {
    const [count, half] = [40_003, 20_001];
    const values = (seed: number) => Float32Array.from({ length: count }, (_, i) => Math.sin(i * 12.9898 + seed));
    const [whole, parts] = [OF_KERAS[name]!(), OF_KERAS[name]!()];
    const all = tf.variable(tf.tensor1d(values(0)));
    const [first, second] = [values(0).subarray(0, half), values(0).subarray(half)].map((of) => tf.variable(tf.tensor1d(of)));
    for (let step = 1; step < 4; step++) {
      const gradient = values(step);
      whole.applyGradients({ [all.name]: tf.tensor1d(gradient) });
      parts.applyGradients({
        [first!.name]: tf.tensor1d(gradient.subarray(0, half)),
        [second!.name]: tf.tensor1d(gradient.subarray(half)),
      });
    }
    const joined = [...first!.dataSync(), ...second!.dataSync()];
    expect(all.dataSync().findIndex((value, i) => value !== joined[i])).toBe(-1);
    for (const each of [all, first!, second!]) each.dispose();
  });

  it('gives and takes its state, and its fields, as the optimizers of tf.js do', async () => {
    const build = () => compiled(mlp(), () => optimizers.nadam({ learningRate: 0.02, weightDecay: 0.1 }));
    const [whole, first] = [build(), build()];
    await whole.fit(rows(), oneHot(), { ...args, epochs: 4 });
    await first.fit(rows(), oneHot(), args);
    const config = first.optimizer.getConfig();
    expect(config).toMatchObject({ learningRate: 0.02, weightDecay: 0.1, beta1: 0.9 });
    const map = tf.serialization.SerializationMap.getMap().classNameMap[first.optimizer.getClassName()]!;
    const again = map[1](map[0], config) as tf.Optimizer;
    await again.setWeights(await first.optimizer.getWeights());
    const second = compiled(mlp(), () => again);
    second.setWeights(first.getWeights());
    await second.fit(rows(), oneHot(), args);
    expect(weightsOf(second)).toEqual(weightsOf(whole));
    await expect(again.setWeights((await again.getWeights()).slice(0, 4))).rejects.toThrow(ArgumentError);
    const before = tf.memory().numTensors;
    again.dispose();
    expect(tf.memory().numTensors).toBeLessThanOrEqual(before - 8); // two slots of four weights
  });
});

/** As a file has it. */
async function saved(model: tfl.LayersModel): Promise<tf.io.IOHandler> {
  let artifacts: tf.io.ModelArtifacts | undefined;
  const keep = async (given: tf.io.ModelArtifacts): Promise<tf.io.SaveResult> => {
    artifacts = { ...given, trainingConfig: JSON.parse(JSON.stringify(given.trainingConfig)) as tf.io.TrainingConfig };
    return { modelArtifactsInfo: { dateSaved: new Date(), modelTopologyType: 'JSON' } };
  };
  await model.save(tf.io.withSaveHandler(keep), { includeOptimizer: true });
  return tf.io.fromMemory(artifacts!);
}

describe('a model that was saved with its optimizer', () => {
  it.each(Object.keys(OF_KERAS))('goes on where it was, with %s', async (name) => {
    const model = compiled(mlp(), OF_KERAS[name]!);
    await model.fit(rows(), oneHot(), args);
    const loaded = (await tfl.loadLayersModel(await saved(model))) as tfl.Sequential;
    expect(loaded.optimizer.getConfig()).toEqual(model.optimizer.getConfig());
    await model.fit(rows(), oneHot(), args);
    await loaded.fit(rows(), oneHot(), args);
    expect(weightsOf(loaded)).toEqual(weightsOf(model));
  });

  it('has the patterns of weights that do not decay, with their underscores', async () => {
    const patterns = ['dense_Dense1/bias', '*_Dense2/*'];
    const build = () => compiled(mlp(), () => optimizers.adamw({ learningRate: 0.02, weightDecay: 0.5, weightDecayExclude: patterns }));
    const model = build();
    const loaded = await tfl.loadLayersModel(await saved(model));
    const { rule } = loaded.optimizer as RunOptimizer;
    expect(rule.spec).toEqual((model.optimizer as RunOptimizer).rule.spec);
    expect(rule.spec).toMatchObject({ weightDecayExclude: patterns });
    // As libs/client reads it.
    expect(model.optimizer.getConfig()).toMatchObject({ weightDecayExclude: patterns.map((name) => ({ name })) });
  });

  it('whose state is of other layers is refused in the first step', async () => {
    const model = compiled(mlp(), () => optimizers.adamw());
    await model.fit(rows(), oneHot(), args);
    const [steps, ...slots] = await model.optimizer.getWeights();
    const other = optimizers.adamw();
    await other.setWeights([steps!, ...slots.toReversed()]);
    const again = compiled(mlp(), () => other);
    const before = weightsOf(again);
    await expect(again.fit(rows(), oneHot(), args)).rejects.toThrow(ArgumentError);
    expect(weightsOf(again)).toEqual(before);
  });
});

const args = { ...QUIET, epochs: 2, batchSize: 16 };
const ALL: Record<string, () => RunOptimizer> = {
  nadam: OF_KERAS['nadam']!,
  rmsprop_centered: OF_KERAS['rmsprop_centered']!,
  ftrl: OF_KERAS['ftrl']!,
  lion: OF_KERAS['lion']!,
  'adamw without decay of biases': () => optimizers.adamw({ learningRate: 0.02, weightDecay: 0.5, weightDecayExclude: ['*/bias'] }),
  'sgd with decay': () => optimizers.sgd({ learningRate: 0.05, weightDecay: 0.1 }),
};

describe('in a strategy', () => {
  const stateOf = async (model: tfl.LayersModel): Promise<number[][]> =>
    (await model.optimizer.getWeights()).map(({ tensor }) => [...tensor.dataSync()]);
  const within = async (strategy: Strategy, build: () => tfl.Sequential) => {
    const model = strategy.scope(build);
    const history = await model.fit(rows(), oneHot(), args);
    const state = await stateOf(model);
    const weights = weightsOf(model);
    await strategy.dispose();
    return { history, weights, state, model };
  };
  const near = (actual: number[][], expected: number[][]): void => {
    expect(actual.map(({ length }) => length)).toEqual(expected.map(({ length }) => length));
    for (const [w, of] of expected.entries()) for (const [i, value] of of.entries()) expect(actual[w]![i]).toBeCloseTo(value, 4);
  };

  describe('of threads', () => {
    let mirrored: MirroredStrategy;
    beforeAll(() => void (mirrored = new MirroredStrategy({ threads: 2 })));
    afterAll(() => mirrored.dispose());

    // Steps of lion have the size of the rate wherever a sign differs, and rounding decides signs of what is nearly 0.
    it.each(Object.keys(ALL).filter((name) => name !== 'lion'))('%s computes what a plain fit of tf.js does', async (name) => {
      const build = () => compiled(mlp(), ALL[name]!);
      const [plain, distributed] = [build(), mirrored.scope(build)];
      expectSame(await distributed.fit(rows(), oneHot(), args), await plain.fit(rows(), oneHot(), args), 1e-3);
      near(weightsOf(distributed), weightsOf(plain));
      near(await stateOf(distributed), await stateOf(plain));
    });
  });

  it.each([
    ['adamw without decay of biases', 4],
    ['lion', 1],
    ['nadam', 1],
  ])('%s has the same bits in all of them', async (name, most) => {
    const build = () => compiled(mlp(), ALL[name]!);
    const { weights, state } = await within(new MirroredStrategy({ threads: 1, replicas: 2 }), build);
    const others = [
      () => new MirroredStrategy({ threads: 2 }),
      () => new CentralStorageStrategy({ replicas: 2 }),
      () => new ModelParallelStrategy({ stages: 2, microBatches: 2 }),
      () => new LocalUpdateStrategy({ replicas: 2, localSteps: 3, syncSteps: 8 }),
    ];
    for (const strategy of others.slice(0, most)) expect(await within(strategy(), build)).toMatchObject({ weights, state });
  });

  it('trains as DiLoCo does: adamw in each replica, which keeps its state, and outer Nesterov steps', async () => {
    const [localSteps, rate, momentum, replicas] = [3, 0.7, 0.9, 2];
    const build = () => compiled(mlp(), ALL['adamw without decay of biases']!);
    const models = Array.from({ length: replicas }, build);
    let common = weightsOf(models[0]!);
    let velocity = common.map((of) => of.map(() => 0));
    const shapes = models[0]!.getWeights().map(({ shape }) => shape);
    const map = (value: (w: number, i: number) => number) => common.map((of, w) => of.map((_, i) => value(w, i)));
    const outerStep = (): void => {
      const reached = models.map(weightsOf);
      const gradient = map((w, i) => common[w]![i]! - reached.reduce((sum, one) => sum + one[w]![i]!, 0) / replicas);
      velocity = map((w, i) => momentum * velocity[w]![i]! + gradient[w]![i]!);
      common = map((w, i) => common[w]![i]! - rate * (gradient[w]![i]! + momentum * velocity[w]![i]!));
      for (const model of models) model.setWeights(common.map((of, w) => tf.tensor(of, shapes[w])));
    };
    const [xs, ys] = [rows(), oneHot()];
    for (let step = 0; step < 8; step++) {
      const from = (step % 4) * 16;
      const half = Math.min(16, EXAMPLES - from) / replicas;
      for (const [r, model] of models.entries())
        await model.trainOnBatch(tf.slice(xs, from + r * half, half), tf.slice(ys, from + r * half, half));
      if (step % localSteps === localSteps - 1 || step === 7) outerStep();
    }
    const options = { replicas, localSteps, outer: 'nesterov', innerState: 'keep' } as const;
    const two = await within(new LocalUpdateStrategy({ ...options, threads: 2 }), build);
    near(two.weights, common);
    expect((await within(new LocalUpdateStrategy({ ...options, threads: 1 }), build)).weights).toEqual(two.weights);
  });

  it('leaves those of tf.train alone', () => {
    expect(ruleOf(tf.train.adam(0.1))).toMatchObject({ name: 'adam' });
    expect(ruleOf(optimizers.adam())).toMatchObject({ name: 'run' });
  });

  it('takes a rate that a callback has set, as a plain fit does', async () => {
    const build = () => compiled(mlp(), ALL['adamw without decay of biases']!);
    const fit = async (model: tfl.Sequential) => {
      const lower = () => void ((model.optimizer as RunOptimizer).learningRate /= 4);
      await model.fit(rows(), oneHot(), { ...args, epochs: 3, callbacks: { onEpochEnd: lower } });
      return weightsOf(model);
    };
    const [plain, unchanged] = [await fit(build()), build()];
    await unchanged.fit(rows(), oneHot(), { ...args, epochs: 3 });
    const strategy = new MirroredStrategy({ threads: 2 });
    near(await fit(strategy.scope(build)), plain);
    expect(() => near(weightsOf(unchanged), plain)).toThrow(); // the rate matters
    await strategy.dispose();
  });

  it('goes on in tf.js where the strategy has left it', async () => {
    const build = () => compiled(mlp(), ALL['adamw without decay of biases']!);
    const plain = build();
    await plain.fit(rows(), oneHot(), { ...args, epochs: 4 });
    const { model } = await within(new OneDeviceStrategy(), build);
    await model.fit(rows(), oneHot(), args);
    near(weightsOf(model), weightsOf(plain));
  });
});

describe('refused', () => {
  it.each([
    [() => optimizers.adamw({ beta1: 2 }), /optimizers.adamw: beta1/],
    [() => optimizers.adamw({ momentum: 0.9 } as never), /optimizers.adamw: momentum/],
    [() => optimizers.adamw({ emaMomentum: 0.9 } as never), /runs of the service alone/],
    [() => optimizers.adam({ weightDecayExclude: ['*/bias'] }), /no weight decays/],
  ])('%s', (make, message) => {
    expect(make).toThrow(ArgumentError);
    expect(make).toThrow(message);
  });

  it('a pattern that names no weight, a class of your own, and ftrl where replicas train alone', async () => {
    const strategy = new LocalUpdateStrategy({ replicas: 2 });
    const scope = (optimizer: RunOptimizer) => () => strategy.scope(() => compiled(mlp(), () => optimizer));
    expect(scope(optimizers.adamw({ weightDecayExclude: ['*/gamma'] }))).toThrow(/\*\/gamma names no weight of the model/);
    expect(scope(optimizers.ftrl())).toThrow(UnsupportedError);
    expect(scope(optimizers.ftrl())).toThrow(/ftrl with LocalUpdateStrategy/);
    expect(scope(Object.assign(optimizers.adamw(), { applyGradients: () => undefined }))).toThrow(UnsupportedError);
    await strategy.dispose();
  });
});
