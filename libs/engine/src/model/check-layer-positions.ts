/** Checks on the built model that no layer stands behind another one with which it cannot train. */
import type * as tfl from '@tensorflow/tfjs-layers';
import type { BuiltModel } from './build-model.js';
import { withInner } from '../layers/inner-layers.js';
import { ModelError } from '../errors/model-error.js';
import type { PlannedLayer } from '../topology/planned-model.js';

type Layer = tfl.layers.Layer;

const TAKES_NO_MASK: ReadonlySet<string> = new Set(['MultiHeadAttention', 'TokenAndPositionEmbedding']);
/** They use a mask, and their output has none. */
const ENDS_MASKS: ReadonlySet<string> = new Set(['GlobalAveragePooling1D']);

/** In Keras 3 they take a masked step for the value that changes nothing (keras/src/layers/merging). */
const MASKED_OTHERWISE: ReadonlySet<string> = new Set(['Maximum', 'Minimum', 'Multiply']);

/** @throws ModelError */
export function checkPlacement({ model, plan, pathOf }: BuiltModel): void {
  const named = (is: (layer: PlannedLayer) => boolean | undefined): Set<string> => new Set(plan.layers.filter(is).map(({ name }) => name));
  const [masked, unmasked, operations] = [named((one) => one.isMasked), named((one) => one.isUnmasked), named((one) => one.isOperation)];
  for (const layer of model.layers) {
    if (unmasked.has(layer.name) && sourcesOf(layer).some((source) => givesMask(source)))
      throw new ModelError(
        `${pathOf(layer.name)}.inbound_nodes`,
        'is called without a mask in Keras, and a mask comes to it here: use mask_zero: false, and no Masking layer in front of it',
      );
    if (operations.has(layer.name) && hasRanks(layer))
      throw new ModelError(
        `${pathOf(layer.name)}.inbound_nodes`,
        'is an operation on tensors of different ranks, which Keras lines up at their last dimensions: put a Reshape in front, or call the layer of this name',
      );
    if (MASKED_OTHERWISE.has(layer.getClassName()) && isPartlyMasked(layer))
      throw new ModelError(
        pathOf(layer.name),
        `where one tensor has a mask and another has none, ${layer.getClassName()} of Keras 3 leaves the masked steps out of account, and here it does not: use Add or Average, or mask_zero: false`,
      );
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

/** Whether it is called on tensors of different ranks. */
function hasRanks(layer: Layer): boolean {
  return layer.inboundNodes.some(({ inputShapes }) => new Set((inputShapes as (number | null)[][]).map((shape) => shape.length)).size > 1);
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
  /** Of Keras 3: all tensors must have a mask. */
  readonly unites?: boolean;
}

/** Where masks meet as in Keras 3: some of the tensors have one, and some have none. Operations have no masks. */
function isPartlyMasked(layer: Layer): boolean {
  const { unites, supportsMasking } = layer as unknown as Masking;
  if (unites !== true || !supportsMasking) return false;
  return layer.inboundNodes.some(({ inboundLayers }) => new Set(inboundLayers.map((source) => givesMask(source))).size > 1);
}

/** Whether a mask leaves a layer: one that it makes, or one that it passes on. */
export function givesMask(layer: Layer, known: Map<Layer, boolean> = new Map()): boolean {
  const found = known.get(layer);
  if (found !== undefined) return found;
  known.set(layer, false);
  const { supportsMasking, maskZero, cell, forwardLayer, returnSequences, unites } = layer as unknown as Masking;
  if (layer.getClassName() === 'Masking' || maskZero === true) {
    known.set(layer, true);
    return true;
  }
  const endsHere =
    !supportsMasking || ENDS_MASKS.has(layer.getClassName()) || ((cell ?? forwardLayer) !== undefined && returnSequences !== true);
  const gives = (source: Layer): boolean => givesMask(source, known);
  const passes = layer.inboundNodes.some(({ inboundLayers }) => (unites ? inboundLayers.every(gives) : inboundLayers.some(gives)));
  known.set(layer, !endsHere && passes);
  return !endsHere && passes;
}

interface ConvLstm {
  readonly cell: { readonly padding: string; readonly strides: readonly number[]; readonly dataFormat: string };
}

function keepsSize(layer: Layer): boolean {
  const { padding, strides, dataFormat } = (layer as unknown as ConvLstm).cell;
  return padding === 'same' && strides.every((stride) => stride === 1) && dataFormat === 'channelsLast';
}
