/**
 * A planned model in the words of Keras 3, and where its weights lie inside of a `.keras` file. Keras finds weights by the path of the object that
 * holds them, with class names in snake case that are counted (`layers/dense_1/vars/0`), not by the names of layers.
 */
import type { PlannedLayer, PlannedModel } from '@paceline/engine';
import { EVERY_LAYER, LAYER_SETTINGS, type Settings } from '@paceline/engine/planning';
import { ExportError } from '../export-error.js';
import { isPart, type Config } from '../stock-layers.js';
import { callOfAttention, groupsOfTransformers, HUB_LAYER, hubLayer } from './keras-attention.js';
import { kerasOrder } from './keras-graph.js';
import { refuseOtherMasks } from './keras-masks.js';

type Json = Record<string, unknown>;

/** Where the same words mean other functions, or Keras has no layer. */
const REFUSED_LAYERS: Readonly<Record<string, string>> = {
  ThresholdedReLU: 'Keras 3 has no ThresholdedReLU',
};
const RENAMED: Readonly<Record<string, string>> = { hardSigmoidOfKeras3: 'hard_sigmoid', swish: 'silu' };
/** As all releases of Keras 3 read them: the early ones know a class only by its whole name. */
const INITIALIZER_NAMES: Readonly<Record<string, string>> = {
  LeCunNormal: 'LecunNormal',
  LeCunUniform: 'LecunUniform',
  Orthogonal: 'OrthogonalInitializer',
};
/** Activations that Keras knows by no name. */
const REFUSED_VALUES: Readonly<Record<string, string>> = {
  hardSigmoid: 'it uses the hard sigmoid of tf.js, which Keras 3 has not',
  gelu_new: 'it uses gelu_new, which Keras 3 has not: its gelu is the exact one',
};
/** Settings that layers compute with here, and that the classes of Keras 3 do not take, or not as they are. */
const LEFT_OUT: ReadonlySet<string> = new Set(['backwardLayer', 'inputLength', 'useCausalMask']);
const GATED: ReadonlySet<string> = new Set(['LSTM', 'GRU', 'LSTMCell', 'GRUCell', 'ConvLSTM2D']);

export function kerasConfig(plan: PlannedModel, name: string): Json {
  refuseOtherMasks(plan);
  const layers = inKerasOrder(plan).map((layer) => {
    const entry = serialized(layer.className, layer.config, layer.path);
    // The form of Keras 2, which Keras 3 reads: its own one repeats the shapes of all tensors.
    const inbound =
      callOfAttention(layer, plan.sequential, named) ??
      layer.calls.map((edges) => edges.map(([from, node, tensor]) => [named(from), node, tensor, {}]));
    return plan.sequential ? entry : Object.assign(entry, { name: named(layer.name), inbound_nodes: inbound });
  });
  const shape = plan.layers[0]?.config['batchInputShape'];
  if (plan.sequential && plan.layers[0]?.className !== 'InputLayer' && shape !== undefined)
    layers.unshift(wrap('InputLayer', { name: 'input_of_model', batch_shape: shape, dtype: 'float32' }));
  const config: Json = { name, trainable: true, layers };
  if (!plan.sequential) Object.assign(config, { input_layers: endsOf(plan.inputs), output_layers: endsOf(plan.outputs) });
  return plan.sequential
    ? { module: 'keras', class_name: 'Sequential', config, registered_name: null }
    : { module: 'keras.src.models.functional', class_name: 'Functional', config, registered_name: 'Functional' };
}

/** As Keras counts them, without those from which nothing comes to an output. */
function inKerasOrder({ sequential, layers, outputs, inputs }: PlannedModel): readonly PlannedLayer[] {
  if (sequential) return layers;
  const byName = new Map(layers.map((layer) => [layer.name, layer]));
  const order = kerasOrder(layers, outputs);
  // An input that nothing is made of is one all the same.
  return [...new Set([...order, ...inputs.map(([name]) => name)])].map((name) => byName.get(name)!);
}

/** Keras takes no slash in a name, which is what stands between a nested model and its layer. */
const named = (name: string): string => name.replaceAll('/', '.');
const endsOf = (edges: PlannedModel['outputs']): unknown[] => edges.map(([name, node, tensor]) => [named(name), node, tensor]);

function serialized(className: string, config: Config, path: string): Json {
  const refuse = (why: string): never => {
    throw new ExportError('LAYER_NOT_EXPORTABLE', `${why}; the formats safetensors and npz take every model.`, path);
  };
  const reason = REFUSED_LAYERS[className];
  if (reason !== undefined) refuse(reason);
  if (className === 'CenterCrop' && config['isExact'] !== true)
    refuse('this CenterCrop resamples as tf.js does, and that of Keras cuts out');
  if (className === 'UpSampling2D' && config['interpolation'] === 'bilinear')
    refuse('Keras takes bilinear samples at other places than tf.js');
  const result: Json = {};
  for (const [key, value] of Object.entries(config)) {
    if (value === undefined || !isWritten(className, key)) continue;
    result[snake(key)] = valueOf(value, key, `${path}.config.${key}`, refuse);
  }
  if (GATED.has(className)) {
    result['recurrent_activation'] ??= refuse(
      'its gates use the hard sigmoid of tf.js, which Keras 3 has not: set recurrent_activation to "sigmoid"',
    );
    if (className.startsWith('GRU')) result['reset_after'] ??= false;
  }
  const { batch_input_shape: batched, input_shape: one, alpha, ...rest } = result;
  if (className === 'InputLayer') rest['batch_shape'] = batched ?? (Array.isArray(one) ? [null, ...(one as unknown[])] : undefined);
  if (className === 'LeakyReLU') rest['negative_slope'] ??= alpha ?? 0.3;
  else if (className === 'ELU') rest['alpha'] = alpha ?? 1;
  else if (alpha !== undefined) rest['alpha'] = alpha;
  return className === HUB_LAYER ? hubLayer(className, rest) : wrap(className, rest);
}

