/** Which weights a step changes, and what a step is of: as in tf.js, also where a program changes something between two steps. */
import * as tf from '@tensorflow/tfjs-core';
import * as tfl from '@tensorflow/tfjs-layers';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ArgumentError, StrategyError } from './errors.js';
import { ModelParallelStrategy } from './model-parallel.js';
import {
  CLASSES,
  compiled,
  EXAMPLES,
  expectSame,
  FEATURES,
  mlp,
  numbers,
  oneHot,
  QUIET,
  rows,
  values,
  weightsOf,
} from './models.fixture.js';
import { MirroredStrategy, OneDeviceStrategy } from './thread-strategies.js';

let strategy: MirroredStrategy;
/** Batch normalisation of one replica is that of tf.js. */
let alone: OneDeviceStrategy;
beforeAll(async () => {
  await tf.setBackend('cpu');
  strategy = new MirroredStrategy({ threads: 2 });
  alone = new OneDeviceStrategy();
});
afterAll(async () => {
  await strategy.dispose();
  await alone.dispose();
});

const kernelInitializer = (seed: number) => tfl.initializers.glorotNormal({ seed });
const dense = (units: number, name: string, seed: number) =>
  tfl.layers.dense({ units, name, activation: 'tanh', kernelInitializer: kernelInitializer(seed) });
const args = { ...QUIET, epochs: 2, batchSize: 16 };
const sgd = () => tf.train.sgd(0.1);

/** A base of two layers with batch normalisation, and a head. */
function functional(): tfl.LayersModel {
  const input = tfl.input({ shape: [FEATURES] });
  let x = dense(8, 'base1', 1).apply(input) as tfl.SymbolicTensor;
  x = tfl.layers.batchNormalization({ name: 'norm' }).apply(x) as tfl.SymbolicTensor;
  x = dense(6, 'base2', 2).apply(x) as tfl.SymbolicTensor;
  return tfl.model({ inputs: input, outputs: dense(1, 'head', 3).apply(x) as tfl.SymbolicTensor });
}
const regression = (model: tfl.LayersModel, optimizer: () => tf.Optimizer = sgd) =>
  compiled(model, optimizer, { loss: 'meanSquaredError', metrics: [] });

/** The weights of a layer, as text. */
const of = (model: tfl.LayersModel, layer: string): string =>
  JSON.stringify(
    model
      .getLayer(layer)
      .getWeights()
      .map((weight) => [...weight.dataSync<'float32'>()]),
  );

function near(actual: number[][], expected: number[][]): void {
  expect(actual.length).toBe(expected.length);
  for (const [i, weight] of expected.entries()) for (const [j, value] of weight.entries()) expect(actual[i]![j]!).toBeCloseTo(value, 4);
}

