/**
 * Masks stay with the tensors that they are of. The executor of tf.js 4.22 hands all layers of a model one object of arguments: a mask that one layer was given stays in it, and
 * every later layer whose inputs have none gets it (tfjs-layers/src/engine/executor.ts), such as a recurrent layer of another branch, or behind a convolution.
 */
import type * as tfl from '@tensorflow/tfjs-layers';

type Layer = tfl.layers.Layer;
type Apply = tfl.layers.Layer['apply'];

/** Instances of layers only; no prototypes. */
export function keepMasksApart(layers: readonly Layer[]): void {
  for (const layer of layers) {
    const apply: Apply = layer.apply.bind(layer);
    layer.apply = (inputs, kwargs) => {
      if (kwargs?.['mask'] === undefined) return apply(inputs, kwargs);
      const own = Object.assign({}, kwargs);
      delete kwargs['mask'];
      return apply(inputs, own);
    };
  }
}

/** Layers in the place of operations, which know nothing of masks. */
export function endMasks(layers: readonly Layer[]): void {
  for (const layer of layers) Object.assign(layer, { supportsMasking: false, computeMask: () => null });
}
