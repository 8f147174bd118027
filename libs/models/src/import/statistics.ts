/**
 * What a Normalization layer of Keras has learned of its data: `adapt` keeps it among the weights, and the layer of the engine has it in its config.
 */
import { isModelClass, type LayerTopology, type ModelTopology } from '@paceline/spec';
import type { FoundModel, FoundTensor } from './imported-model.js';
import { objectPlaces } from './object-places.js';

/** The topology with the statistics of the file in the configs that have none. */
export function withStatistics(topology: unknown, { naming, tensors }: FoundModel): unknown {
  if (naming === 'variables' || topology === null || typeof topology !== 'object') return topology;
  const made = structuredClone(topology) as ModelTopology;
  const at = new Map(tensors.map((tensor) => [tensor.name, tensor]));
  const places = naming === 'keras3' ? objectPlaces(made, tensors, true) : undefined;
  const tensorOf = (full: string, word: string, index: number): FoundTensor | undefined => {
    if (places) return at.get(`${places.get(full)}/vars/${index}`);
    const [outer] = full.split('/');
    return tensors.find(({ name }) => name.startsWith(`${outer}//`) && `/${name}`.endsWith(`/${full}/${word}`)) ?? undefined;
  };
  const visit = (model: Pick<ModelTopology, 'config'>, prefix: string): void => {
    const { layers } = model.config;
    if (!Array.isArray(layers)) return;
    for (const layer of layers as LayerTopology[]) {
      const config = layer?.config as Record<string, unknown> | undefined;
      if (!config) continue;
      const full = `${prefix}${String(config['name'] ?? layer.name)}`;
      if (isModelClass(layer.class_name)) visit(layer, `${full}/`);
      else if (layer.class_name === 'Normalization' && config['mean'] == null) {
        const [mean, variance] = ['mean', 'variance'].map((word, i) => tensorOf(full, word, i));
        if (mean && variance) Object.assign(config, { mean: nested(mean), variance: nested(variance) });
      }
    }
  };
  visit(made, '');
  return made;
}

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
