/**
 * From a validated but untrusted topology (libs/spec checks names, counts and depth) to layer configs that tf.js
 * constructors take. Three dialects come in: tf.js `toJSON`, Keras 2 (`batch_input_shape`) and Keras 3 (objects wrapped
 * with module and registered_name, `batch_shape`, dtype policies, `__keras_tensor__` histories). One goes out:
 * camelCase, every layer with a unique name, edges as [layer, node, tensor] triples.
 *
 * Names are filled in here because tf.js would count them per process: the second `dense` of a process must not be
 * called differently from the first, names are part of the layout.
 */
import { camelCase, fieldsOf, layersOf, type LayerTopology, type ModelTopology } from '@paceline/spec';
import { ModelError } from './model-error.js';

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
/** Keras 3 has these as classes of their own; tf.js has only L1L2. */
const REGULARIZER_CLASSES: Readonly<Record<string, true>> = { L1: true, L2: true };

/** Enumeration values that tf.js spells with an underscore, although its own loader takes it away. */
const KEPT_VALUES: ReadonlySet<string> = new Set(['gelu_new']);

const isObject = (value: unknown): value is Record<string, unknown> => value !== null && typeof value === 'object' && !Array.isArray(value);

const snakeCase = (className: string): string =>
  className
    .replace(/(\d)D/g, '$1d')
    .replace(/([a-z0-9])([A-Z])/g, '$1_$2')
    .replace(/([A-Z])([A-Z][a-z])/g, '$1_$2')
    .toLowerCase();

/** Plans every layer of a topology. Throws {@link ModelError} with the field's path. `root` is the path of the topology. */
export function planTopology(topology: ModelTopology, root: string): PlannedModel {
  const listed = topology.config['layers'] as readonly LayerTopology[];
  const sequential = topology.class_name === 'Sequential';
  const names = new Set<string>();
  const layers = listed.map((layer, index) => {
    const path = `${root}.config.layers.${index}`;
    const name = nameOf(layer, index, path, names);
    const config = tsConfig(layer.config) as Record<string, unknown>;
    moveBatchShape(config);
    return {
      className: layer.class_name,
      name,
      config: { ...config, name },
      calls: sequential ? [] : callsOf(layer.inbound_nodes, `${path}.inbound_nodes`),
      path,
    };
  });
  refuseUnsupported(topology, root);
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

/** What would make the replica step impure, or what the servers' update cannot honour, nested layers included. */
function refuseUnsupported(topology: ModelTopology, root: string): void {
  for (const { layer, path } of layersOf(topology)) {
    const at = `${root}.${path.map(String).join('.')}`;
    for (const [name, { key, value }] of fieldsOf(layer.config)) {
      const why = value === null || value === undefined ? undefined : unsupported(name, value);
      if (why !== undefined) throw new ModelError(`${at}.config.${key}`, why);
    }
  }
}

/** tf.js takes any value for a truth, or does not look at it: what is not plainly the one that trains is refused. `name` is in camel case. */
function unsupported(name: string, value: unknown): string | undefined {
  if (name === 'stateful' && value !== false)
    return 'stateful recurrent layers are refused: their state would depend on which worker saw which batch';
  if (name === 'trainable' && value !== true) return 'frozen layers are not supported: leave out trainable: false';
  if (name.endsWith('Constraint')) return 'constraints are not supported: the servers apply the update; remove it or use a regularizer';
  if (name === 'dropoutFunc') return 'is a function, which a run spec cannot hold: leave it out';
  if (name === 'activityRegularizer') return 'activity regularizers are not supported by tf.js; use a kernel or bias regularizer';
  if (name === 'groups' && value !== 1) return 'tf.js has no convolutions in groups: leave it out';
  if ((name === 'dropout' || name === 'recurrentDropout') && !(typeof value === 'number' && value >= 0 && value < 1))
    return 'must be a number from 0 to less than 1';
  return undefined;
}

/** Keras 3 says `batch_shape` where Keras 2 and tf.js say `batch_input_shape`. */
function moveBatchShape(config: Record<string, unknown>): void {
  if (config['batchInputShape'] === undefined && config['batchShape'] !== undefined) config['batchInputShape'] = config['batchShape'];
  delete config['batchShape'];
}

/** Snake case to camel case for keys and enumeration values, Keras 3 wrappers opened; the same rules as tf.js's own loader. */
export function tsConfig(value: unknown, key = ''): unknown {
  if (typeof value === 'string') return key === 'name' || key === 'className' || KEPT_VALUES.has(value) ? value : camelCase(value);
  if (Array.isArray(value)) return value.map((item) => tsConfig(item, key));
  if (!isObject(value)) return value;
  if (key === 'dtype') return isObject(value['config']) ? value['config']['name'] : undefined;
  if (typeof value['class_name'] === 'string') return serializedObject(value['class_name'], value['config']);
  return Object.fromEntries(Object.entries(value).map(([k, v]) => [camelCase(k), tsConfig(v, camelCase(k))]));
}

function serializedObject(className: string, config: unknown): unknown {
  const inner = isObject(config) ? (tsConfig(config) as Record<string, unknown>) : {};
  if (className in REGULARIZER_CLASSES && !('l1' in inner && 'l2' in inner)) {
    return { className: 'L1L2', config: { l1: inner['l1'] ?? 0, l2: inner['l2'] ?? 0 } };
  }
  return { className, config: inner };
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

function callsOf(nodes: readonly unknown[] | undefined, path: string): Edge[][] {
  return (nodes ?? []).map((node, index) => {
    const edges = isObject(node) ? historiesIn(node['args']) : Array.isArray(node) ? node : [];
    if (edges.length === 0 || !edges.every(isEdge)) {
      throw new ModelError(`${path}.${index}`, 'must be a list of [layer name, node index, tensor index, {}]');
    }
    return edges.map(edge);
  });
}

/** Keras 3 hides the edges in `{class_name: '__keras_tensor__', config: {keras_history}}`, in nested argument lists. */
function historiesIn(args: unknown): unknown[] {
  if (Array.isArray(args)) return args.flatMap(historiesIn);
  if (!isObject(args) || args['class_name'] !== '__keras_tensor__' || !isObject(args['config'])) return [null];
  return [args['config']['keras_history']];
}
