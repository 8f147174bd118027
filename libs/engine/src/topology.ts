/**
 * From a validated but untrusted topology (libs/spec checks names, counts and depth) to layer configs that tf.js
 * constructors take. Three dialects come in: tf.js `toJSON`, Keras 2 (`batch_input_shape`) and Keras 3 (objects wrapped
 * with module and registered_name, `batch_shape`, dtype policies, `__keras_tensor__` histories). One goes out:
 * camelCase, every layer with a unique name, edges as [layer, node, tensor] triples.
 *
 * Names are filled in here because tf.js would count them per process: the second `dense` of a process must not be
 * called differently from the first, names are part of the layout.
 */
import { fieldsOf, layersOf, type LayerTopology, type ModelTopology } from '@paceline/spec';
import { ModelError } from './model-error.js';
import { checkSettings } from './settings/check-settings.js';
import { configOf, dialectOf, type Dialect } from './settings/dialect.js';

export type Edge = readonly [layer: string, node: number, tensor: number];

export interface PlannedLayer {
  readonly className: string;
  readonly name: string;
  /** camelCase config for the tf.js constructor, with the name in it. */
  readonly config: Record<string, unknown>;
  /** One entry per call of the layer, each with the tensors it is called on. Empty for Sequential and for inputs. */
  readonly calls: readonly (readonly Edge[])[];
  /** The field of the run spec. */
  readonly path: string;
}

export interface PlannedModel {
  readonly sequential: boolean;
  readonly layers: readonly PlannedLayer[];
  readonly inputs: readonly Edge[];
  readonly outputs: readonly Edge[];
}

const LAYER_NAME = /^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$/;
const isObject = (value: unknown): value is Record<string, unknown> => value !== null && typeof value === 'object' && !Array.isArray(value);

const snakeCase = (className: string): string =>
  className
    .replace(/(\d)D/g, '$1d')
    .replace(/([a-z0-9])([A-Z])/g, '$1_$2')
    .replace(/([A-Z])([A-Z][a-z])/g, '$1_$2')
    .toLowerCase();

/** Plans every layer of a topology. Throws {@link ModelError} with the field's path. `root` is the path of the topology. */
export function planTopology(topology: ModelTopology, root: string): PlannedModel {
  refuseInherited(topology, root);
  const listed = topology.config['layers'] as readonly LayerTopology[];
  const sequential = topology.class_name === 'Sequential';
  const dialect = dialectOf(topology);
  const names = new Set<string>();
  const layers = listed.map((layer, index) => {
    const path = `${root}.config.layers.${index}`;
    const name = nameOf(layer, index, path, names);
    const config = configOf(layer.class_name, layer.config, dialect);
    moveBatchShape(config);
    return {
      className: layer.class_name,
      name,
      config: { ...config, name },
      calls: sequential ? [] : callsOf(layer.inbound_nodes, `${path}.inbound_nodes`, dialect),
      path,
    };
  });
  checkSettings(topology, root, dialect);
  if (sequential) return { sequential, layers, inputs: [], outputs: [] };
  return {
    sequential,
    layers,
    inputs: endsOf(topology.config['input_layers'], `${root}.config.input_layers`),
    outputs: endsOf(topology.config['output_layers'], `${root}.config.output_layers`),
  };
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

/** `input_layers` / `output_layers`: a list of triples, or in Keras 3 one bare triple. */
function endsOf(value: unknown, path: string): Edge[] {
  if (isEdge(value)) return [edge(value)];
  if (Array.isArray(value) && value.length > 0 && value.every(isEdge)) return value.map(edge);
  throw new ModelError(path, 'must be a list of [layer name, node index, tensor index]');
}

function callsOf(nodes: unknown, path: string, dialect: Dialect): Edge[][] {
  if (nodes === undefined || nodes === null) return [];
  if (!Array.isArray(nodes)) throw new ModelError(path, 'must be a list of the calls of the layer');
  return nodes.map((node: unknown, index) => {
    const edges = isObject(node) ? historiesIn(node['args']) : Array.isArray(node) ? node : [];
    if (edges.length === 0 || !edges.every(isEdge)) {
      throw new ModelError(`${path}.${index}`, 'must be a list of [layer name, node index, tensor index, {}]');
    }
    const given = isObject(node) ? [node['kwargs']] : edges.map((tensor) => (tensor as readonly unknown[])[3]);
    for (const name of given.flatMap(argumentsIn)) {
      // What Keras 3 writes there gives way to what fit says.
      if (name === 'training' && dialect === 'keras3') continue;
      throw new ModelError(
        `${path}.${index}`,
        `the layer is called with ${JSON.stringify(name.slice(0, 60))}, which is not supported: leave it out`,
      );
    }
    return edges.map(edge);
  });
}

/** Names of the arguments of a call beside its tensors. Null is the same as none. */
const argumentsIn = (given: unknown): string[] =>
  isObject(given) ? Object.entries(given).flatMap(([name, value]) => (value === null ? [] : [name])) : [];

/** Keras 3 hides the edges in `{class_name: '__keras_tensor__', config: {keras_history}}`, in nested argument lists. */
function historiesIn(args: unknown): unknown[] {
  if (Array.isArray(args)) return args.flatMap(historiesIn);
  if (!isObject(args) || args['class_name'] !== '__keras_tensor__' || !isObject(args['config'])) return [null];
  return [args['config']['keras_history']];
}
