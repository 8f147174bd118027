/** Lets ConvLSTM2D take images with channels first on backends whose convolutions want them last, as Conv2D layers do by themselves. */
import * as tf from '@tensorflow/tfjs-core';
import type * as tfl from '@tensorflow/tfjs-layers';

interface CellInternals {
  readonly dataFormat: string;
  readonly strides: [number, number];
  inputConv(x: tf.Tensor4D, w: tf.Tensor4D, bias: tf.Tensor1D | null, padding: 'same' | 'valid'): tf.Tensor;
  recurrentConv(x: tf.Tensor4D, w: tf.Tensor4D): tf.Tensor;
}

export function convolveChannelsLast(layer: tfl.layers.Layer): void {
  const { cell } = layer as unknown as { readonly cell: CellInternals };
  if (cell.dataFormat !== 'channelsFirst') return;
  cell.inputConv = (x, w, bias, padding) => {
    const y = convolve(x, w, cell.strides, padding);
    return bias ? tf.add(y, tf.reshape(bias, [1, bias.size, 1, 1])) : y;
  };
  cell.recurrentConv = (x, w) => convolve(x, w, 1, 'same');
}

/** x [n, c, h, w], w [i, j, c, f]. */
function convolve(x: tf.Tensor4D, w: tf.Tensor4D, strides: number | [number, number], padding: 'same' | 'valid'): tf.Tensor {
  return tf.transpose(tf.conv2d(tf.transpose(x, [0, 2, 3, 1]), w, strides, padding), [0, 3, 1, 2]);
}
