/** The table of settings against what tf.js and Keras 3 write, and what it refuses. */
import { readFileSync } from 'node:fs';
import * as tf from '@tensorflow/tfjs-core';
import '@tensorflow/tfjs-backend-cpu';
import { ALLOWED_CELLS, ALLOWED_LAYERS, fieldsOf, type LayerTopology, type ModelTopology } from '@paceline/spec';
import { describe, expect, it } from 'vitest';
import { registerLayers } from '../../layers/register.js';
import { checkSettings } from './check-settings.js';
import { configOf, type Dialect } from './dialect.js';
import { EVERY_LAYER, LAYER_SETTINGS } from './layer-settings.js';
import type { Settings } from './setting.js';

type Config = Record<string, unknown>;
const TABLE = LAYER_SETTINGS as Readonly<Record<string, Settings>>;
const CLASSES: readonly string[] = [...ALLOWED_LAYERS, ...ALLOWED_CELLS];
const isCell = (name: string): boolean => (ALLOWED_CELLS as readonly string[]).includes(name);
const part = (class_name: string, config: object): LayerTopology => ({ class_name, config: config as Config });

/** A topology with this layer, or a cell in an RNN. */
function holding(name: string, config: object): ModelTopology {
  const layer = isCell(name) ? part('RNN', { cell: part(name, config) }) : part(name, config);
  return { class_name: 'Sequential', config: { layers: [layer] } };
}
const check = (name: string, config: object, dialect: Dialect = 'tfjs') => checkSettings(holding(name, config), 'm', dialect);

const { configs: KERAS } = JSON.parse(readFileSync(new URL('keras-3.fixture.json', import.meta.url), 'utf8')) as {
  configs: Readonly<Record<string, Config>>;
};

/** What a constructor of tf.js must be given. */
const needed: Readonly<Record<string, Config>> = {
  InputLayer: { inputShape: [4] },
  Rescaling: { scale: 1 },
  Resizing: { height: 1, width: 1 },
  Normalization: { mean: [0], variance: [1] },
  CenterCrop: { height: 1, width: 1 },
  CategoryEncoding: { numTokens: 2 },
  Activation: { activation: 'relu' },
  Reshape: { targetShape: [1] },
  Permute: { dims: [1] },
  RepeatVector: { n: 1 },
  Cropping2D: { cropping: 1 },
  Dot: { axes: 1 },
  GaussianNoise: { stddev: 0.5 },
  Embedding: { inputDim: 1, outputDim: 1 },
  MultiHeadAttention: { numHeads: 1, keyDim: 1 },
  TokenAndPositionEmbedding: { vocabularySize: 1, sequenceLength: 1, embeddingDim: 1 },
};
/** Settings for the layers that have them. */
const OFTEN: Config = { units: 1, filters: 1, kernelSize: 1, rate: 0.5, recurrentInitializer: 'zeros' };

/** As tf.js saves it: keys and what is undefined as null. */
function savedByTfjs(name: string): Config {
  registerLayers();
  const map = tf.serialization.SerializationMap.getMap().classNameMap;
  const make = (className: string, args: Config) =>
    new (map[className]![0] as unknown as new (args: Config) => { getConfig(): Config })(args);
  const args: Config = { ...(needed[name] ?? {}) };
  for (const [key, value] of Object.entries(OFTEN)) if (Object.hasOwn(TABLE[name]!, key)) args[key] ??= value;
  const cell = () => make('LSTMCell', OFTEN);
  if (name === 'RNN') args['cell'] = cell();
  if (name === 'StackedRNNCells') args['cells'] = [cell()];
  if (name === 'Bidirectional') args['layer'] = make('LSTM', OFTEN);
  if (name === 'TimeDistributed') args['layer'] = make('Dense', OFTEN);
  const written = JSON.stringify(make(name, args).getConfig(), (_, value: unknown) => value ?? null);
  return JSON.parse(written.replaceAll('"className"', '"class_name"')) as Config;
}

