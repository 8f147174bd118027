/** What leaves as tf.js computes in stock tf.js, in another process, what it computes here; or it does not leave. */
import { createPredictor } from '@paceline/engine';
import { join } from 'node:path';
import type { ModelTopology } from '@paceline/spec';
import { afterAll, expect, it } from 'vitest';
import { zip } from './archive.js';
import { exportModel } from './export-model.js';
import { StockTfjs } from './stock-tfjs.fixture.js';
import { layer, sequential, trained } from './trained-model.fixture.js';
import { unpack } from './unpack.js';

const stock = new StockTfjs();
afterAll(() => stock.stop());

const first = (class_name: string, config: Record<string, unknown>, shape: readonly number[]) =>
  layer(class_name, Object.assign({ batch_input_shape: [null, ...shape] }, config));
const HEAD = [layer('Flatten'), layer('Dense', { units: 3 })];
const STEPS = [5, 4];
const IMAGE = [8, 8, 2];
/** Orthogonal ones are made with methods of tensors that the test's tf.js does not load. */
const cell = (class_name: string, config: Record<string, unknown> = {}) => ({
  class_name,
  config: Object.assign({ units: 3, recurrent_initializer: 'glorot_uniform' }, config),
});

type Case = readonly [
  name: string,
  model: ModelTopology | 'mlp' | 'mlp-dropout' | 'cnn' | 'lenet' | 'resnet' | 'mobilenet',
  shape: readonly number[],
];
const MODELS: readonly Case[] = [
  ['the mlp of the zoo', 'mlp', [28, 28, 1]],
  ['batch normalisation and dropout', 'mlp-dropout', [28, 28, 1]],
  ['the cnn of the zoo', 'cnn', [28, 28, 1]],
  ['the lenet of the zoo', 'lenet', [12, 12, 1]],
  ['the residual network of the zoo', 'resnet', [8, 8, 3]],
  ['the separable convolutions of the zoo', 'mobilenet', [8, 8, 1]],
  ['an LSTM', sequential([first('LSTM', { units: 3 }, STEPS), layer('Dense', { units: 3 })]), STEPS],
  ['a GRU', sequential([first('GRU', { units: 3 }, STEPS), layer('Dense', { units: 3 })]), STEPS],
  [
    'LSTMs in both directions',
    sequential([first('Bidirectional', { layer: cell('LSTM', { return_sequences: true }) }, STEPS), ...HEAD]),
    STEPS,
  ],
  [
    'a stack of cells of two kinds, one without bias',
    sequential([
      first(
        'RNN',
        { cell: { class_name: 'StackedRNNCells', config: { cells: [cell('SimpleRNNCell', { use_bias: false }), cell('LSTMCell')] } } },
        STEPS,
      ),
      layer('Dense', { units: 3 }),
    ]),
    STEPS,
  ],
  [
    'a layer for each step',
    sequential([first('TimeDistributed', { layer: { class_name: 'Dense', config: { units: 2 } } }, STEPS), ...HEAD]),
    STEPS,
  ],
  [
    'dilated and separable convolutions',
    sequential([
      first('Conv2D', { filters: 3, kernel_size: 2, dilation_rate: 2, activation: 'silu' }, IMAGE),
      layer('SeparableConv2D', { filters: 4, kernel_size: 2, activation: 'mish' }),
      layer('DepthwiseConv2D', { kernel_size: 2, depth_multiplier: 2 }),
      layer('LayerNormalization'),
      ...HEAD,
    ]),
    IMAGE,
  ],
  [
    'channels first and upsampling',
    sequential([
      first('Conv2DTranspose', { filters: 2, kernel_size: 2, data_format: 'channels_first' }, [2, 5, 5]),
      layer('UpSampling2D', { data_format: 'channels_first' }),
      layer('ReLU', { negative_slope: 0.1 }),
      ...HEAD,
    ]),
    [2, 5, 5],
  ],
  ['images through time', sequential([first('ConvLSTM2D', { filters: 2, kernel_size: 2 }, [3, 5, 5, 1]), ...HEAD]), [3, 5, 5, 1]],
  [
    'words',
    sequential([
      first('Embedding', { input_dim: 9, output_dim: 3, mask_zero: true }, [6]),
      layer('LSTM', { units: 2 }),
      layer('Dense', { units: 3 }),
    ]),
    [6],
  ],
  [
    'initializers and regularizers',
    sequential([
      first(
        'Dense',
        {
          units: 3,
          kernel_initializer: { class_name: 'VarianceScaling', config: { scale: 1, mode: 'fan_avg', distribution: 'uniform', seed: null } },
          bias_initializer: 'lecun_normal',
          kernel_regularizer: { class_name: 'L2', config: { l2: 0.01 } },
          activation: 'gelu',
        },
        [4],
      ),
      layer('PReLU'),
      layer('Activation', { activation: 'leaky_relu' }),
      layer('Dense', { units: 3 }),
    ]),
    [4],
  ],
  [
    'a graph of Keras 3 with a layer that is called twice',
    {
      class_name: 'Functional',
      keras_version: '3.15.1',
      config: {
        name: 'graph',
        layers: [
          { class_name: 'InputLayer', name: 'in', config: { batch_shape: [null, 4], name: 'in' }, inbound_nodes: [] },
          { class_name: 'Dense', name: 'd', config: { units: 4, name: 'd' }, inbound_nodes: [[['in', 0, 0, {}]], [['d', 0, 0, {}]]] },
          {
            class_name: 'Add',
            name: 'sum',
            config: { name: 'sum' },
            inbound_nodes: [
              [
                ['d', 0, 0, {}],
                ['d', 1, 0, {}],
              ],
            ],
          },
          { class_name: 'Dense', name: 'out', config: { units: 3, name: 'out' }, inbound_nodes: [[['sum', 0, 0, {}]]] },
        ],
        input_layers: [['in', 0, 0]],
        output_layers: [['out', 0, 0]],
      },
    } as unknown as ModelTopology,
    [4],
  ],
];

