/**
 * 3-D convolutions from the 2-D ones: each slice of the output is a 2-D convolution of the slices of the input that its
 * window sees, laid side by side as channels. x [n, d, h, w, c] becomes [n · outDepth, h, w, i · c] for a filter
 * [i, j, k, c, f], which becomes [j, k, i · c, f]; both gradients go the same way back. The gradients of the stock kernels of tf.js
 * 4.22 are others than those of its JavaScript backend, unless all strides are 1. Dilation 1, channels last.
 */
import * as tf from '@tensorflow/tfjs-core';
import { CONV_KERNEL } from './conv-wasm.js';

type Pad = 'valid' | 'same';
type Shape5 = [number, number, number, number, number];
type Info = tf.backend_util.Conv3DInfo;

const run = (name: string, inputs: Record<string, tf.TensorInfo>, attrs: Record<string, unknown>): tf.Tensor =>
  tf.engine().runKernel(name, inputs as tf.NamedTensorMap, attrs as unknown as tf.NamedAttrMap);

function infoOf(x: readonly number[], filter: readonly number[], strides: number | readonly number[], pad: Pad): Info {
  return tf.backend_util.computeConv3DInfo(x as Shape5, filter as Shape5, strides as [number, number, number], 1, pad);
}

export const conv3dKernels: readonly tf.KernelConfig[] = [
  composed(tf.Conv3D, (inputs, attrs) => {
    const { x, filter } = tensors(inputs);
    const { strides, pad, dilations } = attrs as unknown as tf.Conv3DAttrs;
    if ([dilations ?? 1].flat().some((rate) => rate !== 1)) throw new Error('dilated 3-D convolutions are not trained here');
    const info = infoOf(x!.shape, filter!.shape, strides, pad);
    const y = run(CONV_KERNEL, { x: sideBySide(x!, info), filter: flatFilter(filter!) }, { ...planar(info, pad), activation: 'linear' });
    return tf.reshape(y, info.outShape);
  }),
  composed(tf.Conv3DBackpropFilterV2, (inputs, attrs) => {
    const { x, dy } = tensors(inputs);
    const { strides, pad, filterShape } = attrs as unknown as tf.Conv3DBackpropFilterV2Attrs;
    const info = infoOf(x!.shape, filterShape, strides, pad);
    const [i, j, k, c, f] = filterShape;
    const gradient = run(
      tf.Conv2DBackpropFilter,
      { x: sideBySide(x!, info), dy: slices(dy!) },
      { ...planar(info, pad), dataFormat: 'NHWC', filterShape: [j, k, i * c, f] },
    );
    return tf.reshape(tf.transpose(tf.reshape(gradient, [j * k, i, c * f]), [1, 0, 2]), filterShape);
  }),
  composed(tf.Conv3DBackpropInputV2, (inputs, attrs) => {
    const { dy, filter } = tensors(inputs);
    const { strides, pad, inputShape } = attrs as unknown as tf.Conv3DBackpropInputV2Attrs;
    const info = infoOf(inputShape, filter!.shape, strides, pad);
    const { batchSize, outDepth, inHeight, inWidth, filterDepth, inChannels } = info;
    const gradient = run(
      tf.Conv2DBackpropInput,
      { dy: slices(dy!), filter: flatFilter(filter!) },
      { ...planar(info, pad), dataFormat: 'NHWC', inputShape: [batchSize * outDepth, inHeight, inWidth, filterDepth * inChannels] },
    );
    return apart(gradient, info);
  }),
];

/** A kernel made of others: nothing of it is on the tape, and nothing but its result is kept. */
function composed(kernelName: string, compute: (inputs: tf.NamedTensorInfoMap, attrs: tf.NamedAttrMap) => tf.Tensor): tf.KernelConfig {
  return {
    kernelName,
    backendName: 'wasm',
    kernelFunc: ({ inputs, attrs }) => tf.tidy(() => compute(inputs as tf.NamedTensorInfoMap, attrs!)),
  };
}

