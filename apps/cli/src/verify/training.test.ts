/** From a recording to a run spec, without anything that runs. */
import path from 'node:path';
import { readRecording, type TrainingRecording } from '@paceline/models';
import { expect, it } from 'vitest';
import { differenceOf } from './difference.js';
import { planTraining } from './training.js';

const file = path.join(import.meta.dirname, '../../../../libs/testkit/golden/mirrored-mlp-sgd.json');
const recording = (await readRecording(file)) as TrainingRecording;
const OPTIONS = { workers: 3, servers: 2 };
const planned = (changes: Partial<TrainingRecording>, options = {}) =>
  planTraining({ ...recording, ...changes }, { ...OPTIONS, ...options });

it('asks for what was recorded: batch, replicas, order, loss and optimizer', async () => {
  const { spec, variables } = await planned({});
  expect(spec).toMatchObject({
    dataset: 'mnist',
    shuffle: false,
    globalBatch: 64,
    replicas: 2,
    length: { rounds: 60 },
    loss: 'sparseCategoricalCrossentropy',
    lossFromLogits: true,
    optimizer: { name: 'sgd' },
    strategy: { servers: 2, startWorkers: 2 },
  });
  expect(variables.map(({ path: name }) => name)).toEqual(['dense/kernel', 'dense/bias', 'dense_1/kernel', 'dense_1/bias']);
});

it('takes a dataset by its name, from the recording or the command line', async () => {
  expect((await planned({ data: 'numbers of my own', dataset: 'iris' })).spec.dataset).toBe('iris');
  expect((await planned({ data: 'numbers of my own' }, { dataset: 'mnist' })).spec.dataset).toBe('mnist');
  expect((await planned({ loss: 'MeanSquaredError' })).spec.loss).toBe('meanSquaredError');
});

it.each([
  ['data of nobody', { data: 'numbers of my own' }, /data: "numbers of my own" begins with no dataset/],
  ['a dataset of nobody', { dataset: 'cifar10' }, /dataset: "cifar10" begins with no dataset/],
  ['another loss', { loss: 'CtcLoss()' }, /loss: "CtcLoss\(\)" is not among/],
  ['a loss with more to it', { loss: 'MeanSquaredError(axis=3)' }, /loss: axis=3 is not known here/],
  ['a sum', { loss: 'MeanSquaredError, sum over the batch' }, /loss: "sum over the batch": only the mean/],
  ['another optimizer', { optimizer: { class: 'Muon', config: {} } }, /optimizer\.class: "Muon"/],
  ['too few weights', { tensors: recording.tensors.slice(1) }, /weights: lists 3 weights, the model of the topology has 4/],
  [
    'another shape',
    { tensors: recording.tensors.map((one) => ({ ...one, shape: [1] })) },
    /weights\.0: sequential\/dense\/kernel is \[1\], weight 0 of the topology is dense\/kernel \[784, 32\]/,
  ],
  [
    'a layer of nobody',
    { topology: { class_name: 'Sequential', config: { layers: [{ class_name: 'Sparkle', config: {} }] } } },
    /: topology\..*Sparkle/,
  ],
  ['no layer at all', { topology: { class_name: 'Sequential' } }, /: topology/],
] as [string, Partial<TrainingRecording>, RegExp][])('a recording with %s is refused', async (_, changes, message) => {
  await expect(planned(changes)).rejects.toThrow(message);
});

it('a difference is relative to the largest number that was recorded, and what is no number differs without end', () => {
  expect(differenceOf([1, 2.5], [1, -5])).toEqual({ absolute: 7.5, relative: 1.5 });
  expect(differenceOf([0, 0], [0, 0])).toEqual({ absolute: 0, relative: 0 });
  expect(differenceOf([Number.NaN], [1]).relative).toBe(Number.POSITIVE_INFINITY);
  expect(differenceOf([], [1]).relative).toBe(Number.POSITIVE_INFINITY);
});
