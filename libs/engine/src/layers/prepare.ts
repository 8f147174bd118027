/** Fits the layers of a freshly built model to the engine: streams for randomness, fused kernels. Instances only, no prototypes. */
import type * as tfl from '@tensorflow/tfjs-layers';
import type { StartedBackend } from '../backend.js';
import type { Randomness } from '../randomness.js';
import { normaliseInPasses } from './batch-norm.js';
import { fuseConv } from './conv.js';
import { fuseDense } from './dense.js';
import { drawFromStreams } from './random-layers.js';
import { fuseRecurrent } from './recurrent.js';

/** Layers that have kernels of their own on the wasm backend. */
const FUSED: Readonly<Record<string, (layer: tfl.layers.Layer) => void>> = {
  Dense: fuseDense,
  Conv2D: fuseConv,
  LSTM: fuseRecurrent,
  GRU: fuseRecurrent,
};

interface Wrapper {
  readonly layer?: tfl.layers.Layer;
  readonly forwardLayer?: tfl.layers.Layer;
  readonly backwardLayer?: tfl.layers.Layer;
}

export function prepareLayers(model: tfl.LayersModel, backend: StartedBackend, randomness: Randomness): void {
  for (const layer of model.layers) {
    randomness.scopeLayer(layer);
    for (const part of withInner(layer)) {
      drawFromStreams(part, randomness);
      if (part.getClassName() === 'BatchNormalization') normaliseInPasses(part, backend.memory);
      if (backend.name === 'wasm') FUSED[part.getClassName()]?.(part);
    }
  }
}

/** A layer and the layers that it wraps, outermost first. */
function withInner(layer: tfl.layers.Layer): tfl.layers.Layer[] {
  const { layer: inner, forwardLayer, backwardLayer } = layer as unknown as Wrapper;
  return [layer, ...[inner, forwardLayer, backwardLayer].filter((part) => part !== undefined).flatMap(withInner)];
}
