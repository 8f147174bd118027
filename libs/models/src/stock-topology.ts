/**
 * From a planned model to the `modelTopology` of a model.json that stock tf.js loads, and from the paths of our variables to the names that it
 * gives its weights. Whatever dialect a topology came in (tf.js, Keras 2, Keras 3), it leaves as tf.js writes it.
 */
import { layersUnderMasks, type PlannedLayer, type PlannedModel } from '@paceline/engine/planning';
import { ExportError } from './export-error.js';
import { isPart, stockLayer, type Config } from './stock-layers.js';
import { inputRank } from './stock-shapes.js';

export const TFJS_VERSION = '4.22.0';

/** In tf.js masks end there, and its mean over steps is that of all of them. */
const WITHOUT_MASKS: ReadonlySet<string> = new Set([
  ...['ELU', 'GlobalAveragePooling1D', 'LeakyReLU', 'Rescaling'],
  // There they give masks a dimension too many.
  ...['Add', 'Average', 'Maximum', 'Minimum', 'Multiply'],
]);

/** They act on a mask, and tf.js 4.22 hands one on to every layer that is computed after one with a mask, and has none itself. */
const TAKES_MASKS: ReadonlySet<string> = new Set(['Bidirectional', 'ConvLSTM2D', 'GRU', 'LSTM', 'RNN', 'SimpleRNN', 'Softmax']);

/** What tf.js does along the last axis alone, in a prediction at least. */
const ALONG_LAST: ReadonlySet<string> = new Set(['BatchNormalization', 'Softmax']);

/** The layer with its axis counted as tf.js understands it. @throws ExportError LAYER_NOT_EXPORTABLE */
function withAxis(plan: PlannedModel, layer: PlannedLayer): Config {
  const { className, config, path } = layer;
  const { axis } = config;
  if (typeof axis !== 'number' || axis === -1 || !(ALONG_LAST.has(className) || className === 'Concatenate')) return config;
  const rank = inputRank(plan, layer);
  if (className === 'Concatenate' && axis >= 0) return config;
  if (className === 'Concatenate' && rank !== undefined) return Object.assign({}, config, { axis: axis + rank });
  if (axis >= 0 && axis === (rank ?? 0) - 1) return config;
  const does =
    className === 'Concatenate' ? 'concatenates along the last axis, whatever negative one is given' : 'works along the last axis';
  throw new ExportError(
    'LAYER_NOT_EXPORTABLE',
    `${className} of tf.js ${does}, and this one has axis ${axis}; the formats keras, safetensors and npz take the model.`,
    path,
  );
}

/** @throws ExportError LAYER_NOT_EXPORTABLE naming the layer */
export function stockTopology(plan: PlannedModel, name: string): Record<string, unknown> {
  const masked = layersUnderMasks(plan);
  const layers = plan.layers.map((layer) => {
    const { className, config } = stockLayer(layer.className, withAxis(plan, layer), layer.path);
    if (TAKES_MASKS.has(className) && masked.size > 0 && !masked.has(layer.name))
      throw new ExportError(
        'LAYER_NOT_EXPORTABLE',
        `tf.js hands the mask of other layers on to ${className}, which has none here; the formats keras, safetensors and npz take the model.`,
        layer.path,
      );
    if (WITHOUT_MASKS.has(className) && masked.has(layer.name))
      throw new ExportError(
        'LAYER_NOT_EXPORTABLE',
        `${className} of tf.js takes no mask, and one comes to it; the formats keras, safetensors and npz take the model.`,
        layer.path,
      );
    const entry = { class_name: className, config: pythonic(config) };
    if (plan.sequential) return entry;
    const inbound = layer.calls.map((edges) => edges.map(([from, node, tensor]) => [from, node, tensor, {}]));
    return Object.assign(entry, { name: layer.name, inbound_nodes: inbound });
  });
  const config = plan.sequential ? { name, layers } : { name, layers, input_layers: plan.inputs, output_layers: plan.outputs };
  return {
    class_name: plan.sequential ? 'Sequential' : 'Model',
    config,
    keras_version: `tfjs-layers ${TFJS_VERSION}`,
    backend: 'tensor_flow.js',
  };
}

/** Keys and enumeration values in snake case, as tf.js writes them; names stay. */
function pythonic(value: unknown, key = ''): unknown {
  if (typeof value === 'string') return key === 'name' || key === 'className' ? value : snakeCase(value);
  if (Array.isArray(value)) return value.map((item) => pythonic(item, key));
  if (value === null || typeof value !== 'object') return value;
  return Object.fromEntries(Object.entries(value).map(([k, v]) => [snakeCase(k), pythonic(v, k)]));
}

/** A class that stands for itself (an initializer's `GlorotUniform`) is no enumeration value. */
const snakeCase = (text: string): string =>
  /^[a-z]/.test(text) ? text.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`) : text;

/** Weights of a recurrent cell, in the order in which they are made. */
const cellWeights = (config: Config): string[] => ['kernel', 'recurrent_kernel', ...(config['useBias'] === false ? [] : ['bias'])];
const CELLS: ReadonlySet<string> = new Set(['SimpleRNN', 'LSTM', 'GRU', 'ConvLSTM2D', 'SimpleRNNCell', 'LSTMCell', 'GRUCell']);

/** The names inside of a layer, for layers that hold several parts of one kind; undefined for all others. */
function namesInside(className: string, config: Config): string[] | undefined {
  if (CELLS.has(className)) return cellWeights(config);
  const { layer, cell, cells } = config;
  if (className === 'Bidirectional' && isPart(layer)) {
    const inner = namesInside(layer.className, layer.config) ?? [];
    const called = typeof layer.config['name'] === 'string' ? layer.config['name'] : layer.className.toLowerCase();
    return ['forward', 'backward'].flatMap((way) => inner.map((name) => `${way}_${called}/${name}`));
  }
  if (className === 'RNN' && isPart(cell)) return namesInside(cell.className, cell.config);
  if (className === 'StackedRNNCells' && Array.isArray(cells))
    return cells.flatMap((one: unknown, i) =>
      isPart(one) ? (namesInside(one.className, one.config) ?? []).map((name) => `RNNCell_${i}/${name}`) : [],
    );
  if (className === 'TimeDistributed' && isPart(layer)) return namesInside(layer.className, layer.config);
  return undefined;
}

/** From the path of a variable (`bidirectional/kernel_1`) to the name that tf.js gives it (`bidirectional/backward_lstm/kernel`). */
export function stockWeightNames(plan: PlannedModel): (path: string) => string {
  const names = new Map<string, string>();
  for (const layer of plan.layers) for (const [path, name] of namesOf(layer)) names.set(path, name);
  return (path) => names.get(path) ?? path;
}

function namesOf({ name, className, config }: PlannedLayer): [path: string, name: string][] {
  const taken = new Map<string, number>();
  return (namesInside(className, config) ?? []).map((inner) => {
    const last = inner.slice(inner.lastIndexOf('/') + 1);
    const count = taken.get(last) ?? 0;
    taken.set(last, count + 1);
    return [`${name}/${last}${count === 0 ? '' : `_${count}`}`, `${name}/${inner}`];
  });
}
