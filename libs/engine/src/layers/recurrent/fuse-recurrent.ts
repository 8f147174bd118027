/** Lets LSTM and GRU layers, and RNN layers with one such cell, run as one kernel on the wasm backend where they are what most people use. */
import * as tf from '@tensorflow/tfjs-core';
import type * as tfl from '@tensorflow/tfjs-layers';
import { gru, lstm } from './recurrent-wasm.js';

interface CellInternals {
  getClassName(): string;
  readonly activation: { getClassName(): string };
  readonly recurrentActivation: { getClassName(): string };
  readonly kernel: tfl.LayerVariable;
  readonly recurrentKernel: tfl.LayerVariable;
  readonly bias: tfl.LayerVariable | null;
  readonly dropout: number;
  readonly recurrentDropout: number;
  readonly resetAfter?: boolean;
}

interface RecurrentInternals {
  readonly cell: CellInternals;
  readonly returnSequences: boolean;
  readonly returnState: boolean;
  readonly goBackwards: boolean;
  readonly stateful: boolean;
  call(inputs: tf.Tensor | tf.Tensor[], kwargs: { mask?: unknown; initialState?: unknown; training?: boolean }): tf.Tensor | tf.Tensor[];
}

const KERNELS: Readonly<Record<string, typeof lstm | undefined>> = { LSTMCell: lstm, GRUCell: gru };
const GATES: ReadonlySet<string> = new Set(['sigmoid', 'hardSigmoid']);

/** One mask for all steps of a sequence, drawn as tf.js draws it. */
function dropped(x: tf.Tensor3D, rate: number): tf.Tensor3D {
  if (!(rate > 0 && rate < 1)) return x;
  return tf.mul(x, tf.dropout(tf.ones([x.shape[0], 1, x.shape[2]]), rate));
}

/**
 * Masks, dropout of the state, states that are handed in or out and other activations stay with tf.js, and so does a GRU
 * with the reset gate before the product.
 */
export function fuseRecurrent(layer: tfl.layers.Layer): void {
  const recurrent = layer as unknown as RecurrentInternals;
  const { cell } = recurrent;
  const kernel = KERNELS[cell.getClassName()];
  if (!kernel) return;
  const gates = cell.recurrentActivation.getClassName();
  if (cell.activation.getClassName() !== 'tanh' || !GATES.has(gates)) return;
  if (recurrent.stateful || recurrent.returnState || (kernel === gru && !cell.resetAfter)) return;
  const stock = recurrent.call.bind(recurrent);
  recurrent.call = (inputs, kwargs) => {
    const isDropping = kwargs.training === true && cell.recurrentDropout > 0;
    if (isDropping || kwargs.mask != null || kwargs.initialState != null) return stock(inputs, kwargs);
    const x = (Array.isArray(inputs) ? inputs[0]! : inputs) as tf.Tensor3D;
    const weights = { w: cell.kernel.read(), u: cell.recurrentKernel.read(), bias: cell.bias?.read() };
    const attrs = { hard: gates === 'hardSigmoid', sequences: recurrent.returnSequences };
    return tf.tidy(() => {
      const forwards = recurrent.goBackwards ? tf.reverse(x, 1) : x;
      return kernel(kwargs.training === true ? dropped(forwards, cell.dropout) : forwards, weights, attrs);
    });
  };
}
