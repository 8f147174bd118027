/**
 * Masks as Keras 3 writes them into a functional model. It computes them by operations of their own, NotEqual and Any, and names their result where
 * a layer is called: `mask`. Here Embedding and Masking make the same masks and tf.js passes them on, so the operations are taken out; what they say
 * has to be what those layers do (`check-layer-positions.ts` looks whether the mask arrives).
 */
import { fieldsOf, isMaskOperation, type LayerTopology } from '@paceline/spec';
import { ModelError } from '../errors/model-error.js';
import type { Edge, PlannedLayer, PlannedModel } from './planned-model.js';

type Fields = Readonly<Record<string, unknown>>;
const isObject = (value: unknown): value is Fields => value !== null && typeof value === 'object' && !Array.isArray(value);

/** `layer/node/tensor` of a tensor in the words of Keras 3; undefined for anything else. */
function sourceOf(value: unknown): string | undefined {
  if (!isObject(value) || value['class_name'] !== '__keras_tensor__' || !isObject(value['config'])) return undefined;
  const { keras_history: history } = value['config'];
  return Array.isArray(history) ? history.join('/') : undefined;
}

function argumentsOf(layer: LayerTopology): readonly unknown[] {
  const [node] = layer.inbound_nodes ?? [];
  return isObject(node) && Array.isArray(node['args']) ? (node['args'] as unknown[]) : [];
}

/** They take a masked step for the value that changes nothing, such as 1 (keras/src/layers/merging). */
const MASKED_OTHERWISE: ReadonlySet<string> = new Set(['Multiply', 'Maximum', 'Minimum']);

/** Operations that bear the names of layers. */
const OPERATIONS: ReadonlySet<string> = new Set(['Add', 'Maximum', 'Minimum', 'Multiply', 'Subtract']);

/** Whether it is no layer, but an operation of keras.ops, such as a sum by `+`. In an .h5 file, which says no module, its call has the tensors one by one. */
export function isOperation(layer: LayerTopology): boolean {
  const { module } = layer as { readonly module?: unknown };
  if (typeof module === 'string') return module.startsWith('keras.src.ops.');
  return OPERATIONS.has(layer.class_name) && argumentsOf(layer).filter((one) => sourceOf(one) !== undefined).length > 1;
}

/** The masks of one model of a topology, without those of the models among its layers. */
export class TopologyMasks {
  /** The tensors in the topology that stand for masks which layers of the model make. */
  private readonly made = new Set<string>();
  private readonly operations: ReadonlySet<string>;

  constructor(layers: readonly LayerTopology[]) {
    this.operations = new Set(layers.filter(isMaskOperation).map(({ name, config }) => String(config['name'] ?? name)));
    if (this.operations.size === 0) return;
    const makers = new Set(layers.flatMap(masksMadeBy));
    /** NotEqual by its tensor: whose values are compared with what. */
    const compared = new Map<string, string>();
    for (const layer of layers.filter(isMaskOperation)) {
      const [tensor, value] = argumentsOf(layer);
      const own = `${String(layer.config['name'] ?? layer.name)}/0/0`;
      const source = sourceOf(tensor);
      if (source === undefined) continue;
      if (layer.class_name === 'NotEqual' && typeof value === 'number') {
        compared.set(own, `${source} ${value}`);
        if (makers.has(`Embedding ${source} ${value}`)) this.made.add(own);
      } else if (layer.class_name === 'Any' && layer.config['axis'] === -1 && layer.config['keepdims'] !== true) {
        if (makers.has(`Masking ${compared.get(source)}`)) this.made.add(own);
      }
    }
    this.meet(layers.filter(({ class_name: name }) => name === 'LogicalOr'));
  }

  /** Masks meet that are not the same. */
  private unitesOthers = false;

  /** @throws ModelError for a layer that Keras 3 computes otherwise there */
  refuseWhereMet(className: string, path: string): void {
    if (this.unitesOthers && MASKED_OTHERWISE.has(className))
      throw new ModelError(
        path,
        `where different masks meet, ${className} of Keras 3 leaves the masked steps of each input out of account, and here it does not: use Add or Average, or mask_zero: false`,
      );
  }

