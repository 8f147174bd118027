/**
 * From a validated but untrusted topology (libs/spec checks names, counts and depth) to layer configs that tf.js
 * constructors take. Three dialects come in: tf.js `toJSON`, Keras 2 (`batch_input_shape`) and Keras 3 (objects wrapped
 * with module and registered_name, `batch_shape`, dtype policies, `__keras_tensor__` histories). One goes out:
 * camelCase, every layer with a unique name, edges as [layer, node, tensor] triples.
 *
 * Names are filled in here because tf.js would count them per process: the second `dense` of a process must not be
 * called differently from the first, names are part of the layout. Models among the layers become layers of the one
 * model (`nested-models.ts`).
 */
import { fieldsOf, isModelClass, layersOf, type LayerTopology, type ModelTopology } from '@paceline/spec';
import { isAttentionArgument, namedTensors, settingsOfCalls } from './attention-calls.js';
import { takeTrainable } from './frozen-layers.js';
import { ModelError } from '../errors/model-error.js';
import { isOperation, TopologyMasks } from './masks.js';
import { flattened } from './nested-models.js';
import type { Edge, ModelPlan, NestedPlan, PlannedLayer, PlannedModel } from './planned-model.js';
import { checkSettings } from './settings/check-settings.js';
import { configOf, dialectOf, type Dialect } from './settings/dialect.js';

const LAYER_NAME = /^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$/;
const isObject = (value: unknown): value is Record<string, unknown> => value !== null && typeof value === 'object' && !Array.isArray(value);

export const snakeCase = (className: string): string =>
  className
    .replace(/(\d)D/g, '$1d')
    .replace(/([a-z0-9])([A-Z])/g, '$1_$2')
    .replace(/([A-Z])([A-Z][a-z])/g, '$1_$2')
    .toLowerCase();

/** Plans every layer of a topology. Throws {@link ModelError} with the field's path. `root` is the path of the topology. */
export function planTopology(topology: ModelTopology, root: string): PlannedModel {
  refuseInherited(topology, root);
  const dialect = dialectOf(topology);
  const plan = planOf(topology, root, dialect);
  checkSettings(topology, root, dialect);
  return flattened(plan, root);
}

function planOf(topology: ModelTopology, root: string, dialect: Dialect): ModelPlan {
  const listed = topology.config['layers'] as readonly LayerTopology[];
  const sequential = topology.class_name === 'Sequential';
  const names = new Set<string>();
  const masks = new TopologyMasks(listed);
  // The mask of a tensor that a model gives is known when it is called, and not written.
  const saysMasks = !listed.some((layer) => isModelClass(layer.class_name));
  const layers = listed.flatMap((layer, index): (PlannedLayer | NestedPlan)[] => {
    const path = `${root}.config.layers.${index}`;
    const name = nameOf(layer, index, path, names);
    if (masks.isOperation(name)) return [];
    masks.refuseWhereMet(layer.class_name, path);
    const calls = sequential ? [] : callsOf(layer, `${path}.inbound_nodes`, dialect, masks);
    if (isModelClass(layer.class_name))
      return [{ model: planOf(layer, path, dialect), name, calls, path, isFrozen: layer.config['trainable'] === false }];
    const config = Object.assign(configOf(layer.class_name, layer.config, dialect), settingsOfCalls(layer, path));
    moveBatchShape(config);
    if (layer.class_name === 'InputLayer') delete config['dtype']; // class indices and token ids are float32 too, and cast by the layers that take them
    const isFrozen = takeTrainable(config, `${path}.config`);
    const planned = { className: layer.class_name, name, config: Object.assign(config, { name }), calls, path };
    return [
      Object.assign(
        planned,
        isFrozen && { isFrozen },
        isCalledWith(layer, isObject) && { isMasked: true },
        saysMasks && isCalledWith(layer, (mask) => mask === null) && { isUnmasked: true },
        isOperation(layer) && { isOperation: true },
      ),
    ];
  });
  if (sequential) return { sequential, layers, inputs: [], outputs: [] };
  const outputs = endsOf(topology.config['output_layers'], `${root}.config.output_layers`);
  return {
    sequential,
    layers,
    inputs: endsOf(topology.config['input_layers'], `${root}.config.input_layers`),
    outputs: dialect === 'keras3' ? countedAsInside(layers, outputs) : outputs,
  };
}

/**
 * The outputs of a model of Keras 3 with the numbers that its layers have for the calls of the models among them. Keras counts the making of a functional model as its call 0
 * where outputs are named, and not where layers are called on it (keras/src/models/functional.py, `get_config` and `serialize_node`).
 */
function countedAsInside(layers: ModelPlan['layers'], outputs: readonly Edge[]): Edge[] {
  const isCounted = ([name]: Edge): boolean => {
    const layer = layers.find((each) => each.name === name);
    if (!layer || !('model' in layer) || layer.model.sequential) return false;
    const ends = outputs.filter((output) => output[0] === name);
    return ends.every(([, node]) => node > 0);
  };
  return outputs.map((output) => (isCounted(output) ? [output[0], output[1] - 1, output[2]] : output));
}

