/** What `train` reads of a model, and what it refuses before anything is sent. A real tf.js trains in test/cli/tutorials.test.ts. */
import { describe, expect, it } from 'vitest';
import { createClient } from '../client.js';
import { readModel } from './read-model.js';
import { tensorFile, tensorsOf } from './tensor-file.js';
import { namedWeights, type ModelLike } from './tf-shapes.js';
import { train, type TrainingApi } from './train.js';

class Adam {
  static readonly className = 'Adam';
  readonly learningRate = 0.02;
  readonly beta1 = 0.8;
  readonly beta2 = 0.99;
  readonly epsilon = 1e-6;
  getClassName(): string {
    return Adam.className;
  }
}
const softmaxCrossEntropy = { softmaxCrossEntropy__op: () => 0 }.softmaxCrossEntropy__op;

const modelOf = (changes: object = {}): ModelLike =>
  Object.assign(
    {
      name: 'flowers',
      layers: [],
      inputs: [{ shape: [null, 4] }],
      outputs: [{ shape: [null, 3] }],
      loss: 'sparseCategoricalCrossentropy',
      metrics: ['acc', 'mse'],
      optimizer: new Adam(),
      toJSON: () => ({ class_name: 'Sequential', config: { name: 'flowers', layers: [] } }),
    },
    changes,
  );

it('one of the optimizers of the library is that of the run, with all of its fields', async () => {
  class AdamW {
    static readonly className = 'paceline.adamw';
    getClassName = (): string => AdamW.className;
    getConfig = (): object => ({ learningRate: 0.02, beta1: 0.9, weightDecay: 0.1, weightDecayExclude: [{ name: '*/bias' }] });
  }
  const { optimizer } = (await readModel(modelOf({ optimizer: new AdamW() }))).spec;
  expect(optimizer).toEqual({ name: 'adamw', learningRate: 0.02, beta1: 0.9, weightDecay: 0.1, weightDecayExclude: ['*/bias'] });
});

it('optimizer, loss and metrics are those of compile; numbers of classes become one-hot rows', async () => {
  expect(await readModel(modelOf())).toEqual({
    spec: {
      model: { topology: { class_name: 'Sequential', config: { name: 'flowers', layers: [] } } },
      loss: 'categoricalCrossentropy',
      lossFromLogits: false,
      metrics: ['accuracy', 'meanSquaredError'],
      optimizer: { name: 'adam', learningRate: 0.02, beta1: 0.8, beta2: 0.99, epsilon: 1e-6 },
    },
    classes: 3,
    inputShape: [4],
    outputShape: [3],
  });
  const { spec, classes } = await readModel(modelOf({ loss: [softmaxCrossEntropy], metrics: [] }));
  expect([spec.loss, spec.lossFromLogits, spec.metrics, classes]).toEqual(['categoricalCrossentropy', true, undefined, undefined]);
});

it('accuracy of several labels is that of each, as in tf.js', async () => {
  const sigmoidCrossEntropy = { sigmoidCrossEntropy__op: () => 0 }.sigmoidCrossEntropy__op;
  const metricsOf = async (loss: unknown, width: number) =>
    (await readModel(modelOf({ loss, metrics: ['accuracy', 'categoricalAccuracy'], outputs: [{ shape: [null, width] }] }))).spec.metrics;
  expect(await metricsOf('binaryCrossentropy', 3)).toEqual(['binaryAccuracy', 'accuracy']);
  expect(await metricsOf(sigmoidCrossEntropy, 3)).toEqual(['accuracy', 'accuracy']);
  expect(await metricsOf('binaryCrossentropy', 1)).toEqual(['accuracy', 'accuracy']);
  expect(await metricsOf('categoricalCrossentropy', 3)).toEqual(['accuracy', 'accuracy']);
});

