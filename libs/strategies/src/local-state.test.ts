/** The state of the optimizers of replicas that train alone, where it stays with them. What is trained then: local-update.test.ts. */
import * as tf from '@tensorflow/tfjs-core';
import { expect, it } from 'vitest';
import { LocalUpdateStrategy } from './local-update.js';
import { compiled, mlp, oneHot, QUIET, rows, weightsOf } from './models.fixture.js';

const build = () => compiled(mlp(), () => tf.train.momentum(0.1, 0.9));
const args = { ...QUIET, epochs: 2, batchSize: 16 };

it('it is read as its mean, which no replica takes, and set for all of them', async () => {
  await tf.setBackend('cpu');
  const keeping = new LocalUpdateStrategy({ threads: 2, localSteps: 2, innerState: 'keep' });
  const [reads, leaves] = [keeping.scope(build), keeping.scope(build)];
  const fit = async (): Promise<void> => {
    for (const model of [reads, leaves]) await model.fit(rows(), oneHot(), args);
  };
  await fit();
  const [, slot] = await reads.optimizer.getWeights();
  expect(slot!.tensor.dataSync().some((value) => value !== 0)).toBe(true);
  await fit();
  expect(weightsOf(reads)).toEqual(weightsOf(leaves));
  const [steps, ...slots] = await leaves.optimizer.getWeights();
  await leaves.optimizer.setWeights([steps!, ...slots.map(({ name, tensor }) => ({ name, tensor: tf.zerosLike(tensor) }))]);
  await fit();
  expect(weightsOf(reads)).not.toEqual(weightsOf(leaves));
  await keeping.dispose();
});

it.each([
  [{ innerState: 'keep' }, 'an optimizer for each replica'],
  [{ innerState: 'keep', outer: 'nesterov' }, 'an outer velocity, and an optimizer for each replica'],
  [{ innerState: 'average', outer: 'nesterov' }, 'an outer velocity'],
  [{ innerState: 'keep', fragments: 2 }, 'an optimizer for each replica'],
  [{ innerState: 'keep', outer: 'elastic' }, 'a copy of the parameters for each replica'],
  [{}, undefined],
] as const)('a strategy with %j says what it keeps beside the model', async (options, kept) => {
  const strategy = new LocalUpdateStrategy({ threads: 1, replicas: 2, ...options });
  expect(strategy.kept).toBe(kept);
  await strategy.dispose();
});

it.each([
  [{ innerState: 'reset' }, /innerState must be average or keep, not reset/],
  [{ innerState: 'average', outer: 'elastic' }, /innerState must be keep with elastic, .*: leave it out/],
  [{ innerState: 'average', delay: 1 }, /innerState must be keep with fragments and delay/],
])('%j is refused', (options, message) => {
  expect(() => new LocalUpdateStrategy({ threads: 1, ...options } as object)).toThrow(message);
});
