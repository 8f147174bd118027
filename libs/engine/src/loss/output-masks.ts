/**
 * The masks with which the outputs of a model come: of steps that a Masking layer or an Embedding with mask_zero has found to be padding, as far as the
 * layers behind pass them on. As in Keras they reach the loss and the metrics. tf.js computes them on the way and forgets them.
 */
import * as tf from '@tensorflow/tfjs-core';
import type * as tfl from '@tensorflow/tfjs-layers';
import { givesMask } from '../model/check-layer-positions.js';

type Layer = tfl.layers.Layer;
type ComputeMask = (inputs: unknown, mask?: unknown) => tf.Tensor | (tf.Tensor | null)[] | null;

/** By the number of the output, of those that have one: 1 where a step counts, [count, steps] float32. */
export type OutputMasks = Record<string, tf.Tensor>;

/** Instances of layers only; no prototypes. */
export class MaskRecorder {
  /** Masks of the layers in the order of their calls. They outlive the tidy of their layer. */
  private readonly noted = new Map<Layer, (tf.Tensor | undefined)[]>();
  private isNoting = false;

  private readonly outputs: readonly tfl.SymbolicTensor[];

  /** @param model undefined where no mask is looked at */
  constructor(model: Pick<tfl.LayersModel, 'outputs'> | undefined) {
    this.outputs = model?.outputs ?? [];
    for (const layer of new Set(this.outputs.map(({ sourceLayer }) => sourceLayer))) if (givesMask(layer)) this.watch(layer);
  }

  /** @param of runs the model; then it is told the masks of its outputs, which are disposed of when it is done */
  during<T>(of: (masks: () => OutputMasks) => T): T {
    this.isNoting = true;
    try {
      return of(() => this.masks());
    } finally {
      this.isNoting = false;
      for (const masks of this.noted.values()) for (const mask of masks) mask?.dispose();
      this.noted.clear();
    }
  }

  private masks(): OutputMasks {
    const masks: OutputMasks = {};
    const calls = new Map<Layer, number>();
    this.outputs.forEach(({ sourceLayer }, i) => {
      const call = calls.get(sourceLayer) ?? 0;
      calls.set(sourceLayer, call + 1);
      const mask = this.noted.get(sourceLayer)?.[call];
      if (mask) masks[i] = mask;
    });
    return masks;
  }

  private watch(layer: Layer): void {
    const masking = layer as unknown as { computeMask: ComputeMask };
    const computeMask = masking.computeMask.bind(layer);
    masking.computeMask = (inputs, given) => {
      const result = computeMask(inputs, given);
      // `Layer.apply` asks too, but it does not know the masks of the inputs.
      if (this.isNoting && given !== undefined) {
        const mask = Array.isArray(result) ? result[0] : result;
        const noted = this.noted.get(layer) ?? [];
        noted.push(mask ? tf.keep(tf.cast(mask, 'float32')) : undefined);
        this.noted.set(layer, noted);
      }
      return result;
    };
  }
}