/** Keras 3.6 writes what stands here for the recurrent kernel of each LSTM and GRU. */
it.each([
  ['OrthogonalInitializer', { seed: null, gain: 1 }],
  ['IdentityInitializer', { gain: 1 }],
])('an initializer of the early releases of Keras 3 bears the name of its class, %s', (class_name, own) => {
  const recurrent_initializer = { module: 'keras.initializers', class_name, config: own, registered_name: null };
  const config = Object.assign({}, KERAS['LSTM'], { recurrent_initializer });
  expect(() => check('LSTM', config, 'keras3')).not.toThrow();
  const { recurrentInitializer } = configOf('LSTM', config, 'keras3');
  expect(recurrentInitializer).toEqual({ className: class_name.replace('Initializer', ''), config: own });
});

describe.each(CLASSES)('the settings of %s', (name) => {
  it('are all that tf.js saves', () => {
    expect(() => check(name, savedByTfjs(name))).not.toThrow();
  });

  it.skipIf(name === 'ThresholdedReLU')('are all that Keras 3 writes, and its defaults are taken', () => {
    expect(() => check(name, KERAS[name]!, 'keras3')).not.toThrow();
  });

  it('are all known to tf.js or to Keras: a key of the table that nobody writes is a mistake of the table', () => {
    const written = new Set([...Object.keys(savedByTfjs(name)), ...fieldsOf(KERAS[name] ?? {}).keys(), ...NOT_WRITTEN]);
    expect(Object.keys(TABLE[name]!).filter((key) => !written.has(key))).toEqual([]);
  });

  it('end there', () => {
    expect(() => check(name, { foo: 1 })).toThrow(`${name} has no setting "foo"`);
    // But for the inputs of whole numbers.
    const own = Object.keys(EVERY_LAYER).filter((key) => Object.hasOwn(TABLE[name]!, key));
    expect(own).toEqual(name === 'InputLayer' ? ['dtype'] : []);
  });
});

/** Written only when they are set, or by older releases. */
const NOT_WRITTEN = [
  'loraRank',
  'loraAlpha',
  'inputDim',
  'inputLength',
  'timeMajor',
  'useCudnn',
  'implementation',
  'groups',
  'dropoutFunc',
];
NOT_WRITTEN.push(
  'quantizationConfig',
  'keepdims',
  'sparse',
  'ragged',
  'noiseShape',
  'seed',
  'kernelInitializer',
  'kernelRegularizer',
  'kernelConstraint',
  'useCausalMask',
);

it.each<[string, Config]>([
  ['InputLayer', { batch_input_shape: [null, 4], dtype: 'float32', sparse: false, ragged: false }],
  ['BatchNormalization', { axis: [3], momentum: 0.99, epsilon: 0.001 }],
  ['LSTM', { units: 2, time_major: false, implementation: 2, unroll: false, stateful: false, zero_output_for_mask: false }],
  ['ReLU', { max_value: 6, negative_slope: 0, threshold: 0 }],
  ['Embedding', { input_dim: 2, output_dim: 2, mask_zero: false, input_length: null, activity_regularizer: null }],
  ['SeparableConv2D', { filters: 1, kernel_size: [1, 1], groups: 1, kernel_initializer: 'glorot_uniform', kernel_constraint: null }],
  ['DepthwiseConv2D', { kernel_size: [1, 1], groups: 1, depthwise_initializer: part('GlorotUniform', { seed: null, dtype: 'float32' }) }],
  ['Conv2DTranspose', { filters: 1, kernel_size: [1, 1], output_padding: null, groups: 1 }],
  ['SpatialDropout1D', { rate: 0.5, noise_shape: null, seed: null }],
])('Keras 2 writes other keys of %s, which are taken', (name, config) => {
  expect(() => check(name, { name: 'x', trainable: true, dtype: 'float32', ...config })).not.toThrow();
});

