/**
 * Inputs of the data that layers take for ids. An engine looks up what it finds there: NaN and infinities become row 0 when they are cast, and what a GPU
 * has no row for becomes zeros. So ids are looked at before tf.js starts. Layers cast a number to its whole part; so it is here.
 */
import type * as tfl from '@tensorflow/tfjs-layers';
import { noteFailedLayer } from '../errors/failed-layer.js';
import type { BoundInput } from '../model/ends.js';

/** By class: the setting that says how many ids there are. */
const SIZES: Readonly<Record<string, string>> = {
  Embedding: 'inputDim',
  TokenAndPositionEmbedding: 'vocabularySize',
  CategoryEncoding: 'numTokens',
};
/** Layers that only move values about. */
const MOVING: ReadonlySet<string> = new Set(['Reshape', 'Flatten', 'Permute', 'RepeatVector']);

/** The ids of a field of the row format. */
export interface IdField {
  readonly field: number;
  readonly name: string;
  /** Of one example. */
  readonly length: number;
  /** Ids from 0 on that the layer knows. */
  readonly ids: number;
  readonly layer: string;
}

/** One for each layer, and each input that comes to it unchanged. */
export function idFieldsOf(model: tfl.LayersModel, inputs: readonly BoundInput[]): IdField[] {
  return model.layers.flatMap((layer) => {
    const size = SIZES[layer.getClassName()];
    if (size === undefined) return [];
    const ids = (layer as unknown as Readonly<Record<string, number>>)[size]!;
    return inputsOf(layer).flatMap((from) => {
      const input = inputs[model.inputs.findIndex(({ sourceLayer }) => sourceLayer === from)];
      return input ? [{ field: input.field, name: input.name, length: input.length, ids, layer: layer.name }] : [];
    });
  });
}

/** The layers without sources from which the values of a layer come unchanged. */
function inputsOf(layer: tfl.layers.Layer): tfl.layers.Layer[] {
  const sources = layer.inboundNodes.flatMap(({ inboundLayers }) => inboundLayers);
  return [...new Set(sources.flatMap((source) => (MOVING.has(source.getClassName()) ? inputsOf(source) : [source])))];
}

/** @throws RangeError */
export function checkIds(fields: readonly IdField[], inputs: readonly Float32Array[], count: number): void {
  for (const { field, name, length, ids, layer } of fields) {
    const values = inputs[field]!;
    for (let at = 0; at < count * length; at++) {
      const value = values[at]!;
      // The whole part of −0.5 is 0.
      if (value > -1 && value < ids) continue;
      const error = new RangeError(
        `${value} in ${name} of example ${Math.floor(at / length)} is no id that ${layer} knows: it has ${ids}, from 0 on; give it as many as there are, or mend the data`,
      );
      noteFailedLayer(error, layer);
      throw error;
    }
  }
}
