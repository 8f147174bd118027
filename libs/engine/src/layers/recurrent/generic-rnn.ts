/**
 * The RNN layer that takes its cell, or a stack of cells, from the config. tf.js's own one keeps the dropout masks of its
 * cells for ever (LSTM and GRU throw them away before each sequence), so that a step would depend on the one before and
 * fail on a batch of another size; and inside Bidirectional it reads one config twice, although reading changes it.
 */
import * as tf from '@tensorflow/tfjs-core';
import { cellsOf } from '../inner-layers.js';
import { replaceClass, type LayerClass } from '../replace-class.js';

interface Masks {
  dropoutMask?: tf.Tensor | tf.Tensor[] | null;
  recurrentDropoutMask?: tf.Tensor | tf.Tensor[] | null;
}

export function registerGenericRnn(): void {
  replaceClass('RNN', (stock) => {
    class GenericRnn extends (stock as LayerClass) {
      static override readonly className = 'RNN';
      static override fromConfig(cls: LayerClass, config: Record<string, unknown>) {
        return stock.fromConfig(cls, { ...config });
      }
      override call(inputs: tf.Tensor | tf.Tensor[], kwargs: Record<string, unknown>): tf.Tensor | tf.Tensor[] {
        for (const cell of cellsOf(this)) forgetMasks(cell as Masks);
        return super.call(inputs, kwargs);
      }
    }
    return GenericRnn;
  });
}

/** Before the next sequence: the gradient of the last one needed them. */
function forgetMasks(cell: Masks): void {
  for (const mask of [cell.dropoutMask, cell.recurrentDropoutMask]) if (mask != null) tf.dispose(mask);
  cell.dropoutMask = null;
  cell.recurrentDropoutMask = null;
}