describe('frozen', () => {
  it.each<[string, (model: tfl.LayersModel) => void, readonly string[]]>([
    ['a layer of a functional model', (model) => (model.getLayer('base1').trainable = false), ['base1']],
    ['a base, layer by layer', (model) => model.layers.slice(0, -1).forEach((layer) => (layer.trainable = false)), ['base1', 'base2']],
    ['batch normalisation', (model) => (model.getLayer('norm').trainable = false), []],
  ])('%s, before compile', async (_, freeze, kept) => {
    const build = () => {
      const model = functional();
      freeze(model);
      return regression(model, () => tf.train.adam(0.02));
    };
    const [plain, distributed] = [build(), alone.scope(build)];
    const before = kept.map((layer) => of(distributed, layer));
    expectSame(await distributed.fit(rows(), numbers(), args), await plain.fit(rows(), numbers(), args));
    expect(kept.map((layer) => of(distributed, layer))).toEqual(before);
    near(weightsOf(distributed), weightsOf(plain));
  });

  it('with the same optimizer compiled again: slots of other weights begin anew, and the optimizer shows those of the trained ones', async () => {
    const optimizer = tf.train.adam(0.02);
    const model = alone.scope(() => regression(functional(), () => optimizer));
    await model.fit(rows(), numbers(), args);
    model.getLayer('base1').trainable = false;
    regression(model, () => optimizer);
    await model.fit(rows(), numbers(), args);
    const slots = (optimizer as unknown as { accumulatedFirstMoment: { variable: tf.Variable }[] }).accumulatedFirstMoment;
    const trained = model.trainableWeights.map(({ shape }) => shape);
    expect(slots.map(({ variable }) => variable.shape)).toEqual(trained);
    expect(() => model.dispose()).not.toThrow();
  });

  it('a model inside another one, and a model that is cut into stages', async () => {
    const build = () => {
      const input = tfl.input({ shape: [FEATURES] });
      const inside = functional();
      const base = tfl.model({ inputs: inside.inputs, outputs: inside.getLayer('base2').output as tfl.SymbolicTensor, name: 'base' });
      base.trainable = false;
      const head = dense(1, 'head', 4).apply(base.apply(input) as tfl.SymbolicTensor) as tfl.SymbolicTensor;
      return regression(tfl.model({ inputs: input, outputs: head }));
    };
    const [plain, distributed] = [build(), alone.scope(build)];
    expectSame(await distributed.fit(rows(), numbers(), args), await plain.fit(rows(), numbers(), args));
    near(weightsOf(distributed), weightsOf(plain));

    const stages = new ModelParallelStrategy({ stages: 2 });
    const frozen = (): tfl.LayersModel => {
      const input = tfl.input({ shape: [FEATURES] });
      const model = tfl.model({
        inputs: input,
        outputs: dense(1, 'head', 3).apply(dense(6, 'second', 2).apply(dense(8, 'first', 1).apply(input))) as tfl.SymbolicTensor,
      });
      model.getLayer('first').trainable = false;
      return regression(model);
    };
    const [inOne, cut] = [frozen(), stages.scope(frozen)];
    expectSame(await cut.fit(rows(), numbers(), args), await inOne.fit(rows(), numbers(), args));
    near(weightsOf(cut), weightsOf(inOne));
    await stages.dispose();
  });

  it('between two steps, without another compile, and thawed again', async () => {
    const build = () => regression(functional(), () => tf.train.momentum(0.05, 0.9));
    const [plain, distributed] = [build(), alone.scope(build)];
    for (const isTrained of [false, true, false, true]) {
      for (const model of [plain, distributed]) {
        model.getLayer('base1').trainable = isTrained;
        const before = of(model, 'base1');
        await model.fit(rows(), numbers(), args);
        expect(of(model, 'base1') === before).toBe(!isTrained);
      }
      near(weightsOf(distributed), weightsOf(plain));
    }
    // One that is frozen when its training begins has no gradient until it is thawed.
    const thawed = alone.scope(() => {
      const model = functional();
      model.getLayer('base1').trainable = true;
      return regression(model);
    });
    thawed.getLayer('base1').trainable = false;
    const before = of(thawed, 'base1');
    await thawed.fit(rows(), numbers(), args);
    expect(of(thawed, 'base1')).toBe(before);
    thawed.getLayer('base1').trainable = true;
    await thawed.fit(rows(), numbers(), args);
    expect(of(thawed, 'base1')).not.toBe(before);
  });

  it('altogether: a step says so, and a prediction does not care', async () => {
    const model = alone.scope(() => regression(functional()));
    for (const layer of model.layers) layer.trainable = false;
    await expect(model.fit(rows(), numbers(), args)).rejects.toThrow(ArgumentError);
    await expect(model.fit(rows(), numbers(), args)).rejects.toThrow('set trainable of a layer to true');
    expect((model.predict(rows()) as tf.Tensor).shape).toEqual([EXAMPLES, 1]);
  });
});