  /** Where masks of layers meet, and those that come of it. */
  private meet(unions: readonly LayerTopology[]): void {
    for (let found = true; found;) {
      found = false;
      for (const layer of unions) {
        const own = `${String(layer.config['name'] ?? layer.name)}/0/0`;
        const isKnown = argumentsOf(layer).every((tensor) => this.made.has(sourceOf(tensor) ?? ''));
        if (this.made.has(own) || argumentsOf(layer).length !== 2 || !isKnown) continue;
        this.made.add(own);
        this.unitesOthers ||= new Set(argumentsOf(layer).map(sourceOf)).size > 1;
        found = true;
      }
    }
  }

  isOperation(name: unknown): boolean {
    return typeof name === 'string' && this.operations.has(name);
  }

  /** Whether an argument of a call is a mask that a layer of the model makes. */
  isMade(name: string, value: unknown): boolean {
    return name === 'mask' && this.made.has(sourceOf(value) ?? '');
  }

  /** @throws ModelError for a tensor that is an operation's */
  refuseAsInput(edges: readonly (readonly unknown[])[], path: string): void {
    const found = edges.find(([name]) => this.isOperation(name));
    if (found)
      throw new ModelError(
        path,
        `is called on ${JSON.stringify(found[0])}, a comparison: put a layer in its place, masks alone may be compared`,
      );
  }
}

/** What a layer compares to make its mask: class, tensor and value. */
function masksMadeBy(layer: LayerTopology): string[] {
  const fields = fieldsOf(layer.config);
  const isEmbedding = layer.class_name === 'Embedding' && fields.get('maskZero')?.value === true;
  if (!isEmbedding && layer.class_name !== 'Masking') return [];
  const value = isEmbedding ? 0 : (fields.get('maskValue')?.value ?? 0);
  return (layer.inbound_nodes ?? []).flatMap((node) => {
    const source = isObject(node) && Array.isArray(node['args']) ? sourceOf(node['args'][0]) : undefined;
    return source === undefined ? [] : [`${layer.class_name} ${source} ${String(value)}`];
  });
}

/** A mask goes through them where they give every step. */
const RECURRENT = ['Bidirectional', 'ConvLSTM2D', 'GRU', 'LSTM', 'RNN', 'SimpleRNN'];
/** What a mask goes through. */
const PASSING: ReadonlySet<string> = new Set([
  ...[
    'Activation',
    'BatchNormalization',
    'Dense',
    'ELU',
    'LayerNormalization',
    'LeakyReLU',
    'PReLU',
    'ReLU',
    'Rescaling',
    'TimeDistributed',
  ],
  ...['Add', 'Average', 'Concatenate', 'Dot', 'Maximum', 'Minimum', 'Multiply', 'Subtract'],
  ...['AlphaDropout', 'Dropout', 'GaussianDropout', 'GaussianNoise', 'SpatialDropout1D', 'SpatialDropout2D'],
  ...RECURRENT,
]);

/** The layers of a planned model that a mask comes to. */
export function layersUnderMasks({ sequential, layers }: PlannedModel): ReadonlySet<string> {
  const byName = new Map(layers.map((layer) => [layer.name, layer]));
  /** By the calls of a layer. */
  const sources = (layer: PlannedLayer): (PlannedLayer | undefined)[][] =>
    sequential ? [[layers[layers.indexOf(layer) - 1]]] : layer.calls.map((edges) => edges.map(([name]: Edge) => byName.get(name)));
  const known = new Map<PlannedLayer, boolean>();
  const gives = (layer: PlannedLayer | undefined): boolean => {
    if (!layer) return false;
    const found = known.get(layer);
    if (found !== undefined) return found;
    known.set(layer, false);
    const { className, config, isOperation: isOfOps } = layer;
    const inner = className === 'Bidirectional' ? (config['layer'] as { readonly config: Fields }).config : config;
    const ends = isOfOps || !PASSING.has(className) || (RECURRENT.includes(className) && inner['returnSequences'] !== true);
    const result =
      className === 'Masking' ||
      (className === 'Embedding' && config['maskZero'] === true) ||
      (!ends && sources(layer).some((call) => (config['unitesMasks'] === true ? call.every(gives) : call.some(gives))));
    known.set(layer, result);
    return result;
  };
  return new Set(layers.filter((layer) => sources(layer).flat().some(gives)).map(({ name }) => name));
}
