/** The layers of transformers in a `.keras` file: who calls them how, and where their weights lie. */
import type { Edge, PlannedLayer } from '@paceline/engine';
import { ExportError } from '../export-error.js';
import type { Config } from '../stock-layers.js';

type Json = Record<string, unknown>;

/** A layer of KerasHub, which must be imported before the file is loaded. */
export const HUB_LAYER = 'TokenAndPositionEmbedding';
const HUB = { module: 'keras_hub.src.layers.modeling.token_and_position_embedding', registered_name: `keras_hub>${HUB_LAYER}` };

export const hubLayer = (class_name: string, config: Json): Json => Object.assign({ class_name, config }, HUB);

/** How Keras calls attention: on a query and a value, with its mask as an argument. The causal mask is no setting of the layer there. */
export function callOfAttention(
  { className, config, calls, path }: PlannedLayer,
  isSequential: boolean,
  named: (layer: string) => string,
): Json[] | undefined {
  if (className !== 'MultiHeadAttention') return undefined;
  if (isSequential)
    throw new ExportError(
      'LAYER_NOT_EXPORTABLE',
      'a Sequential model of Keras calls MultiHeadAttention on one tensor, and it takes two: write the model as a graph; the formats safetensors and npz take every model.',
      path,
    );
  const tensor = ([from, node, index]: Edge): Json => ({
    class_name: '__keras_tensor__',
    config: { shape: [null, null, null], dtype: 'float32', keras_history: [named(from), node, index] },
  });
  return calls.map((edges) => {
    const [query, value = query, ...key] = edges;
    return { args: [query, value, ...key].map(tensor), kwargs: { use_causal_mask: config['useCausalMask'] === true } };
  });
}

interface Group {
  readonly path: string;
  readonly variables: number;
  readonly isSeed: boolean;
}

export function groupsOfTransformers(className: string, config: Config, path: string): Group[] | undefined {
  const group = (name: string, variables: number, isSeed = false): Group => ({ path: `${path}/${name}`, variables, isSeed });
  if (className === HUB_LAYER) return ['token_embedding', 'position_embedding'].map((name) => group(name, 1));
  if (className !== 'MultiHeadAttention') return undefined;
  const each = config['useBias'] === false ? 1 : 2;
  const dense = ['query_dense', 'key_dense', 'value_dense', 'output_dense'].map((name) => group(name, each));
  return Number(config['dropout'] ?? 0) > 0 ? [...dense, group('_dropout_layer/seed_generator', 1, true)] : dense;
}
