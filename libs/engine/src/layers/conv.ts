import * as tf from '@tensorflow/tfjs-core';
import type * as tfl from '@tensorflow/tfjs-layers';
import { CONV_KERNEL } from '../wasm/conv-kernels.js';

interface ConvInternals {
  activation: { getClassName(): string } | null;
  kernel: tfl.LayerVariable;
  bias: tfl.LayerVariable | null;
  strides: [number, number];
  padding: string;
  dataFormat: string;
  dilationRate: number | number[];
  call(inputs: tf.Tensor | tf.Tensor[], kwargs: object): tf.Tensor | tf.Tensor[];
}

/** Lets a Conv2D layer use the fused kernel for what it covers: channels last, no dilation, activation none or relu. */
export function fuseConv(layer: tfl.layers.Layer): void {
  const conv = layer as unknown as ConvInternals;
  const activation = conv.activation?.getClassName() ?? 'linear';
  const isPlain = conv.dataFormat === 'channelsLast' && [conv.dilationRate].flat().every((rate) => rate === 1);
  if (!isPlain || (activation !== 'linear' && activation !== 'relu')) return;
  const attrs = { strides: conv.strides, pad: conv.padding, activation };
  conv.call = (inputs) => {
    const x = Array.isArray(inputs) ? inputs[0]! : inputs;
    const filter = conv.kernel.read();
    return tf.engine().runKernel(CONV_KERNEL, { x, filter, ...(conv.bias ? { bias: conv.bias.read() } : {}) }, attrs);
  };
}