/** Settings that a layer computes with. The classes and releases of Keras differ in which of the others they take. */
function isWritten(className: string, key: string): boolean {
  if (LEFT_OUT.has(key) || (key === 'inputDim' && className === 'Dense')) return false;
  const own = (LAYER_SETTINGS as Readonly<Record<string, Settings>>)[className]?.[key] ?? EVERY_LAYER[key];
  return own !== undefined && ('use' in own || key === 'dtype' || key === 'dataFormat');
}

const wrap = (class_name: string, config: Json): Json => ({ module: 'keras.layers', class_name, config, registered_name: null });

function valueOf(value: unknown, key: string, path: string, refuse: (why: string) => never): unknown {
  if (typeof value === 'string') {
    if (key === 'name') return named(value);
    if (Object.hasOwn(REFUSED_VALUES, value)) return refuse(REFUSED_VALUES[value]!);
    return RENAMED[value] ?? snake(value);
  }
  if (Array.isArray(value))
    return value.map((item, i) =>
      isPart(item) ? serialized(item.className, item.config, `${path}.${i}`) : valueOf(item, '', path, refuse),
    );
  if (!isPart(value)) return value;
  if (key === 'layer' || key === 'cell') return serialized(value.className, value.config, path);
  const module = key.endsWith('Regularizer') ? 'keras.regularizers' : 'keras.initializers';
  const class_name = INITIALIZER_NAMES[value.className] ?? value.className;
  return {
    module,
    class_name,
    config: Object.fromEntries(Object.entries(value.config).map(([k, v]) => [snake(k), typeof v === 'string' ? snake(v) : v])),
    registered_name: null,
  };
}

const snake = (text: string): string =>
  /^[a-z]/.test(text) ? text.replace('leCun', 'lecun').replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`) : text;

/** As Keras makes it of a class (keras/src/utils/naming.py). */
export const kerasName = (className: string): string =>
  className
    .replaceAll(/\W+/g, '')
    .replaceAll(/(.)([A-Z][a-z]+)/g, '$1_$2')
    .replaceAll(/([a-z])([A-Z])/g, '$1_$2')
    .toLowerCase();

/** A place for weights: how many follow, or a stream of random numbers, which Keras stores as well. */
export interface KerasGroup {
  readonly path: string;
  readonly variables: number;
  readonly isSeed: boolean;
}

const DRAWING: Readonly<Record<string, string>> = {
  Dropout: 'rate',
  SpatialDropout1D: 'rate',
  SpatialDropout2D: 'rate',
  AlphaDropout: 'rate',
  GaussianDropout: 'rate',
  GaussianNoise: 'stddev',
};
const RECURRENT: ReadonlySet<string> = new Set(['SimpleRNN', 'LSTM', 'GRU', 'ConvLSTM2D']);

/**
 * Groups of the weights file, in the order of Keras and, in a layer, of its variables.
 * @param counts variables of each layer by its name
 */
export function kerasGroups(
  plan: PlannedModel,
  counts: ReadonlyMap<string, number>,
): { readonly layer: string; readonly groups: KerasGroup[] }[] {
  const taken = new Map<string, number>();
  return inKerasOrder(plan).flatMap((layer) => {
    // In Sequential models Keras does not count the input as a layer.
    if (plan.sequential && layer.className === 'InputLayer') return [];
    const name = kerasName(layer.className);
    const count = taken.get(name) ?? 0;
    taken.set(name, count + 1);
    const path = `layers/${name}${count === 0 ? '' : `_${count}`}`;
    return [{ layer: layer.name, groups: groupsOf(layer.className, layer.config, path, counts.get(layer.name) ?? 0) }];
  });
}

/** The groups of one layer that lies at `path`. */
export function groupsOf(className: string, config: Config, path: string, variables: number): KerasGroup[] {
  const { layer, cell, cells } = config;
  if (className === 'Bidirectional' && isPart(layer))
    return ['forward_layer', 'backward_layer'].flatMap((way) => groupsOf(layer.className, layer.config, `${path}/${way}`, variables / 2));
  if (className === 'TimeDistributed' && isPart(layer)) return groupsOf(layer.className, layer.config, `${path}/layer`, variables);
  if (className === 'RNN' && isPart(cell)) return groupsOf(cell.className, cell.config, `${path}/cell`, variables);
  if (className === 'StackedRNNCells' && Array.isArray(cells)) {
    const taken = new Map<string, number>();
    return (cells as unknown[]).filter(isPart).flatMap((one) => {
      const name = kerasName(one.className);
      const count = taken.get(name) ?? 0;
      taken.set(name, count + 1);
      return groupsOf(
        one.className,
        one.config,
        `${path}/cells/${name}${count === 0 ? '' : `_${count}`}`,
        one.config['useBias'] === false ? 2 : 3,
      );
    });
  }
  const ofTransformers = groupsOfTransformers(className, config, path);
  if (ofTransformers) return ofTransformers;
  if (RECURRENT.has(className)) return groupsOf(`${className}Cell`, config, `${path}/cell`, variables);
  const groups: KerasGroup[] = variables > 0 ? [{ path, variables, isSeed: false }] : [];
  const draws = DRAWING[className];
  if (className.endsWith('Cell') || (draws !== undefined && Number(config[draws] ?? 0) > 0))
    groups.push({ path: `${path}/seed_generator`, variables: 1, isSeed: true });
  return groups;
}