/** Kernels are called with tensors. */
const tensors = (inputs: tf.NamedTensorInfoMap): Readonly<Record<string, tf.Tensor>> => inputs as unknown as Record<string, tf.Tensor>;

const planar = ({ strideHeight, strideWidth }: Info, pad: Pad) => ({ strides: [strideHeight, strideWidth], pad });

const slices = (t: tf.Tensor): tf.Tensor => tf.reshape(t, [t.shape[0]! * t.shape[1]!, ...t.shape.slice(2)]);

/** [i, j, k, c, f] → [j, k, i · c, f]. */
function flatFilter(filter: tf.Tensor): tf.Tensor {
  const [i, j, k, c, f] = filter.shape as Shape5;
  return tf.reshape(tf.transpose(tf.reshape(filter, [i, j * k, c * f]), [1, 0, 2]), [j, k, i * c, f]);
}

/** [n, d, h, w, c] → [n · outDepth, h, w, i · c]: for each slice of the output the input's slices, zeros beyond its ends. */
function sideBySide(x: tf.Tensor, info: Info): tf.Tensor {
  const { batchSize: n, inHeight: h, inWidth: w, inChannels: c, outDepth, filterDepth, strideDepth } = info;
  const { front, depth } = padded(info);
  const back = depth - front - info.inDepth;
  const image = h * w * c;
  const rows = tf.pad(tf.reshape(x, [n, info.inDepth, image]), [
    [0, 0],
    [front, Math.max(back, 0)],
    [0, 0],
  ]);
  const seen = Array.from({ length: filterDepth }, (_, i) =>
    tf.stridedSlice(rows, [0, i, 0], [n, i + (outDepth - 1) * strideDepth + 1, image], [1, strideDepth, 1]),
  );
  const pixels = n * outDepth * h * w;
  const stacked = tf.reshape(tf.concat(seen, 0), [filterDepth, pixels, c]);
  return tf.reshape(tf.transpose(stacked, [1, 0, 2]), [n * outDepth, h, w, filterDepth * c]);
}

/** The other way: what several slices of the output say about one of the input is added, in the order of the filter. */
function apart(gradient: tf.Tensor, info: Info): tf.Tensor {
  const { batchSize: n, inDepth, inHeight: h, inWidth: w, inChannels: c, outDepth, filterDepth, strideDepth } = info;
  const { front, depth } = padded(info);
  const image = h * w * c;
  const seen = tf.unstack(tf.transpose(tf.reshape(gradient, [n * outDepth * h * w, filterDepth, c]), [1, 0, 2]));
  const span = (outDepth - 1) * strideDepth + 1;
  const placed = seen.map((part, i) => {
    const spread = tf.pad(tf.reshape(part, [n, outDepth, 1, image]), [
      [0, 0],
      [0, 0],
      [0, strideDepth - 1],
      [0, 0],
    ]);
    const rows = tf.slice(tf.reshape(spread, [n, outDepth * strideDepth, image]), [0, 0, 0], [n, span, image]);
    return tf.pad(rows, [
      [0, 0],
      [i, Math.max(depth - i - span, 0)],
      [0, 0],
    ]);
  });
  const sum = placed.reduce((a, b) => tf.add(a, b));
  return tf.reshape(tf.slice(sum, [0, front, 0], [n, inDepth, image]), info.inShape);
}

/** Zeros in front of the input's depth, and the depth with the zeros at both ends that windows reach, never less than the input. */
function padded({ padInfo, inDepth, outDepth, strideDepth, filterDepth }: Info): { front: number; depth: number } {
  const reach = (outDepth - 1) * strideDepth + filterDepth;
  // tf.js's is negative where the windows end before the input does.
  const front = Math.max(padInfo.front, 0);
  return { front, depth: Math.max(reach, front + inDepth) };
}
