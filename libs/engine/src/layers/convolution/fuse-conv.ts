import * as tf from '@tensorflow/tfjs-core';
import type * as tfl from '@tensorflow/tfjs-layers';
import { CONV_KERNEL, type ConvAttrs } from './conv-wasm.js';

interface ConvInternals {
  activation: { getClassName(): string } | null;
  kernel: tfl.LayerVariable;
  bias: tfl.LayerVariable | null;
  strides: [number, number];
  padding: ConvAttrs['pad'];
  dataFormat: string;
  dilationRate: number | number[];
  call(inputs: tf.Tensor | tf.Tensor[], kwargs: object): tf.Tensor | tf.Tensor[];
}

/** A Conv2D layer that the fused kernels cover. */
interface FusedConv {
  readonly layer: ConvInternals;
  readonly attrs: ConvAttrs;
  inputs(inputs: tf.Tensor | tf.Tensor[]): { x: tf.Tensor; filter: tf.Tensor; bias?: tf.Tensor };
}

/** They cover channels last, no dilation, activation none or relu. */
export function fusedConvOf(conv2d: tfl.layers.Layer): FusedConv | undefined {
  const layer = conv2d as unknown as ConvInternals;
  const activation = layer.activation?.getClassName() ?? 'linear';
  const isPlain = layer.dataFormat === 'channelsLast' && [layer.dilationRate].flat().every((rate) => rate === 1);
  if (!isPlain || (activation !== 'linear' && activation !== 'relu')) return undefined;
  return {
    layer,
    attrs: { strides: layer.strides, pad: layer.padding, activation },
    inputs: (inputs) => {
      const x = Array.isArray(inputs) ? inputs[0]! : inputs;
      return { x, filter: layer.kernel.read(), ...(layer.bias ? { bias: layer.bias.read() } : {}) };
    },
  };
}

/** Lets a Conv2D layer use the fused kernel. */
export function fuseConv(layer: tfl.layers.Layer): void {
  const conv = fusedConvOf(layer);
  if (conv) conv.layer.call = (inputs) => tf.engine().runKernel(CONV_KERNEL, conv.inputs(inputs), { ...conv.attrs });
}