function nameOf(layer: LayerTopology, index: number, path: string, taken: Set<string>): string {
  const given = layer.config['name'] ?? layer.name;
  const name = given ?? `${snakeCase(layer.class_name)}_${index}`;
  // Names become keys of tf.js's own objects and parts of variable paths.
  if (typeof name !== 'string' || !LAYER_NAME.test(name) || name in Object.prototype) {
    throw new ModelError(`${path}.config.name`, 'a layer name is 1 to 100 letters, digits, dots, dashes and underscores');
  }
  if (taken.has(name)) throw new ModelError(`${path}.config.name`, `two layers are called ${JSON.stringify(name)}; names must be unique`);
  taken.add(name);
  return name;
}

/** tf.js looks activations, initializers and regularizers up in plain objects, where the names of Object.prototype would be found. */
function refuseInherited(topology: ModelTopology, root: string): void {
  for (const { layer, path } of layersOf(topology)) {
    for (const [name, { key, value }] of fieldsOf(layer.config)) {
      const named = isObject(value) ? (value['class_name'] ?? value['className']) : value;
      if (name !== 'name' && typeof named === 'string' && named in Object.prototype)
        throw new ModelError(`${root}.${path.map(String).join('.')}.config.${key}`, `there is no ${JSON.stringify(named)}`);
    }
  }
}

/** Keras 3 says `batch_shape` where Keras 2 and tf.js say `batch_input_shape`. */
function moveBatchShape(config: Record<string, unknown>): void {
  if (config['batchInputShape'] === undefined && config['batchShape'] !== undefined) config['batchInputShape'] = config['batchShape'];
  delete config['batchShape'];
}

function isEdge(value: unknown): value is [string, number, number] {
  return (
    Array.isArray(value) && value.length >= 3 && typeof value[0] === 'string' && Number.isInteger(value[1]) && Number.isInteger(value[2])
  );
}
const edge = (value: [string, number, number]): Edge => [value[0], value[1], value[2]];

/** `input_layers` / `output_layers`: a list of triples, or in Keras 3 one bare triple, or triples by their names. */
function endsOf(value: unknown, path: string): Edge[] {
  if (isEdge(value)) return [edge(value)];
  if (isObject(value)) return endsOf(Object.values(value), path);
  if (Array.isArray(value) && value.length > 0 && value.every(isEdge)) return value.map(edge);
  throw new ModelError(path, 'must be a list of [layer name, node index, tensor index]');
}

function callsOf(
  { class_name: className, inbound_nodes: nodes }: LayerTopology,
  path: string,
  dialect: Dialect,
  masks: TopologyMasks,
): Edge[][] {
  if (nodes === undefined || nodes === null) return [];
  if (!Array.isArray(nodes)) throw new ModelError(path, 'must be a list of the calls of the layer');
  return nodes.map((node: unknown, index) => {
    const edges = isObject(node)
      ? historiesIn([node['args'], ...namedTensors(className, node['kwargs'])])
      : Array.isArray(node)
        ? node
        : [];
    if (isObject(node) && edges.includes(null))
      throw new ModelError(
        `${path}.${index}`,
        'the layer is called on something that is no tensor of the model: make it a layer, such as Rescaling',
      );
    if (edges.length === 0 || !edges.every(isEdge)) {
      throw new ModelError(`${path}.${index}`, 'must be a list of [layer name, node index, tensor index, {}]');
    }
    masks.refuseAsInput(edges, `${path}.${index}`);
    const given = isObject(node) ? [node['kwargs']] : edges.map((tensor) => (tensor as readonly unknown[])[3]);
    for (const [name, value] of given.flatMap(argumentsIn)) {
      // Keras 3 writes a value there that fit() overrides.
      if (name === 'training' && dialect === 'keras3') continue;
      if (isAttentionArgument(className, name, value) || (!isModelClass(className) && masks.isMade(name, value))) continue;
      throw new ModelError(
        `${path}.${index}`,
        `the layer is called with ${JSON.stringify(name.slice(0, 60))}, which is not supported: leave it out`,
      );
    }
    return edges.map(edge);
  });
}

/** Whether Keras 3 writes such a mask at a call of a layer. */
const isCalledWith = ({ inbound_nodes: nodes }: LayerTopology, is: (mask: unknown) => boolean): boolean =>
  (nodes ?? []).some((node) => isObject(node) && isObject(node['kwargs']) && is(node['kwargs']['mask']));

/** The arguments of a call beside its tensors. Null is the same as none. */
const argumentsIn = (given: unknown): [name: string, value: unknown][] =>
  isObject(given) ? Object.entries(given).filter(([, value]) => value !== null) : [];

/** Keras 3 hides the edges in `{class_name: '__keras_tensor__', config: {keras_history}}`, in nested argument lists. */
function historiesIn(args: unknown): unknown[] {
  if (Array.isArray(args)) return args.flatMap(historiesIn);
  if (!isObject(args) || args['class_name'] !== '__keras_tensor__' || !isObject(args['config'])) return [null];
  return [args['config']['keras_history']];
}
