/** Replicas in processes with the engine tensorflow, where it is installed (`paceline engine install tensorflow`). */
import { createHash } from 'node:crypto';
import { tensorflowEngines } from '@paceline/tensorflow-addon';
import * as tf from '@tensorflow/tfjs-core';
import * as tfl from '@tensorflow/tfjs-layers';
import { beforeAll, describe, expect, it } from 'vitest';
import { compiled, expectSame, kindAndSize, mlp, numbers, oneHot, QUIET, rows, weightsOf } from '../models.fixture.js';
import type { PerReplica } from '../replicas/per-replica.js';
import { MirroredStrategy } from '../thread-strategies.js';

beforeAll(() => tf.setBackend('cpu'));

const kernel = (seed: number) => tfl.initializers.glorotUniform({ seed });
/** A CNN with dropout and the state of batch normalisation. */
const cnn = (): tfl.Sequential =>
  compiled(
    tfl.sequential({
      layers: [
        tfl.layers.reshape({ targetShape: [4, 3, 1], inputShape: [12] }),
        tfl.layers.conv2d({ filters: 4, kernelSize: 2, activation: 'relu', kernelInitializer: kernel(1) }),
        tfl.layers.batchNormalization(),
        tfl.layers.flatten(),
        tfl.layers.dropout({ rate: 0.2, name: 'tensorflow-drop' }),
        tfl.layers.dense({ units: 3, activation: 'softmax', kernelInitializer: kernel(2) }),
      ],
    }),
    () => tf.train.adam(0.01),
  );
const twoOutputs = (): tfl.LayersModel => {
  const [a, b] = [0, 1].map(() => tfl.input({ shape: [12] })) as [tfl.SymbolicTensor, tfl.SymbolicTensor];
  const both = tfl.layers.concatenate().apply([a, b]) as tfl.SymbolicTensor;
  const hidden = tfl.layers.dense({ units: 8, activation: 'tanh', kernelInitializer: kernel(1) }).apply(both) as tfl.SymbolicTensor;
  return kindAndSize(a, b, hidden, kernel);
};

async function trained(options: ConstructorParameters<typeof MirroredStrategy>[0]) {
  const strategy = new MirroredStrategy(options);
  try {
    const models = [cnn, () => compiled(mlp(), () => tf.train.sgd(0.1))].map((build) => strategy.scope(build));
    const histories: tfl.History[] = [];
    const hash = createHash('sha256');
    const answers: number[][] = [];
    for (const model of models) {
      histories.push(await model.fit(rows(), oneHot(), { ...QUIET, epochs: 3, batchSize: 16, validationSplit: 0.2 }));
      const slots = (await model.optimizer.getWeights()).map(({ tensor }) => tensor);
      for (const tensor of [...model.getWeights(), ...slots]) hash.update(new Uint8Array(tensor.dataSync().slice().buffer));
      answers.push([...(model.predict(rows()) as tf.Tensor).dataSync()]);
    }
    const engines = strategy.devices.map(({ engine }) => engine);
    return {
      histories,
      digest: hash.digest('hex'),
      answers,
      engines,
      weights: models.flatMap(weightsOf),
      processes: strategy.devices.length,
    };
  } finally {
    await strategy.dispose();
  }
}

describe.runIf(tensorflowEngines().length > 0)('with TensorFlow', () => {
  const options = { engine: 'tensorflow', devices: ['cpu:0', 'cpu:1'] } as const;

  it('two trainings have equal bits, other bits than wasm, and its numbers within the rounding of float32', async () => {
    const [first, second] = [await trained(options), await trained(options)];
    expect(first.engines).toEqual(['tensorflow', 'tensorflow']);
    expect(second).toEqual(first);
    const wasm = await trained({ threads: 2, engine: 'wasm' });
    expect(first.digest).not.toBe(wasm.digest);
    for (const [i, history] of first.histories.entries()) expectSame(history, wasm.histories[i]!, 1e-3);
    for (const [i, weight] of first.weights.entries())
      for (const [j, value] of weight.entries()) expect(value).toBeCloseTo(wasm.weights[i]![j]!, 3);
    for (const [i, values] of first.answers.entries())
      for (const [j, value] of values.entries()) expect(value).toBeCloseTo(wasm.answers[i]![j]!, 3);
  });

  it('several outputs, and functions of run', async () => {
    const strategy = new MirroredStrategy({ ...options, replicas: 3 });
    const model = strategy.scope(twoOutputs);
    const { history } = await model.fit([rows(), rows()], { kind: oneHot(), size: numbers() }, { ...QUIET, epochs: 2 });
    expect((history['loss'] as number[])[1]).toBeLessThan((history['loss'] as number[])[0]!);
    const MODULE = `export const on = async ({ tf, allReduce, replicaIdInSyncGroup: id }) => ({ backend: tf.getBackend(), sum: await allReduce('sum', tf.matMul(tf.fill([1, 2], id), tf.ones([2, 1]))) });`;
    const on = { module: `data:text/javascript,${encodeURIComponent(MODULE)}`, name: 'on' };
    const { backend, sum } = (await strategy.run(on)) as { backend: PerReplica; sum: PerReplica };
    expect(backend.values).toEqual(['tensorflow', 'tensorflow', 'tensorflow']);
    expect(sum.values.map((value) => (value as tf.Tensor).dataSync()[0])).toEqual([6, 6, 6]);
    await strategy.dispose();
  });
});

describe.runIf(tensorflowEngines().length === 0)('without TensorFlow', () => {
  it('says which command installs it', () =>
    expect(() => new MirroredStrategy({ engine: 'tensorflow' })).toThrow(
      expect.objectContaining({
        code: 'STRATEGY_ENGINE',
        message: expect.stringContaining('paceline engine install tensorflow') as string,
      }) as Error,
    ));
});