it('Keras 3 has every layer but ThresholdedReLU', () => {
  expect(CLASSES.filter((name) => !KERAS[name])).toEqual(['ThresholdedReLU']);
});

describe('is refused, with its path and what to write instead:', () => {
  const conv = { filters: 2, kernel_size: 3 };
  const lstm = { units: 2 };
  const layer = (config: Config) => part('LSTM', { ...lstm, ...config });
  it.each<[what: string, name: string, config: Config, key: string, message: string, dialect?: Dialect]>([
    ['a key that is nearly right', 'LeakyReLU', { alhpa: 0.1 }, 'alhpa', 'did you mean "alpha"'],
    ['a key of another layer', 'Dense', { units: 1, rate: 0.1 }, 'rate', 'its settings are units'],
    ['normalisation by the root mean square', 'LayerNormalization', { rms_scaling: true }, 'rms_scaling', 'root mean square'],
    ['batch renormalisation', 'BatchNormalization', { renorm: true }, 'renorm', 'leave it out'],
    ['statistics of all replicas', 'BatchNormalization', { synchronized: true }, 'synchronized', 'own rows'],
    ['output padding', 'Conv2DTranspose', { ...conv, output_padding: [1, 1] }, 'output_padding', 'leave it out'],
    ['time in front', 'LSTM', { ...lstm, time_major: true }, 'time_major', 'batch, time'],
    ['states as outputs', 'GRU', { ...lstm, return_state: true }, 'return_state', 'not supported'],
    ['adapters', 'Embedding', { input_dim: 2, output_dim: 2, lora_rank: 2 }, 'lora_rank', 'low-rank'],
    ['float16', 'Dense', { units: 1, dtype: 'float16' }, 'dtype', 'only float32'],
    ['mixed precision', 'Dense', { units: 1, dtype: part('DTypePolicy', { name: 'mixed_float16' }) }, 'dtype', 'only float32', 'keras3'],
    ['a dropout of more than all', 'Dropout', { rate: 1.5 }, 'rate', 'from 0 to less than 1, not 1.5'],
    ['a dropout of all', 'Dropout', { rate: 1 }, 'rate', 'less than 1'],
    ['negative units', 'LSTM', { units: -2 }, 'units', 'a positive integer, not -2'],
    ['no units', 'Dense', { units: null }, 'units', 'a positive integer'],
    ['strides of nothing', 'Conv2D', { ...conv, strides: [1, 0] }, 'strides', 'positive integer'],
    ['a dilated volume', 'Conv3D', { ...conv, dilation_rate: 2 }, 'dilation_rate', 'dilated'],
    ['dilation with strides', 'Conv2D', { ...conv, dilation_rate: 2, strides: 2 }, 'dilation_rate', 'use strides 1'],
    ['rows with channels first', 'Conv1D', { ...conv, data_format: 'channels_first' }, 'data_format', 'channels_last'],
    ['a layer as an activation', 'Dense', { units: 1, activation: part('ReLU', {}) }, 'activation', 'a layer of its own'],
    ['a class of tf.js as an activation', 'Dense', { units: 1, activation: 'Zeros' }, 'activation', 'one of linear'],
    ['our name of an activation', 'Dense', { units: 1, activation: 'hard_sigmoid_of_keras3' }, 'activation', 'one of linear'],
    [
      'a setting of an initializer',
      'Dense',
      { units: 1, kernel_initializer: part('RandomNormal', { std: 1 }) },
      'kernel_initializer',
      'keys',
    ],
    ['a bias that is neither there nor not', 'Dense', { units: 1, use_bias: null }, 'use_bias', 'true or false'],
    ['two slopes', 'LeakyReLU', { alpha: 0.1, negative_slope: 0.2 }, 'negative_slope', 'leave one out'],
    ['other settings beside a cell', 'RNN', { cell: part('LSTMCell', lstm), units: 3 }, 'units', 'RNN has no setting'],
    [
      'another backward layer',
      'Bidirectional',
      { layer: layer({}), backward_layer: layer({ units: 3, go_backwards: true }) },
      'backward_layer',
      'itself',
    ],
    [
      'attention over other axes',
      'MultiHeadAttention',
      { num_heads: 1, key_dim: 1, attention_axes: [2] },
      'attention_axes',
      'leave it out',
    ],
    ['attention without heads', 'MultiHeadAttention', { num_heads: 0, key_dim: 1 }, 'num_heads', 'a positive integer'],
    [
      'attention with an output of two dimensions',
      'MultiHeadAttention',
      { num_heads: 1, key_dim: 1, output_shape: [2, 3] },
      'output_shape',
      'one positive integer',
    ],
    ['a gate', 'MultiHeadAttention', { num_heads: 1, key_dim: 1, use_gate: true }, 'use_gate', 'no gate'],
    ['masks of tokens', 'TokenAndPositionEmbedding', { vocabulary_size: 1, mask_zero: true }, 'mask_zero', 'takes no masks'],
    ['outputs side by side', 'Bidirectional', { layer: layer({}), merge_mode: null }, 'merge_mode', '"concat"'],
    ['samples at the centres of pixels', 'UpSampling2D', { interpolation: 'bilinear' }, 'interpolation', 'centres', 'keras3'],
    ['samples at the centres of pixels in Keras 2', 'UpSampling2D', { interpolation: 'bilinear' }, 'interpolation', 'centres', 'keras2'],
  ])('%s', (_, name, config, key, message, dialect) => {
    const refused = expect.objectContaining({
      path: `m.config.layers.0.config.${key}`,
      message: expect.stringContaining(message) as string,
    });
    expect(() => check(name, config, dialect)).toThrow(refused as unknown as Error);
  });

  it('what stands in wrapped layers and cells', () => {
    const wrapped = { layer: part('RNN', { cell: part('StackedRNNCells', { cells: [part('GRUCell', { units: 2, rset_after: true })] }) }) };
    expect(() => check('TimeDistributed', wrapped)).toThrow(
      expect.objectContaining({
        path: 'm.config.layers.0.config.layer.config.cell.config.cells.0.config.rset_after',
        message: expect.stringContaining('did you mean "reset_after"') as string,
      }) as unknown as Error,
    );
  });

  it('no backward layer that a .keras file numbers otherwise', () => {
    const made = (go_backwards: boolean, shared_object_id: number) =>
      layer({ go_backwards, kernel_initializer: { ...part('Zeros', {}), shared_object_id } });
    expect(() => check('Bidirectional', { layer: made(false, 1), backward_layer: made(true, 2) }, 'keras3')).not.toThrow();
  });

  it('zeros for masked steps, where there are masks', () => {
    const lstmOf = part('LSTM', { ...lstm, return_sequences: true, zero_output_for_mask: true });
    const model = (...layers: LayerTopology[]): ModelTopology => ({ class_name: 'Sequential', config: { layers } });
    expect(() => checkSettings(model(lstmOf), 'm', 'keras3')).not.toThrow();
    expect(() => checkSettings(model(part('Masking', { mask_value: 0 }), lstmOf), 'm', 'keras3')).toThrow('masked');
  });

  it('a class of their own under the name of a layer', () => {
    const named = { ...part('Dense', { units: 1 }), registered_name: 'mine>Dense' };
    expect(() => checkSettings({ class_name: 'Sequential', config: { layers: [named] } }, 'm', 'keras3')).toThrow('of your own');
  });

  it('a frozen model', () => {
    const frozen = { class_name: 'Sequential', config: { trainable: false, layers: [part('Flatten', {})] } };
    expect(() => checkSettings(frozen, 'm', 'keras3')).toThrow(expect.objectContaining({ path: 'm.config.trainable' }) as unknown as Error);
  });
});
