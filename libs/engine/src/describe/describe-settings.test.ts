/** What passes the schema and builds in tf.js, but fails on a worker, does nothing there, or takes its memory. */
import * as tf from '@tensorflow/tfjs-core';
import * as tfl from '@tensorflow/tfjs-layers';
import type { ModelTopology, RunSpecInput } from '@paceline/spec';
import { describe, expect, it } from 'vitest';
import { describeModel } from './describe.js';
import { checkParts } from '../model/check-built-layers.js';
import { planTopology } from '../topology/plan-topology.js';
import { IMAGES, sequential, specOf } from '../run.fixture.js';

const describing = (model: RunSpecInput['model'], rest: RunSpecInput = {}) => describeModel(specOf({ ...rest, model }), IMAGES);
type Listed = readonly [className: string, config?: Record<string, unknown>];
const out10: Listed = ['Dense', { units: 10 }];
const flat: Listed = ['InputLayer', { batch_input_shape: [null, 784] }];
const rows = (...layers: Listed[]) =>
  sequential(['InputLayer', { batch_input_shape: [null, 28, 28] }], ...layers, ['GlobalMaxPooling1D'], out10);
const image = (...layers: Listed[]) => sequential(['InputLayer', { batch_input_shape: [null, 28, 28, 1] }], ...layers, ['Flatten'], out10);
const film = (...layers: Listed[]) =>
  sequential(['InputLayer', { batch_input_shape: [null, 4, 14, 14, 1] }], ...layers, ['Flatten'], out10);
const part = (class_name: string, config: Record<string, unknown> = {}) => ({ class_name, config });
const rnnOf = (class_name: string, config: Record<string, unknown>): Listed => [
  'RNN',
  { cell: part(class_name, { units: 3, ...config }), return_sequences: true },
];
const conv = (className: string, config: Record<string, unknown>): Listed => [className, { filters: 2, kernel_size: 2, ...config }];

const L1 = 'model.topology.config.layers.1';
type Refusal = readonly [what: string, model: RunSpecInput['model'], path: string, message: string, rest?: RunSpecInput];

const SPELLINGS: readonly Refusal[] = [
  ['a constraint', rows(['Dense', { units: 3, kernelConstraint: part('NonNeg') }]), `${L1}.config.kernelConstraint`, 'constraints'],
  [
    'a constraint in half camel case',
    rows(['Dense', { units: 3, kernel_Constraint: 'nonNeg' }]),
    `${L1}.config.kernel_Constraint`,
    'constraints',
  ],
  [
    "a cell's constraint",
    rows(rnnOf('GRUCell', { recurrentConstraint: 'nonNeg' })),
    `${L1}.config.cell.config.recurrentConstraint`,
    'constraints',
  ],
  [
    'an activity regularizer',
    rows(['Dense', { units: 3, activityRegularizer: 'l1l2' }]),
    `${L1}.config.activityRegularizer`,
    'regularizer',
  ],
  ['dilation', film(conv('Conv3D', { dilationRate: 2 })), `${L1}.config.dilationRate`, 'dilated'],
  [
    'wrapped dilation',
    film(['TimeDistributed', { layer: part('Conv2DTranspose', { filters: 1, kernelSize: 2, dilationRate: 2 }) }]),
    `${L1}.config.layer.config.dilationRate`,
    'dilated',
  ],
  ['windows of a pool', film(['MaxPooling3D', { poolSize: [1, 2, 1] }]), `${L1}.config.poolSize`, 'as high as wide', { engine: 'cpu' }],
  [
    'a padding with a spelling of its own',
    image(['AveragePooling2D', { padding: 'same_' }]),
    `${L1}.config.padding`,
    'borders',
    { engine: 'cpu' },
  ],
  ['a frozen layer by a number', rows(['Dense', { units: 3, trainable: 0 }]), `${L1}.config.trainable`, 'true or false'],
  ['a stateful layer by a number', rows(['LSTM', { units: 3, stateful: 1, return_sequences: true }]), `${L1}.config.stateful`, 'stateful'],
];

