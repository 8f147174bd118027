/**
 * ConvLSTM2D with two convolutions per step in place of tf.js's eight: the four gates lie side by side in the kernels
 * already. Dropout has a mask for each gate, and stays with tf.js. Images with channels first are turned on the way in and out, as
 * Conv2D layers do by themselves: the convolutions want channels last.
 */
import * as tf from '@tensorflow/tfjs-core';
import type * as tfl from '@tensorflow/tfjs-layers';
import { CONV_KERNEL } from './conv-wasm.js';

type Padding = 'same' | 'valid';
type Strides = [number, number];
interface Activation {
  apply(x: tf.Tensor): tf.Tensor;
}

interface CellInternals {
  readonly dataFormat: string;
  readonly strides: Strides;
  readonly padding: Padding;
  readonly kernel: tfl.LayerVariable;
  readonly recurrentKernel: tfl.LayerVariable;
  /** Absent without `use_bias`. */
  readonly bias?: tfl.LayerVariable | null;
  readonly activation: Activation;
  readonly recurrentActivation: Activation;
  readonly dropout: number;
  readonly recurrentDropout: number;
  call(inputs: tf.Tensor[], kwargs: { readonly training?: boolean }): tf.Tensor[];
  inputConv(x: tf.Tensor, w: tf.Tensor, bias: tf.Tensor | null, padding: Padding): tf.Tensor;
  recurrentConv(x: tf.Tensor, w: tf.Tensor): tf.Tensor;
}

/** For backends that have the convolution kernel of ours. */
export function fuseConvLstm(layer: tfl.layers.Layer): void {
  const { cell } = layer as unknown as { readonly cell: CellInternals };
  const stock = cell.call.bind(cell);
  cell.call = (inputs, kwargs) =>
    kwargs.training === true && (cell.dropout > 0 || cell.recurrentDropout > 0) ? stock(inputs, kwargs) : step(cell, inputs);
  // For the steps with dropout.
  cell.inputConv = (x, w, bias, padding) => convolve(cell, x, w, bias, cell.strides, padding);
  cell.recurrentConv = (x, w) => convolve(cell, x, w, null, [1, 1], 'same');
}

/** From x and the states h and c of the step before: [h, h, c]. */
function step(cell: CellInternals, [x, before, carry]: tf.Tensor[]): tf.Tensor[] {
  return tf.tidy(() => {
    const ofInput = convolve(cell, x!, cell.kernel.read(), cell.bias?.read() ?? null, cell.strides, cell.padding);
    const ofState = convolve(cell, before!, cell.recurrentKernel.read(), null, [1, 1], 'same');
    const gates = tf.split(tf.add(ofInput, ofState), 4, cell.dataFormat === 'channelsFirst' ? 1 : 3);
    const [i, f, o] = [gates[0]!, gates[1]!, gates[3]!].map((gate) => cell.recurrentActivation.apply(gate));
    const c = tf.add(tf.mul(f!, carry!), tf.mul(i!, cell.activation.apply(gates[2]!)));
    const h = tf.mul(o!, cell.activation.apply(c));
    return [h, h, c];
  });
}

/** x [n, h, w, c], or [n, c, h, w] as the cell says, and so the result; w [i, j, c, f]. */
function convolve(
  { dataFormat }: CellInternals,
  x: tf.Tensor,
  w: tf.Tensor,
  bias: tf.Tensor | null,
  strides: Strides,
  pad: Padding,
): tf.Tensor {
  const isFirst = dataFormat === 'channelsFirst';
  const image = isFirst ? tf.transpose(x, [0, 2, 3, 1]) : x;
  const inputs = { x: image, filter: w, ...(bias ? { bias } : {}) };
  const y = tf.engine().runKernel(CONV_KERNEL, inputs, { strides, pad, activation: 'linear' }) as tf.Tensor;
  return isFirst ? tf.transpose(y, [0, 3, 1, 2]) : y;
}
