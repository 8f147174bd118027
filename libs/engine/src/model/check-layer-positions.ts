/** Checks on the built model that no layer stands behind another one with which it cannot train. */
import type * as tfl from '@tensorflow/tfjs-layers';
import type { BuiltModel } from './build-model.js';
import { withInner } from '../layers/inner-layers.js';
import { ModelError } from '../errors/model-error.js';

type Layer = tfl.layers.Layer;

const TAKES_NO_MASK: ReadonlySet<string> = new Set(['MultiHeadAttention', 'TokenAndPositionEmbedding']);
/** They use a mask, and their output has none. */
const ENDS_MASKS: ReadonlySet<string> = new Set(['GlobalAveragePooling1D']);

/** @throws ModelError */
export function checkPlacement({ model, plan, pathOf }: BuiltModel): void {
  const masked = new Set(plan.layers.filter(({ isMasked }) => isMasked).map(({ name }) => name));
  for (const layer of model.layers) {
    if (masked.has(layer.name) && !sourcesOf(layer).some((source) => givesMask(source)))
      throw new ModelError(
        `${pathOf(layer.name)}.inbound_nodes`,
        'is called with a mask that no layer in front of it passes on: leave the argument mask out, or keep to layers that pass masks on',
      );
    for (const part of withInner(layer)) {
      const name = part.getClassName();
      if (name === 'CategoryEncoding') {
        const trained = [...inFrontOf(layer)].find((other) => other.trainableWeights.length > 0);
        if (trained)
          throw new ModelError(
            pathOf(layer.name),
            `CategoryEncoding has no gradient, and layer ${trained.name} in front of it has weights: put it in front of all layers with weights`,
          );
      }
      if (TAKES_NO_MASK.has(name) && sourcesOf(layer).some((source) => givesMask(source)))
        throw new ModelError(
          pathOf(layer.name),
          `${name} takes no mask, and one comes to it: use mask_zero: false, and no Masking layer in front of it`,
        );
      if (name === 'ConvLSTM2D' && !keepsSize(part) && sourcesOf(layer).some((source) => givesMask(source)))
        throw new ModelError(
          pathOf(layer.name),
          'behind a mask, ConvLSTM2D needs padding "same", strides 1 and channels last: tf.js masks pixel by pixel',
        );
    }
  }
}

/** The layers whose output a layer is called on. */
function sourcesOf(layer: Layer): Layer[] {
  return layer.inboundNodes.flatMap((node) => node.inboundLayers);
}

/** All layers from which something comes to this one. */
function inFrontOf(layer: Layer): Set<Layer> {
  const found = new Set<Layer>();
  const waiting = sourcesOf(layer);
  for (let next = waiting.pop(); next; next = waiting.pop()) {
    if (found.has(next)) continue;
    found.add(next);
    waiting.push(...sourcesOf(next));
  }
  return found;
}

interface Masking {
  readonly supportsMasking: boolean;
  readonly maskZero?: boolean;
  readonly cell?: unknown;
  readonly forwardLayer?: unknown;
  readonly returnSequences?: boolean;
}

/** Whether a mask leaves a layer: one that it makes, or one that it passes on. */
export function givesMask(layer: Layer, seen: Set<Layer> = new Set()): boolean {
  if (seen.has(layer)) return false;
  seen.add(layer);
  const { supportsMasking, maskZero, cell, forwardLayer, returnSequences } = layer as unknown as Masking;
  if (layer.getClassName() === 'Masking' || maskZero === true) return true;
  const endsHere =
    !supportsMasking || ENDS_MASKS.has(layer.getClassName()) || ((cell ?? forwardLayer) !== undefined && returnSequences !== true);
  return !endsHere && sourcesOf(layer).some((source) => givesMask(source, seen));
}

interface ConvLstm {
  readonly cell: { readonly padding: string; readonly strides: readonly number[]; readonly dataFormat: string };
}

function keepsSize(layer: Layer): boolean {
  const { padding, strides, dataFormat } = (layer as unknown as ConvLstm).cell;
  return padding === 'same' && strides.every((stride) => stride === 1) && dataFormat === 'channelsLast';
}
