/** Where Keras 3 keeps the weights of a layer: it counts the objects of a class in each model. */
import { isModelClass, type LayerTopology, type ModelTopology } from '@paceline/spec';
import { kerasName } from '../formats/keras-topology.js';
import type { FoundTensor } from './imported-model.js';

/** By the names of layers, with the models around them: `layers/dense_1`, `layers/functional/layers/dense`. */
export function objectPlaces(topology: unknown, tensors: readonly FoundTensor[]): ReadonlyMap<string, string> {
  const list = tensors.some(({ name }) => name.startsWith('_layer_checkpoint_dependencies/')) ? '_layer_checkpoint_dependencies' : 'layers';
  const places = new Map<string, string>();
  const visit = (model: Pick<ModelTopology, 'class_name' | 'config'>, prefix: string, place: string): void => {
    const taken = new Map<string, number>();
    for (const layer of model.config['layers'] as readonly LayerTopology[]) {
      // The input is no layer of a sequential model of Keras.
      if (model.class_name === 'Sequential' && layer.class_name === 'InputLayer') continue;
      const word = kerasName(layer.class_name === 'Model' ? 'Functional' : layer.class_name);
      const count = taken.get(word) ?? 0;
      taken.set(word, count + 1);
      const own = `${place}${list}/${word}${count === 0 ? '' : `_${count}`}`;
      const name = `${prefix}${String(layer.config['name'] ?? layer.name)}`;
      if (isModelClass(layer.class_name)) visit(layer, `${name}/`, `${own}/`);
      else places.set(name, own);
    }
  };
  visit(topology as ModelTopology, '', '');
  return places;
}