const MEANINGLESS: readonly Refusal[] = [
  [
    'strides 0',
    film(conv('Conv3DTranspose', { strides: 0 })),
    `${L1}.config.strides`,
    'must be a positive integer, or one for each dimension, not 0',
  ],
  ['half a stride', film(conv('Conv3D', { strides: 0.5 })), `${L1}.config.strides`, 'positive integer'],
  ['half a stride in time', film(['ConvLSTM2D', { filters: 2, kernel_size: 2, strides: 0.5 }]), `${L1}.config.strides`, 'positive integer'],
  ['causal images', image(conv('Conv2D', { padding: 'causal' })), `${L1}.config.padding`, 'one of "valid", "same", not'],
  ['causal volumes', film(conv('Conv3D', { padding: 'causal' })), `${L1}.config.padding`, 'one of'],
  ['causal images in time', film(conv('ConvLSTM2D', { padding: 'causal' })), `${L1}.config.padding`, 'one of'],
  ['a causal pool', rows(['MaxPooling1D', { padding: 'causal' }]), `${L1}.config.padding`, 'one of'],
  [
    'a causal wrapped pool',
    film(['TimeDistributed', { layer: part('MaxPooling2D', { padding: 'causal' }) }]),
    `${L1}.config.layer.config.padding`,
    'one of',
  ],
  ['groups', image(conv('Conv2D', { groups: 2 })), `${L1}.config.groups`, 'groups'],
  ['dropout of all', film(conv('ConvLSTM2D', { dropout: 1 })), `${L1}.config.dropout`, 'less than 1'],
  [
    'dropout of less than nothing',
    rows(rnnOf('LSTMCell', { recurrentDropout: -0.1 })),
    `${L1}.config.cell.config.recurrentDropout`,
    'from 0',
  ],
  ['dropout by a word', rows(rnnOf('GRUCell', { dropout: 'half' })), `${L1}.config.cell.config.dropout`, 'a number'],
  ['an infinite scale', image(['Rescaling', { scale: 1e39 }]), `${L1}.config.scale`, 'float32'],
  ['an infinite offset', image(['Rescaling', { scale: 1, offset: -1e39 }]), `${L1}.config.offset`, 'float32'],
];

const cell = (units: number) => part('SimpleRNNCell', { units, kernel_initializer: 'zeros', recurrent_initializer: 'zeros' });
const tall = part('StackedRNNCells', { cells: [cell(4000), cell(1)] });
const long: Listed = ['RepeatVector', { n: 16_384 }];
const LARGE: readonly Refusal[] = [
  [
    'the inner cells of a stack',
    sequential(flat, long, ['RNN', { cell: tall }], out10),
    'model.topology.config.layers.2',
    'all steps (65552384 elements)',
  ],
  [
    'the inner cells of a stack that gives its sequence',
    sequential(flat, long, ['RNN', { cell: tall, return_sequences: true }], ['GlobalMaxPooling1D'], out10),
    'model.topology.config.layers.2',
    'all steps (65552384 elements)',
  ],
  [
    'both directions of a wrapped stack',
    sequential(flat, ['RepeatVector', { n: 3000 }], ['Bidirectional', { layer: part('RNN', { cell: tall }) }], out10),
    'model.topology.config.layers.2',
    `all steps (${2 * 3000 * 4001} elements)`,
  ],
  [
    'the sequences in a sequence',
    sequential(
      flat,
      ['RepeatVector', { n: 5000 }],
      ['Reshape', { target_shape: [100, 50, 784] }],
      ['TimeDistributed', { layer: part('RNN', { cell: tall }) }],
      ['GlobalMaxPooling1D'],
      out10,
    ),
    'model.topology.config.layers.3',
    `all steps (${100 * 50 * 4001} elements)`,
  ],
  [
    'the states of images in time',
    sequential(
      ['InputLayer', { batch_input_shape: [null, 784, 1] }],
      ['Reshape', { target_shape: [784, 1, 1, 1] }],
      ['TimeDistributed', { layer: part('UpSampling2D', { size: [100, 100] }) }],
      ['ConvLSTM2D', { filters: 2, kernel_size: 1 }],
      ['GlobalMaxPooling2D'],
      out10,
    ),
    'model.topology.config.layers.3',
    `all steps (${784 * 100 * 100 * 2 * 2} elements)`,
  ],
];

