/** Fits the layers of a freshly built model to the engine: streams for randomness, fused kernels. Instances only, no prototypes. */
import type * as tfl from '@tensorflow/tfjs-layers';
import type { Randomness } from '../randomness.js';
import { drawFromStreams } from './random-layers.js';

interface Wrapper {
  readonly layer?: tfl.layers.Layer;
  readonly forwardLayer?: tfl.layers.Layer;
  readonly backwardLayer?: tfl.layers.Layer;
}

/** @param fuse what the engine does with a layer that it has kernels for */
export function prepareLayers(model: tfl.LayersModel, fuse: (layer: tfl.layers.Layer) => void, randomness: Randomness): void {
  for (const layer of model.layers) {
    randomness.scopeLayer(layer);
    for (const part of withInner(layer)) {
      drawFromStreams(part, randomness);
      fuse(part);
    }
  }
}

/** A layer and the layers that it wraps, outermost first. */
function withInner(layer: tfl.layers.Layer): tfl.layers.Layer[] {
  const { layer: inner, forwardLayer, backwardLayer } = layer as unknown as Wrapper;
  return [layer, ...[inner, forwardLayer, backwardLayer].filter((part) => part !== undefined).flatMap(withInner)];
}
