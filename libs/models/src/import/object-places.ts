/** Where Keras 3 keeps the weights of a layer: it counts the objects of a class in each model. */
import type { Edge } from '@paceline/engine';
import { fieldsOf, isMaskOperation, isModelClass, type LayerTopology, type ModelTopology } from '@paceline/spec';
import { kerasOrder } from '../formats/keras-graph.js';
import type { GraphLayer } from '../formats/keras-masks.js';
import { kerasName } from '../formats/keras-topology.js';
import type { FoundTensor } from './imported-model.js';

/**
 * By the names of layers, with the models around them: `layers/dense_1`, `layers/functional/layers/dense`.
 * @param isOfFile the topology lies beside the weights, and lists its layers as they were counted; another one may list them in any order
 */
export function objectPlaces(topology: ModelTopology, tensors: readonly FoundTensor[], isOfFile: boolean): ReadonlyMap<string, string> {
  const list = tensors.some(({ name }) => name.startsWith('_layer_checkpoint_dependencies/')) ? '_layer_checkpoint_dependencies' : 'layers';
  const places = new Map<string, string>();
  const visit = (model: Pick<ModelTopology, 'class_name' | 'config'>, prefix: string, place: string): void => {
    const taken = new Map<string, number>();
    for (const layer of isOfFile ? listed(model) : counted(model)) {
      // The input is no layer of a sequential model of Keras.
      if (model.class_name === 'Sequential' && layer.class_name === 'InputLayer') continue;
      const word = kerasName(layer.class_name === 'Model' ? 'Functional' : layer.class_name);
      const count = taken.get(word) ?? 0;
      taken.set(word, count + 1);
      const own = `${place}${list}/${word}${count === 0 ? '' : `_${count}`}`;
      const name = `${prefix}${nameOf(layer)}`;
      if (isModelClass(layer.class_name)) visit(layer, `${name}/`, `${own}/`);
      else places.set(name, own);
    }
  };
  visit(topology, '', '');
  return places;
}

type Model = Pick<ModelTopology, 'class_name' | 'config'>;
const listed = (model: Model): readonly LayerTopology[] => model.config['layers'] as readonly LayerTopology[];
const nameOf = (layer: LayerTopology): string => String(layer.config['name'] ?? layer.name);

/** The layers of a model in the order in which Keras counts them. */
function counted(model: Model): readonly LayerTopology[] {
  const layers = listed(model);
  if (model.class_name === 'Sequential') return layers;
  const calls = layers.map(({ inbound_nodes: nodes }) => (nodes ?? []).map(edgesIn));
  const outputs = edgesIn(model.config['output_layers']);
  const first = firstCalls(layers, [...calls.flat(2), ...outputs]);
  const recounted = (edges: readonly Edge[]): Edge[] => edges.map(([name, node, tensor]) => [name, node - (first.get(name) ?? 0), tensor]);
  const graph = layers.map((layer, i): GraphLayer => {
    const fields = [...fieldsOf(layer.config)].map(([key, { value }]) => [key, value] as const);
    return { className: layer.class_name, name: nameOf(layer), config: Object.fromEntries(fields), calls: calls[i]!.map(recounted) };
  });
  const byName = new Map(layers.map((layer) => [nameOf(layer), layer]));
  return kerasOrder(graph, recounted(outputs), layers.some(isMaskOperation)).flatMap((name) => byName.get(name) ?? []);
}

/** Models among the layers may count their making as call 0. All calls are named somewhere, so the smallest number is that of the first. */
function firstCalls(layers: readonly LayerTopology[], edges: readonly Edge[]): ReadonlyMap<string, number> {
  const models = new Set(layers.filter(({ class_name: name }) => isModelClass(name)).map(nameOf));
  const first = new Map<string, number>();
  for (const [name, node] of edges) if (models.has(name)) first.set(name, Math.min(first.get(name) ?? node, node));
  return first;
}

/** The tensors in an argument, in the order in which Keras finds them: dictionaries by their keys. */
function edgesIn(value: unknown): Edge[] {
  if (value === null || typeof value !== 'object') return [];
  if (Array.isArray(value)) {
    const [name, node, tensor] = value as unknown[];
    if (typeof name === 'string' && typeof node === 'number' && typeof tensor === 'number') return [[name, node, tensor]];
    return value.flatMap(edgesIn);
  }
  const { class_name: className, config, args, kwargs } = value as Record<string, unknown>;
  if (className === '__keras_tensor__') return edgesIn((config as { readonly keras_history?: unknown } | null)?.keras_history);
  if (args !== undefined) return [...edgesIn(args), ...edgesIn(kwargs)];
  return Object.keys(value)
    .sort()
    .flatMap((key) => edgesIn((value as Record<string, unknown>)[key]));
}