it.each(MODELS)('%s', async (name, topology, shape) => {
  const isZoo = typeof topology === 'string';
  const model = await trained(isZoo ? topology : { topology }, shape, isZoo ? 10 : 3);
  const folder = join(stock.folder, name.replaceAll(' ', '-'));
  await unpack(zip(exportModel(model, 'tfjs')), folder, false);
  const predictor = await createPredictor(model.spec, model.valuesOf, model.format);
  const count = 3;
  const size = shape.reduce((a, b) => a * b, 1);
  const values = Float32Array.from({ length: count * size }, (_, i) => (name === 'words' ? i % 7 : Math.cos(i)));
  const inputShape = predictor.inputs[0]!.shape as number[];
  const { outputs, error } = await stock.ask(folder, [{ shape: [count, ...inputShape], values }]);
  expect(error).toBeUndefined();
  const expected = predictor.predict([values], count);
  predictor.dispose();
  expect(outputs).toHaveLength(1);
  const got = outputs![0]!.values;
  expect(got).toHaveLength(expected[0]!.length);
  const scale = Math.max(1, ...expected[0]!.map(Math.abs));
  got.forEach((value, i) => expect(Math.abs(value - expected[0]![i]!)).toBeLessThan(1e-6 * scale * 10));
  expect(new Set(got.map((value) => value.toFixed(6))).size).toBeGreaterThan(1);
});

const REFUSED: readonly (readonly [layer: string, topology: ModelTopology, shape: readonly number[], says: RegExp])[] = [
  [
    'GRU with reset_after',
    sequential([first('GRU', { units: 3, reset_after: true }, STEPS), layer('Dense', { units: 3 })]),
    STEPS,
    /layers\.0: .*reset_after/,
  ],
  [
    'that GRU in both directions',
    sequential([first('Bidirectional', { layer: cell('GRU', { reset_after: true }) }, STEPS), layer('Dense', { units: 3 })]),
    STEPS,
    /layers\.0\.config\.layer: /,
  ],
  [
    'hard_sigmoid of Keras 3',
    sequential([first('Dense', { units: 3, activation: 'hard_sigmoid' }, [4])], { keras_version: '3.15.1' }),
    [4],
    /layers\.0: .*hardSigmoid/,
  ],
  [
    'a mean over the steps that a mask leaves',
    sequential([
      first('Masking', { mask_value: 0 }, STEPS),
      layer('Dense', { units: 2 }),
      layer('GlobalAveragePooling1D'),
      layer('Dense', { units: 3 }),
    ]),
    STEPS,
    /layers\.2: GlobalAveragePooling1D of tf\.js takes no mask/,
  ],
  [
    'global pooling with keepdims',
    sequential([first('GlobalMaxPooling2D', { keepdims: true }, IMAGE), ...HEAD]),
    IMAGE,
    /layers\.0: .*keepdims/,
  ],
  [
    'BatchNormalization along another axis than the last',
    sequential([
      first('Conv2D', { filters: 2, kernel_size: 2, data_format: 'channels_first' }, [2, 5, 5]),
      layer('BatchNormalization', { axis: 1 }),
      ...HEAD,
    ]),
    [2, 5, 5],
    /layers\.1: BatchNormalization of tf\.js works along the last axis, and this one has axis 1/,
  ],
  [
    'BatchNormalization along the steps that a recurrent layer gives',
    sequential([
      first('GRU', { units: 4, return_sequences: true }, STEPS),
      layer('BatchNormalization', { axis: 1 }),
      layer('Flatten'),
      layer('Dense', { units: 3 }),
    ]),
    STEPS,
    /layers\.1: BatchNormalization of tf\.js works along the last axis/,
  ],
  [
    'a recurrent layer behind one that ended a mask',
    sequential([
      first('Embedding', { input_dim: 9, output_dim: 3, mask_zero: true }, [6]),
      layer('LSTM', { units: 2 }),
      layer('RepeatVector', { n: 4 }),
      layer('LSTM', { units: 2 }),
      layer('Dense', { units: 3 }),
    ]),
    [6],
    /layers\.3: tf\.js hands the mask of other layers on to LSTM/,
  ],
  ['Resizing', sequential([first('Resizing', { height: 3, width: 3 }, IMAGE), ...HEAD]), IMAGE, /layers\.0: .*Resizing/],
  ['ELU with alpha', sequential([first('Dense', { units: 3 }, [4]), layer('ELU', { alpha: 0.5 })]), [4], /layers\.1: /],
  [
    'dilated DepthwiseConv2D',
    sequential([first('DepthwiseConv2D', { kernel_size: 2, dilation_rate: 2 }, IMAGE), ...HEAD]),
    IMAGE,
    /layers\.0: /,
  ],
];

it.each(REFUSED)('%s is refused with its path, and leaves as safetensors', async (_name, topology, shape, says) => {
  const model = await trained({ topology }, shape, 3);
  expect(() => exportModel(model, 'tfjs')).toThrow(says);
  for await (const { body } of exportModel(model, 'safetensors')) for await (const piece of body) expect(piece.length).toBeGreaterThan(0);
});