describe('a batch', () => {
  it('without rows changes nothing that another one would miss', async () => {
    const build = () => compiled(mlp(), () => tf.train.momentum(0.1, 0.9));
    const stages = new ModelParallelStrategy({ stages: 2 });
    const models = [build(), strategy.scope(build), stages.scope(build)];
    for (const model of models) {
      const losses = [];
      for (const count of [EXAMPLES, 0, EXAMPLES])
        losses.push(await model.trainOnBatch(tf.slice(rows(), 0, count), tf.slice(oneHot(), 0, count)));
      expect(losses.flat().every((value) => typeof value === 'number')).toBe(true);
      expect(Number([losses[2]].flat(2)[0])).toBeGreaterThan(0);
      near(weightsOf(model), weightsOf(models[0]!));
    }
    await stages.dispose();
  });

  it('without rows leaves the moving averages of batch normalisation as they are', async () => {
    const build = () => regression(functional());
    const stages = new ModelParallelStrategy({ stages: 2 });
    for (const model of [strategy.scope(build), stages.scope(build)]) {
      await model.trainOnBatch(rows(), numbers());
      const before = weightsOf(model);
      await model.trainOnBatch(tf.slice(rows(), 0, 0), tf.slice(numbers(), 0, 0));
      expect(weightsOf(model)).toEqual(before);
    }
    await stages.dispose();
  });

  it('with a mask has the loss of tf.js, in training as in validation', async () => {
    const build = () =>
      regression(
        tfl.sequential({
          layers: [
            tfl.layers.masking({ maskValue: 0, inputShape: [4, 2] }),
            tfl.layers.simpleRNN({
              units: 3,
              returnSequences: true,
              kernelInitializer: kernelInitializer(1),
              recurrentInitializer: kernelInitializer(2),
            }),
            tfl.layers.dense({ units: 1, kernelInitializer: kernelInitializer(3) }),
          ],
        }),
      );
    const xs = tf.tensor3d(
      values(20 * 8, 3).map((value, i) => (Math.floor(i / 2) % 3 === 0 ? 0 : value)),
      [20, 4, 2],
    );
    const ys = tf.tensor3d(values(20 * 4, 4), [20, 4, 1]);
    const [plain, distributed] = [build(), strategy.scope(build)];
    const validated = { ...args, validationData: [xs, ys] as [tf.Tensor, tf.Tensor] };
    expectSame(await distributed.fit(xs, ys, validated), await plain.fit(xs, ys, validated));
    near(weightsOf(distributed), weightsOf(plain));
  });

  it('with a mask goes through the layers as in tf.js, which hands it on where it has ended', async () => {
    const build = () =>
      regression(
        tfl.sequential({
          layers: [
            tfl.layers.embedding({
              inputDim: 6,
              outputDim: 4,
              maskZero: true,
              inputLength: 5,
              embeddingsInitializer: kernelInitializer(1),
            }),
            tfl.layers.conv1d({ filters: 3, kernelSize: 2, padding: 'same', kernelInitializer: kernelInitializer(2) }),
            tfl.layers.gru({
              units: 2,
              kernelInitializer: kernelInitializer(3),
              recurrentInitializer: kernelInitializer(4),
            }),
            tfl.layers.dense({ units: 1, kernelInitializer: kernelInitializer(5) }),
          ],
        }),
      );
    const ids = tf.tensor2d(
      values(40 * 5, 2).map((value) => Math.abs(Math.floor(value * 6)) % 6),
      [40, 5],
    );
    const [plain, distributed] = [build(), strategy.scope(build)];
    const of = (model: tfl.LayersModel): number[][] => [[...(model.predict(ids) as tf.Tensor).dataSync<'float32'>()]];
    near(of(distributed), of(plain));
    expectSame(await distributed.fit(ids, numbers(40), args), await plain.fit(ids, numbers(40), args));
    near(of(distributed), of(plain));
  });

  it('beside a fit leaves the History of the fit alone', async () => {
    const zeros = [tf.zeros([320, FEATURES]), tf.zeros([320, 1])] as const;
    const model = strategy.scope(() =>
      compiled(
        tfl.sequential({ layers: [tfl.layers.dense({ units: 1, useBias: false, inputShape: [FEATURES] })] }),
        () => tf.train.sgd(0),
        {
          loss: 'meanSquaredError',
          metrics: ['mae'],
        },
      ),
    );
    const fit = model.fit(zeros[0], zeros[1], { ...QUIET, epochs: 1, batchSize: 8 });
    for (let i = 0; i < 30; i++) {
      await model.trainOnBatch(tf.ones([8, FEATURES]), tf.fill([8, 1], 100));
      (model.predict(tf.ones([5, FEATURES])) as tf.Tensor).dispose();
    }
    const { history } = await fit;
    expect(history['loss']).toEqual([0]);
    expect(history['mae']).toEqual([0]);
    expect((model.optimizer as unknown as { iterations: number }).iterations).toBe(40 + 30);
  });
});

describe('refused', () => {
  it('a prediction from inputs of which one has fewer rows', () => {
    const [a, b] = [tfl.input({ shape: [1], name: 'a' }), tfl.input({ shape: [1], name: 'b' })];
    const model = strategy.scope(() =>
      regression(
        tfl.model({ inputs: [a, b], outputs: dense(1, 'sum', 1).apply(tfl.layers.concatenate().apply([a, b])) as tfl.SymbolicTensor }),
      ),
    );
    void model.predict([tf.zeros([4, 1]), tf.ones([4, 1])]);
    expect(() => model.predict([tf.zeros([4, 1]), tf.ones([2, 1])])).toThrow(/input b.* has 2 rows, and input a.* has 4/);
    expect(() => model.predictOnBatch([tf.zeros([4, 1]), tf.ones([2, 1])])).toThrow(ArgumentError);
    expect((model.predict([tf.zeros([2, 1]), tf.ones([4, 1])]) as tf.Tensor).shape).toEqual([2, 1]);
  });

  it('targets that are text, in an evaluation too', async () => {
    const model = strategy.scope(() => compiled(mlp(), sgd));
    const text = tf.fill([EXAMPLES, CLASSES], 'a' as never, 'string');
    expect(() => model.evaluate(rows(), text)).toThrow(/^target of output .*: holds string, and the model takes numbers$/);
  });

  it('to train on a model that was released meanwhile; it can be distributed again', async () => {
    const model = strategy.scope(() => compiled(mlp(), sgd));
    const fit = model.fit(rows(), oneHot(), {
      ...args,
      epochs: 4,
      callbacks: { onEpochEnd: (epoch) => void (epoch === 1 && strategy.release(model)) },
    });
    await expect(fit).rejects.toThrow(StrategyError);
    await expect(fit).rejects.toThrow('was released from its strategy');
    strategy.distribute(model);
    const { history } = await model.fit(rows(), oneHot(), args);
    expect(history['loss']!.length).toBe(2);
    expect((model.predict(rows()) as tf.Tensor).shape).toEqual([EXAMPLES, CLASSES]);
  });
});
