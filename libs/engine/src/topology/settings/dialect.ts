/**
 * The program that wrote a topology, and what its words mean to tf.js. Keras 3 has names of its own for some settings, another function under the name
 * hard_sigmoid, and other defaults for what a config leaves out (its own exporter leaves nothing out).
 */
import { camelCase, fieldsOf, layersOf, type ModelTopology } from '@paceline/spec';
import { HARD_SIGMOID_OF_KERAS_3 } from '../../layers/activations/activation-names.js';

/** tf.js and Keras 2 mean the same, but for what they do with images. */
export type Dialect = 'tfjs' | 'keras2' | 'keras3';
type Config = Record<string, unknown>;

/** Enumeration values that tf.js spells with an underscore, although its own loader takes it away. */
const KEPT_VALUES: ReadonlySet<string> = new Set(['gelu_new']);
/** Keras 3 has these as classes of their own; tf.js has only L1L2. */
const REGULARIZER_CLASSES: Readonly<Record<string, true>> = { L1: true, L2: true };
/** Spelled otherwise in Keras, or in its releases from 3.0 on that wrote the names of its classes with Initializer. */
const INITIALIZER_NAMES: Readonly<Record<string, string>> = {
  LecunNormal: 'LeCunNormal',
  LecunUniform: 'LeCunUniform',
  lecunNormal: 'leCunNormal',
  lecunUniform: 'leCunUniform',
  OrthogonalInitializer: 'Orthogonal',
  IdentityInitializer: 'Identity',
};

const isObject = (value: unknown): value is Config => value !== null && typeof value === 'object' && !Array.isArray(value);

/**
 * By `keras_version` where the topology has it, which tf.js writes as "tfjs-layers" and its own version, else by what only Keras 3 writes: `batch_shape`,
 * and `module` or `registered_name` beside a class, which the last releases of Keras 2 write too, with `batch_input_shape`.
 */
export function dialectOf(topology: ModelTopology): Dialect {
  const version = (topology as { readonly keras_version?: unknown }).keras_version;
  if (typeof version === 'string' && version.startsWith('tfjs-layers')) return 'tfjs';
  if (typeof version === 'string' && /^\d+\./.test(version)) return Number.parseInt(version, 10) >= 3 ? 'keras3' : 'keras2';
  const listed = layersOf(topology).filter(({ path }) => path.at(-2) === 'layers');
  const all = listed.map(({ layer }) => ({ layer, fields: fieldsOf(layer.config) }));
  const isMarked = [topology, ...all.map(({ layer }) => layer)].some((part) => 'module' in part || 'registered_name' in part);
  if (all.some(({ fields }) => fields.has('batchInputShape'))) return isMarked ? 'keras2' : 'tfjs';
  return isMarked || all.some(({ fields }) => fields.has('batchShape')) ? 'keras3' : 'tfjs';
}

/** The config of a layer as the constructor of tf.js takes it: keys and enumeration values in camel case. */
export function configOf(className: string, config: unknown, dialect: Dialect): Config {
  const translated = isObject(config) ? (translate(config, '', dialect) as Config) : {};
  return adapted(className, translated, dialect);
}

/** A value of a config by itself. `key` is in camel case. */
export function valueOf(value: unknown, key: string): unknown {
  return HELD_PARTS.has(key) ? value : translate(value, key, 'tfjs');
}

/** Layers in layers are visited by themselves. */
const HELD_PARTS: ReadonlySet<string> = new Set(['layer', 'backwardLayer', 'cell', 'cells', 'layers']);

/** Snake case to camel case for keys and enumeration values, Keras 3 wrappers opened; the same rules as tf.js's own loader. */
function translate(value: unknown, key: string, dialect: Dialect): unknown {
  if (typeof value === 'string') return key === 'name' || key === 'className' || KEPT_VALUES.has(value) ? value : enumeration(value, key);
  if (Array.isArray(value)) return value.map((item) => translate(item, key, dialect));
  if (!isObject(value)) return value;
  if (key === 'dtype') return isObject(value['config']) ? value['config']['name'] : undefined;
  if (typeof value['class_name'] === 'string') return serializedObject(value['class_name'], value['config'], dialect);
  return Object.fromEntries(Object.entries(value).map(([k, v]) => [camelCase(k), translate(v, camelCase(k), dialect)]));
}

function enumeration(value: string, key: string): string {
  const name = camelCase(value);
  return key.endsWith('Initializer') && Object.hasOwn(INITIALIZER_NAMES, name) ? INITIALIZER_NAMES[name]! : name;
}

function serializedObject(className: string, config: unknown, dialect: Dialect): unknown {
  const inner = configOf(className, config, dialect);
  if (Object.hasOwn(REGULARIZER_CLASSES, className) && !('l1' in inner && 'l2' in inner)) {
    const { l1 = 0, l2 = 0, ...rest } = inner;
    return { className: 'L1L2', config: { l1, l2, ...rest } };
  }
  return { className: Object.hasOwn(INITIALIZER_NAMES, className) ? INITIALIZER_NAMES[className] : className, config: inner };
}

const WEIGHTS: Config = { kernelInitializer: 'glorotUniform' };
const GATES: Config = { ...WEIGHTS, recurrentActivation: 'sigmoid' };
const LSTM: Config = { ...GATES, unitForgetBias: true };
const GRU: Config = { ...GATES, resetAfter: true };

/** Where Keras 3 has another default than tf.js. */
const KERAS_3_DEFAULTS: Readonly<Record<string, Config>> = {
  Dense: WEIGHTS,
  Conv1D: WEIGHTS,
  Conv2D: WEIGHTS,
  Conv3D: WEIGHTS,
  Conv2DTranspose: WEIGHTS,
  Conv3DTranspose: WEIGHTS,
  DepthwiseConv2D: { depthwiseInitializer: 'glorotUniform' },
  SimpleRNN: WEIGHTS,
  SimpleRNNCell: WEIGHTS,
  LSTM,
  LSTMCell: LSTM,
  ConvLSTM2D: LSTM,
  GRU,
  GRUCell: GRU,
  Softmax: { axis: -1 },
};

/** In Keras 3 a step counts behind them where one of the masks says so, and all do where one tensor has no mask; in tf.js and Keras 2 where all masks do. */
const MEETING: ReadonlySet<string> = new Set(['Add', 'Average', 'Maximum', 'Minimum', 'Multiply', 'Subtract']);

/** Settings that tf.js knows by another name, and what they mean in the dialect. */
function adapted(className: string, config: Config, dialect: Dialect): Config {
  const result: Config = { ...config };
  if (dialect === 'keras3') for (const [key, value] of Object.entries(KERAS_3_DEFAULTS[className] ?? {})) result[key] ??= value;
  if (className === 'LeakyReLU') result['alpha'] ??= result['negativeSlope'];
  // Keras 2 writes it, and does not use it; tf.js would refuse it.
  if (className === 'SeparableConv2D') delete result['kernelInitializer'];
  if (className === 'BatchNormalization' && Array.isArray(result['axis'])) result['axis'] = (result['axis'] as unknown[])[0];
  // Keras cuts the middle out; tf.js resamples it.
  if (className === 'CenterCrop' && dialect !== 'tfjs') result['isExact'] = true;
  if (dialect !== 'keras3') return result;
  for (const key of ['activation', 'recurrentActivation']) if (result[key] === 'hardSigmoid') result[key] = HARD_SIGMOID_OF_KERAS_3;
  if (MEETING.has(className)) result['unitesMasks'] = true;
  return result;
}
