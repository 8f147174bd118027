/** Fits the layers of a freshly built model to the engine: streams for randomness, fused kernels. Instances only, no prototypes. */
import type * as tfl from '@tensorflow/tfjs-layers';
import type { Randomness } from '../randomness.js';
import { drawFromStreams } from './random-layers.js';

interface Wrapper {
  readonly layer?: tfl.layers.Layer;
  readonly forwardLayer?: tfl.layers.Layer;
  readonly backwardLayer?: tfl.layers.Layer;
}

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

/** A layer and the layers that it wraps, outermost first. */
function withInner(layer: tfl.layers.Layer): tfl.layers.Layer[] {
  const { layer: inner, forwardLayer, backwardLayer } = layer as unknown as Wrapper;
  return [layer, ...[inner, forwardLayer, backwardLayer].filter((part) => part !== undefined).flatMap(withInner)];
}