describe('refused, with what to do', () => {
  const client = createClient({ url: 'http://127.0.0.1:1', apiKey: 'none' });
  const xs = new Float32Array(8);
  const data = { xs, ys: [0, 2] };
  const server = { kind: 'parameter-server' } as const;
  it.each([
    ['a model that is not compiled', modelOf({ loss: undefined }), data, server, 'TRAIN_NOT_COMPILED', /model flowers.*model\.compile/],
    ['no model', {} as ModelLike, data, server, 'TRAIN_UNSUPPORTED', /tf\.LayersModel/],
    ['a loss of its own', modelOf({ loss: function mine() {} }), data, server, 'TRAIN_UNSUPPORTED', /loss mine.*tf\.losses/],
    ['a loss of nobody', modelOf({ loss: 'ctc' }), data, server, 'TRAIN_UNSUPPORTED', /loss ctc: the workers have/],
    ['a metric of its own', modelOf({ metrics: [() => 0] }), data, server, 'TRAIN_UNSUPPORTED', /metric.*name a metric/],
    [
      'an optimizer of its own',
      modelOf({ optimizer: new (class extends Adam {})() }),
      data,
      server,
      'TRAIN_UNSUPPORTED',
      /one of tf\.train/,
    ],
    [
      'two outputs',
      modelOf({ outputs: [{ shape: [null, 1] }, { shape: [null, 1] }] }),
      data,
      server,
      'TRAIN_UNSUPPORTED',
      /2 outputs.*createRun/,
    ],
    ['an open shape', modelOf({ inputs: [{ shape: [null, null] }] }), data, server, 'TRAIN_UNSUPPORTED', /input.*must be known/],
    ['rows of another length', modelOf(), { xs: [1, 2, 3], ys: [1] }, server, 'TRAIN_DATA', /xs: has 3 numbers.*rows of 4/],
    ['too few targets', modelOf(), { xs, ys: [1] }, server, 'TRAIN_DATA', /ys: has 1 numbers; 2 rows/],
    ['a class of nobody', modelOf(), { xs, ys: [0, 3] }, server, 'TRAIN_DATA', /number 1 is 3.*classes 0 to 2/],
    ['what is no number', modelOf(), { xs: [Number.NaN, 0, 0, 0], ys: [0] }, server, 'TRAIN_DATA', /number 0 is NaN/],
    ['no strategy', modelOf(), data, {} as never, 'TRAIN_STRATEGY', /new MirroredStrategy/],
  ] as const)('%s', async (_, model, source, strategy, code, message) => {
    const refused = client.train(model, source, strategy);
    await expect(refused).rejects.toMatchObject({ code });
    await expect(refused).rejects.toThrow(message);
  });
});

it.each([
  [{ epoch: 50 }, /^epoch: did you mean epochs\?/],
  [{ callbacks: {} }, /^callbacks: .*training\.progress/],
  [{ classWeight: { 0: 2 } }, /^classWeight: .*features\.classWeights/],
  [{ validationData: [] }, /^validationData: .*validationSplit/],
  [{ learningRate: 1 }, /^learningRate: it is none of epochs, .* belong in spec/],
  [null, /^options: give an object with epochs/],
])('options that a run has not are refused before anything is sent: %j', async (options, message) => {
  const refused = train({} as TrainingApi, modelOf(), { xs: [1, 2, 3, 4], ys: [1] }, { kind: 'mirrored' }, options as never);
  await expect(refused).rejects.toMatchObject({ code: 'TRAIN_OPTIONS' });
  await expect(refused).rejects.toThrow(message);
});

it('all that a strategy of the library says of the run is in the spec; options of the call come before it', async () => {
  const specs: unknown[] = [];
  const client = {
    models: { upload: () => Promise.resolve({ sha256: 'a'.repeat(64) }) },
    createRun: (spec: unknown) => Promise.resolve({ id: String(specs.push(spec)) }),
  } as unknown as TrainingApi;
  const said = { strategy: { kind: 'mirrored', threads: 2 }, replicas: 4, seed: 7, stepDeadlineMs: 5000 } as const;
  const strategy = { toRun: () => said };
  await train(client, modelOf(), 'flowers', strategy);
  await train(client, modelOf(), 'flowers', strategy, { replicas: 3, spec: { seed: 8 } });
  expect(specs).toEqual([expect.objectContaining(said), expect.objectContaining({ ...said, replicas: 3, seed: 8 })]);
});

it('a signal ends it before weights are sent, and before the run is made', async () => {
  const stop = new AbortController();
  const sent: unknown[] = [];
  const client = {
    models: {
      upload: (_file: unknown, { signal }: { signal: AbortSignal }) => {
        sent.push(signal);
        stop.abort(new Error('enough'));
        return Promise.resolve({ sha256: 'a'.repeat(64) });
      },
    },
    createRun: (spec: unknown) => Promise.resolve({ id: String(sent.push(spec)) }),
  } as unknown as TrainingApi;
  for (let round = 0; round < 2; round++)
    await expect(train(client, modelOf(), 'flowers', { kind: 'mirrored' }, { signal: stop.signal })).rejects.toThrow('enough');
  expect(sent).toEqual([stop.signal]);
});

it('tensors come out of a file as they went in, and weights have the paths of the run', () => {
  const values = Float32Array.of(1.5, -2, 3);
  const file = tensorFile([
    { name: 'a/kernel', shape: [3], values },
    { name: 'ü', shape: [1, 1], values: Float32Array.of(7) },
  ]);
  expect([...tensorsOf(file)]).toEqual([
    ['a/kernel', values],
    ['ü', Float32Array.of(7)],
  ]);
  expect((file.length - 16) % 8).toBe(0);
  const weight = (originalName: string) => ({ originalName });
  const layer = { name: 'pair', trainableWeights: [weight('pair/kernel'), weight('pair/kernel')], nonTrainableWeights: [weight('x/mean')] };
  const nested = { name: 'outer', trainableWeights: [], nonTrainableWeights: [], layers: [layer] };
  expect(namedWeights([nested]).map(({ path }) => path)).toEqual(['outer/pair/kernel', 'outer/pair/kernel_1', 'outer/pair/mean']);
});
