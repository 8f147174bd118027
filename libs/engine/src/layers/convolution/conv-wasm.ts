/**
 * 2-D convolutions for training, as matrix products whose rows are windows of the image: no im2col is written. Shapes are
 * those of tf.js: x [n, h, w, c], dy [n, p, q, k], filter [i, j, c, k]; dilation 1.
 */
import * as tf from '@tensorflow/tfjs-core';
import { backpropFilter, backpropInput, wholeGradient } from './conv-gradients-wasm.js';
import { convInfo, windowsOf, type Info } from './conv-windows.js';
import { heapOf, type Heap } from '../../backends/wasm/heap.js';
import { packedBytes, panelBytes, PANEL_HEAD_BYTES } from '../../backends/wasm/products.js';
import { reluGradient, sumRows } from '../../backends/wasm/passes.js';

const FLOAT = 4;

export const CONV_KERNEL = 'PacelineConv2D';

export interface ConvAttrs {
  readonly strides: [number, number];
  readonly pad: 'valid' | 'same';
  readonly activation: 'linear' | 'relu';
}

/** relu(conv(x, filter) + bias) or without relu or bias, NHWC. */
export const convKernel: tf.KernelConfig = {
  kernelName: CONV_KERNEL,
  backendName: 'wasm',
  kernelFunc: ({ inputs, backend, attrs }) => {
    const { x, filter, bias } = inputs as { x: tf.TensorInfo; filter: tf.TensorInfo; bias?: tf.TensorInfo };
    const { strides, pad, activation } = attrs as unknown as ConvAttrs;
    const heap = heapOf(backend);
    const info = convInfo(x.shape, filter.shape, strides, pad);
    const out = heap.output(info.outShape);
    const convolve = convolution(heap, info, heap.address(x), heap.address(filter), bias && heap.address(bias), activation);
    convolve(0, info.batchSize, heap.address(out));
    return out;
  },
};

/** Packs the filter; what is returned convolves some of the images, until a scratch memory of its own is asked for elsewhere. */
export function convolution(
  heap: Heap,
  info: Info,
  x: number,
  filter: number,
  bias: number | undefined,
  activation: ConvAttrs['activation'],
): (first: number, images: number, to: number) => void {
  const windows = windowsOf(heap, info, x);
  const { run, rows, k, packed } = packFilter(heap, info, filter, bias);
  const jump = windows.rowBytes - run * FLOAT;
  const relu = activation === 'relu' ? 1 : 0;
  const pixels = info.outHeight * info.outWidth;
  return (first, images, to) => {
    const table = windows.table + first * pixels * FLOAT;
    heap.kernels.multiplyWindows(table, images * pixels, rows, run, jump, packed, k, to, k * FLOAT, relu, heap.edge);
  };
}

export interface PackedFilter {
  /** Of the k floats of a window, those in one of its rows. */
  readonly run: number;
  readonly rows: number;
  /** Filters. */
  readonly k: number;
  /** Address of the panels. */
  readonly packed: number;
}

/** Valid until the scratch memory of packed operands is asked for elsewhere. */
export function packFilter(heap: Heap, info: Info, filter: number, bias: number | undefined): PackedFilter {
  const [run, rows, k] = [info.filterWidth * info.inChannels, info.filterHeight, info.outChannels];
  const depth = rows * run;
  const packed = heap.scratch('packed', packedBytes(depth, k));
  heap.kernels.packBias(bias ?? 0, k, packed, panelBytes(depth));
  heap.kernels.packPlain(filter, k * FLOAT, depth, k, packed + PANEL_HEAD_BYTES, panelBytes(depth));
  return { run, rows, k, packed };
}

export const convGradient: tf.GradConfig = {
  kernelName: CONV_KERNEL,
  inputsToSave: ['x', 'filter'],
  outputsToSave: [true],
  gradFunc: (dy, saved, attrs) => {
    const [x, filter, y] = saved as [tf.Tensor4D, tf.Tensor4D, tf.Tensor4D];
    const { strides, pad, activation } = attrs as unknown as ConvAttrs;
    const dz = (activation === 'relu' ? reluGradient(dy as tf.Tensor, y) : dy) as tf.Tensor4D;
    const shared = { strides, pad, dataFormat: 'NHWC' };
    return {
      x: () => tf.engine().runKernel(tf.Conv2DBackpropInput, { dy: dz, filter }, { ...shared, inputShape: x.shape }),
      filter: () => tf.engine().runKernel(tf.Conv2DBackpropFilter, { x, dy: dz }, { ...shared, filterShape: filter.shape }),
      bias: () => sumRows(dz),
    };
  },
};

export const convBackpropFilter: tf.KernelConfig = {
  kernelName: tf.Conv2DBackpropFilter,
  backendName: 'wasm',
  kernelFunc: ({ inputs, backend, attrs }) => {
    const { x, dy } = inputs as { x: tf.TensorInfo; dy: tf.TensorInfo };
    const { strides, pad, dimRoundingMode, filterShape } = attrs as unknown as tf.Conv2DBackpropFilterAttrs;
    const heap = heapOf(backend);
    const info = convInfo(x.shape, filterShape, strides, pad, dimRoundingMode);
    const out = heap.output(filterShape);
    backpropFilter(heap, info, heap.address(x), wholeGradient(info, heap.address(dy)), heap.address(out));
    return out;
  },
};

/** Also the forward pass of transposed convolutions. */
export function convBackpropInput(stock: tf.KernelFunc): tf.KernelFunc {
  return (call) => {
    const { dy, filter } = call.inputs as { dy: tf.TensorInfo; filter: tf.TensorInfo };
    const { strides, pad, dataFormat, dimRoundingMode, inputShape } = call.attrs as unknown as tf.Conv2DBackpropInputAttrs;
    if (dataFormat === 'NCHW') return stock(call);
    const info = convInfo(inputShape, filter.shape, strides, pad, dimRoundingMode);
    const heap = heapOf(call.backend);
    const out = heap.output(inputShape);
    backpropInput(heap, info, wholeGradient(info, heap.address(dy)), heap.address(filter), heap.address(out));
    return out;
  };
}