describe.each<[what: string, refusals: readonly Refusal[]]>([
  ['in another spelling', SPELLINGS],
  ['that tf.js takes, but cannot compute', MEANINGLESS],
  ['that keeps too much', LARGE],
])('what %s is refused', (_, refusals) => {
  for (const [what, model, path, message, rest] of refusals)
    it(what, async () => {
      await expect(describing(model, rest)).rejects.toMatchObject({
        code: 'INVALID_MODEL',
        path,
        message: expect.stringContaining(message),
      });
    });
});

it('checks the classes that tf.js has made, whatever was written', () => {
  const wrapping = (layer: tfl.layers.Layer) => tfl.layers.timeDistributed({ layer });
  expect(() => checkParts(wrapping(tfl.layers.dense({ units: 1 })))).not.toThrow();
  expect(() => checkParts(wrapping(tfl.sequential()))).toThrow('layer Sequential is not allowed');
  expect(() => checkParts(tfl.layers.dense({ units: 1, kernelConstraint: 'nonNeg' }))).toThrow('kernelConstraint is not supported');
  const images = tfl.layers.convLstm2dCell({ filters: 1, kernelSize: 1 });
  expect(() => checkParts(tfl.layers.rnn({ cell: images as never }))).toThrow('cell ConvLSTM2DCell is not allowed');
});

it('takes what tf.js saves', async () => {
  await tf.setBackend('cpu');
  const { layers } = tfl;
  // The orthogonal default needs all of tf.js.
  const plain = { recurrentInitializer: 'glorotNormal' } as const;
  const model = tfl.sequential({
    layers: [
      layers.reshape({ targetShape: [4, 14, 14, 1], inputShape: [784] }),
      layers.convLstm2d({
        ...plain,
        filters: 2,
        kernelSize: 3,
        returnSequences: true,
        dropout: 0.1,
        dataFormat: 'channelsLast',
      }) as tfl.layers.Layer,
      layers.timeDistributed({
        layer: layers.conv2d({ filters: 2, kernelSize: 2, strides: 2, padding: 'same', kernelInitializer: 'heNormal' }),
      }),
      layers.timeDistributed({ layer: layers.flatten() }),
      layers.rnn({
        cell: [layers.lstmCell({ ...plain, units: 3 }), layers.gruCell({ ...plain, units: 2, recurrentDropout: 0.5 })],
        returnSequences: true,
      }),
      layers.bidirectional({
        layer: layers.gru({ ...plain, units: 3, kernelRegularizer: tfl.regularizers.l2({ l2: 0.1 }) }) as tfl.RNN,
        mergeMode: 'sum',
      }),
      layers.batchNormalization({ betaInitializer: tfl.initializers.constant({ value: 0.5 }) }),
      layers.dense({
        units: 10,
        kernelInitializer: tfl.initializers.varianceScaling({ scale: 1, mode: 'fanIn', distribution: 'uniform' }),
      }),
    ],
  });
  const topology = model.toJSON(null, false) as unknown as ModelTopology;
  expect(planTopology(topology, '').layers).toHaveLength(8);
  const { parameterCount, stateCount } = await describing({ topology });
  expect([parameterCount + stateCount, stateCount]).toEqual([model.countParams(), 6]);
  model.dispose();
});
