/** Fits the layers of a freshly built model to the engine: streams for randomness, fused kernels. Instances only, no prototypes. */
import type * as tfl from '@tensorflow/tfjs-layers';
import type { Randomness } from '../training/randomness.js';
import { withInner } from './inner-layers.js';
import { drawFromStreams } from './random-layers.js';

/** What the engine does with layers that it has kernels for. */
export interface Fusing {
  fuse(layer: tfl.layers.Layer): void;
  /** The second takes all that the first gives, and nothing else does. */
  fusePair(first: tfl.layers.Layer, second: tfl.layers.Layer): void;
}

export function prepareLayers(model: tfl.LayersModel, engine: Fusing, randomness: Randomness): void {
  for (const layer of model.layers) {
    randomness.scopeLayer(layer);
    for (const part of withInner(layer)) {
      drawFromStreams(part, randomness);
      engine.fuse(part);
    }
  }
  // In other models a layer's output may go to several layers, or be the model's.
  if (model.getClassName() === 'Sequential') model.layers.slice(1).forEach((layer, i) => engine.fusePair(model.layers[i]!, layer));
}
