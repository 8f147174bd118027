/**
 * What stock tf.js (the npm package of TensorFlow, without the layers of libs/engine) calls a layer of ours. Where it has the layer, or another
 * one that computes the same, the config is handed over; where it has none, the layer is refused: an exported model computes what was trained,
 * or it is not written.
 */
import { ExportError } from './export-error.js';

export type Config = Readonly<Record<string, unknown>>;

/** Class and config in camel case, as the constructors of tf.js take it. */
export interface StockLayer {
  readonly className: string;
  readonly config: Config;
}

type Refuse = (why: string) => never;
type Rule = (config: Config, refuse: Refuse) => StockLayer | undefined;

/** Activations that the engine adds to those of tf.js, and the one that the loader of tf.js cannot name. */
const NOT_IN_STOCK: ReadonlySet<unknown> = new Set([
  ...['hardSilu', 'hardSwish', 'leakyRelu', 'exponential', 'celu', 'hardTanh', 'tanhShrink', 'logSigmoid', 'squareplus'],
  ...['gelu_new', 'hardSigmoidOfKeras3'],
]);
const SAME_ACTIVATION: Readonly<Record<string, string>> = { silu: 'swish' };
const ACTIVATION_KEYS = ['activation', 'recurrentActivation'] as const;

const isOne = (rate: unknown): boolean => rate === undefined || rate === null || [rate].flat().every((one) => one === 1);
const isFirst = (config: Config): boolean => config['dataFormat'] === 'channelsFirst';

const gru: Rule = (config, refuse) => {
  if (config['resetAfter'] === true) refuse('tf.js has no GRU with reset_after: true, the default of Keras; its format is keras');
  const { resetAfter: _no, ...rest } = config;
  return { className: '', config: rest };
};

const withoutKept: Rule = ({ keepdims, ...rest }, refuse) =>
  keepdims === true
    ? refuse('tf.js has no global pooling with keepdims: use a Reshape behind the layer, or the format keras')
    : { className: '', config: rest };

const notInStock =
  (what: string): Rule =>
  (_, refuse) =>
    refuse(`tf.js has no ${what}; its format is keras`);

const RULES: Readonly<Record<string, Rule>> = {
  GlobalAveragePooling1D: withoutKept,
  GlobalAveragePooling2D: withoutKept,
  GlobalMaxPooling1D: withoutKept,
  GlobalMaxPooling2D: withoutKept,
  MultiHeadAttention: notInStock('MultiHeadAttention'),
  TokenAndPositionEmbedding: notInStock('TokenAndPositionEmbedding'),
  Conv1DTranspose: notInStock('Conv1DTranspose'),
  Normalization: notInStock('Normalization'),
  Resizing: notInStock('Resizing that a model can call'),
  SpatialDropout2D: notInStock('SpatialDropout2D'),
  Subtract: notInStock('Subtract'),
  GRU: gru,
  GRUCell: gru,
  ReLU: (config, refuse) => {
    const { negativeSlope, threshold, ...rest } = config;
    if ((threshold ?? 0) !== 0) refuse('tf.js has no ReLU with a threshold');
    if ((negativeSlope ?? 0) === 0) return { className: 'ReLU', config: rest };
    if ((rest['maxValue'] ?? null) !== null) refuse('tf.js has no ReLU with both negative_slope and max_value');
    const { maxValue: _none, ...named } = rest;
    return { className: 'LeakyReLU', config: Object.assign({}, named, { alpha: negativeSlope }) };
  },
  ELU: ({ alpha }, refuse) => ((alpha ?? 1) === 1 ? undefined : refuse('tf.js has no ELU with another alpha than 1')),
  Conv1D: ({ padding }, refuse) => (padding === 'causal' ? refuse('tf.js has no Conv1D with causal padding') : undefined),
  DepthwiseConv2D: (config, refuse) => (isOne(config['dilationRate']) ? undefined : refuse('tf.js has no dilated DepthwiseConv2D layer')),
  SeparableConv2D: (config, refuse) =>
    isFirst(config) && config['useBias'] !== false
      ? refuse('tf.js adds the bias of SeparableConv2D to the wrong dimension with channels first: use channels last')
      : undefined,
  CenterCrop: (config, refuse) =>
    config['isExact'] === true ? refuse('tf.js resamples where the CenterCrop of Keras cuts out: crop the images before') : undefined,
};

/**
 * @param path of the layer in the run spec, for the refusal
 * @throws ExportError LAYER_NOT_EXPORTABLE
 */
export function stockLayer(className: string, config: Config, path: string): StockLayer {
  const refuse: Refuse = (why) => {
    throw new ExportError('LAYER_NOT_EXPORTABLE', `${why}; the formats safetensors and npz take every model.`, path);
  };
  if (className === 'Activation' && config['activation'] === 'leakyRelu')
    return { className: 'LeakyReLU', config: Object.assign({}, without(config, 'activation'), { alpha: 0.2 }) };
  const adapted = RULES[className]?.(config, refuse);
  const result: Record<string, unknown> = Object.assign({}, adapted?.config ?? config);
  for (const key of ACTIVATION_KEYS) {
    const activation = result[key];
    if (typeof activation === 'string' && Object.hasOwn(SAME_ACTIVATION, activation)) result[key] = SAME_ACTIVATION[activation];
    else if (NOT_IN_STOCK.has(activation)) refuse(`tf.js has no activation ${String(activation)} that can be loaded`);
  }
  for (const key of ['layer', 'cell'] as const) if (isPart(result[key])) result[key] = part(result[key], `${path}.config.${key}`);
  const { cells } = result;
  if (Array.isArray(cells))
    result['cells'] = cells.map((cell: unknown, i) => (isPart(cell) ? part(cell, `${path}.config.cells.${i}`) : cell));
  delete result['backwardLayer'];
  delete result['unitesMasks'];
  return { className: adapted?.className || className, config: result };
}

interface Part {
  readonly className: string;
  readonly config: Config;
}

export function isPart(value: unknown): value is Part {
  return value !== null && typeof value === 'object' && 'className' in value && typeof value.className === 'string' && 'config' in value;
}

/** Layers inside of layers get a name, which is part of the names of their weights: tf.js would count them per process. */
function part({ className, config }: Part, path: string): Part {
  const stock = stockLayer(className, config, path);
  return { className: stock.className, config: Object.assign({ name: className.toLowerCase() }, stock.config) };
}

function without(config: Config, key: string): Config {
  return Object.fromEntries(Object.entries(config).filter(([name]) => name !== key));
}
