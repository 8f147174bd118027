/**
 * What a Normalization layer of Keras has learned of its data: `adapt` keeps it among the weights, and the layer of the engine has it in its config.
 */
import { isModelClass, type LayerTopology, type ModelTopology } from '@paceline/spec';
import type { FoundModel, FoundTensor } from './imported-model.js';
import { objectPlaces } from './object-places.js';

/** The topology, which must be a valid one, with the statistics of the file in the configs that have none. */
export function withStatistics(topology: ModelTopology, { naming, tensors }: FoundModel): ModelTopology {
  if (naming === 'variables') return topology;
  const made = structuredClone(topology);
  const waiting: { readonly full: string; readonly config: Record<string, unknown> }[] = [];
  const visit = (model: Pick<ModelTopology, 'config'>, prefix: string): void => {
    for (const layer of model.config['layers'] as readonly LayerTopology[]) {
      const config = layer.config as Record<string, unknown>;
      const full = `${prefix}${String(config['name'] ?? layer.name)}`;
      if (isModelClass(layer.class_name)) visit(layer, `${full}/`);
      else if (layer.class_name === 'Normalization' && config['mean'] == null) waiting.push({ full, config });
    }
  };
  visit(made, '');
  const at = new Map(tensors.map((tensor) => [tensor.name, tensor]));
  const places = naming === 'keras3' ? objectPlaces(made, tensors, true) : undefined;
  const tensorOf = (full: string, word: string, index: number): FoundTensor | undefined => {
    if (places) return at.get(`${places.get(full)}/vars/${index}`);
    const outer = outerOf(full);
    const found = tensors.find(({ name }) => name.startsWith(`${outer}//`) && `/${name}`.endsWith(`/${full}/${word}`));
    // Keras 2 does not name the layer, which is known if no other one of the model around it learns.
    const isAlone = waiting.filter((other) => outerOf(other.full) === outer).length === 1;
    return found ?? (isAlone ? at.get(`${outer}//${word}`) : undefined);
  };
  for (const { full, config } of waiting) {
    const [mean, variance] = ['mean', 'variance'].map((word, i) => tensorOf(full, word, i));
    if (mean && variance) Object.assign(config, { mean: nested(mean), variance: nested(variance) });
  }
  return made;
}

const outerOf = (full: string): string => full.split('/')[0]!;

type Nested = number | Nested[];

/** Lists in lists, as the shape says. */
function nested(tensor: FoundTensor): Nested {
  const values = tensor.read();
  const part = (from: number, [size, ...rest]: readonly number[]): Nested => {
    if (size === undefined) return values[from]!;
    const length = rest.reduce((a, b) => a * b, 1);
    return Array.from({ length: size }, (_, i) => part(from + i * length, rest));
  };
  return part(0, tensor.shape);
}
