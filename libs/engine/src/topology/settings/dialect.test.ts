import type { ModelTopology } from '@paceline/spec';
import { expect, it } from 'vitest';
import { HARD_SIGMOID_OF_KERAS_3 } from '../../layers/activations/activation-names.js';
import { planTopology } from '../plan-topology.js';
import { configOf, dialectOf } from './dialect.js';

const dense = (config: object = {}, more: object = {}) => ({ class_name: 'Dense', config: { units: 1, ...config }, ...more });
const input = (config: object, more: object = {}) => ({ class_name: 'InputLayer', config, ...more });
const model = (layers: readonly object[], more: object = {}) =>
  ({ class_name: 'Sequential', config: { layers }, ...more }) as unknown as ModelTopology;
const marks = { module: 'keras.layers', registered_name: null };

it.each([
  ['tf.js', model([dense({ batch_input_shape: [null, 1] })]), 'tfjs'],
  ['tf.js in camel case', model([dense({ batchInputShape: [null, 1] })]), 'tfjs'],
  ['Keras 3', model([input({ batch_shape: [null, 1] }, marks), dense({}, marks)], marks), 'keras3'],
  ['Keras 3 without marks', model([input({ batch_shape: [null, 1] }), dense()]), 'keras3'],
  ['Keras 3 by its version', model([dense()], { keras_version: '3.15.1' }), 'keras3'],
  ['Keras 2 by its version', model([input({ batch_shape: [null, 1] })], { keras_version: '2.15.0' }), 'keras2'],
  ['the last Keras 2', model([input({ batch_input_shape: [null, 1] }, marks), dense({}, marks)], marks), 'keras2'],
  ['tf.js by its version', model([input({ batch_shape: [null, 1] })], { keras_version: 'tfjs-layers 4.22.0' }), 'tfjs'],
])('a topology of %s is known', (_, topology, dialect) => {
  expect(dialectOf(topology)).toBe(dialect);
});

it('what Keras 3 means by a name or leaves out is said to tf.js, in wrapped layers and cells too', () => {
  const cell = { class_name: 'LSTMCell', config: { units: 2, activation: 'hard_sigmoid' } };
  const rnn = { layer: { class_name: 'RNN', config: { cell } } };
  const inner = (dialect: 'tfjs' | 'keras3') =>
    (configOf('TimeDistributed', rnn, dialect) as { layer: { config: { cell: { config: object } } } }).layer.config.cell.config;
  expect(inner('tfjs')).toEqual({ units: 2, activation: 'hardSigmoid' });
  expect(inner('keras3')).toEqual({
    units: 2,
    activation: HARD_SIGMOID_OF_KERAS_3,
    recurrentActivation: 'sigmoid',
    kernelInitializer: 'glorotUniform',
    unitForgetBias: true,
  });
  expect(configOf('LeakyReLU', { negative_slope: 0.1 }, 'keras3')).toMatchObject({ alpha: 0.1 });
  expect(configOf('Subtract', {}, 'keras3')).toEqual({ unitesMasks: true });
  const lecun = { class_name: 'LecunNormal', config: {} };
  expect(configOf('Dense', { kernel_initializer: lecun, bias_initializer: 'lecun_uniform' }, 'keras3')).toEqual({
    kernelInitializer: { className: 'LeCunNormal', config: {} },
    biasInitializer: 'leCunUniform',
  });
});

it.each([
  ['tfjs', {}],
  ['keras2', { isExact: true }],
  ['keras3', { isExact: true }],
] as const)('a CenterCrop of %s cuts the middle out, or resamples it', (dialect, expected) => {
  expect(configOf('CenterCrop', {}, dialect)).toEqual(expected);
});

it('arguments of a call are refused, but for the training that fit decides in Keras 3', () => {
  const edge = { class_name: '__keras_tensor__', config: { keras_history: ['in', 0, 0] } };
  const called = (node: unknown, version: string) => ({
    class_name: 'Functional',
    keras_version: version,
    config: {
      layers: [
        { ...input({ name: 'in', batch_shape: [null, 4] }), inbound_nodes: [] },
        { ...dense({ name: 'd' }), inbound_nodes: [node] },
      ],
      input_layers: ['in', 0, 0],
      output_layers: ['d', 0, 0],
    },
  });
  const plan = (node: unknown, version = '3.15.1') => planTopology(called(node, version) as ModelTopology, 'm');
  expect(plan({ args: [edge], kwargs: { training: false, mask: null } }).layers[1]!.calls).toEqual([[['in', 0, 0]]]);
  const refused = expect.objectContaining({ path: 'm.config.layers.1.inbound_nodes.0' }) as unknown as Error;
  expect(() => plan({ args: [edge], kwargs: { mask: edge } })).toThrow(refused);
  expect(() => plan([['in', 0, 0, { training: false }]], '2.15.0')).toThrow(refused);
});
