/**
 * A convolution with the max pooling behind it in one kernel. What the convolution gives is four times what the pooling leaves of it (windows of
 * 2 × 2): as a tensor it would be written once and read five times in a step, all of it from memory. Here a few images of it stand in scratch memory that
 * stays in the second-level cache, forward what the convolution gives, on the way back the gradient of that.
 */
import * as tf from '@tensorflow/tfjs-core';
import { POOLED_TILE_BYTES_PER_K, type InnerWindow } from '@paceline/kernels';
import { backpropFilter, backpropInput, type Band, type OutputGradient } from '../convolution/conv-gradients-wasm.js';
import { convolution, packFilter, type ConvAttrs, type PackedFilter } from '../convolution/conv-wasm.js';
import { convInfo, framedImages, type Info } from '../convolution/conv-windows.js';
import { heapOf, type Heap } from '../../backends/wasm/heap.js';
import { empty, reluGradient, sumRows } from '../../backends/wasm/passes.js';

const CONV_POOL = 'PacelineConvMaxPool';
const BACKPROP_FILTER = 'PacelineConvMaxPoolBackpropFilter';
const BACKPROP_INPUT = 'PacelineConvMaxPoolBackpropInput';

const FLOAT = 4;
/** Images are taken together up to this size. */
const BAND_BYTES = 1 << 17;

/** Windows lie inside of what the convolution gives, do not overlap, and have at most 255 cells. */
export interface ConvPoolAttrs extends ConvAttrs {
  readonly poolSize: readonly [number, number];
  readonly poolStrides: readonly [number, number];
}

export interface ConvPoolInputs {
  readonly x: tf.Tensor;
  readonly filter: tf.Tensor;
  readonly bias?: tf.Tensor;
}

/** maxPool(activation(conv(x, filter) + bias)). */
export type ConvMaxPool = (inputs: ConvPoolInputs, attrs: ConvPoolAttrs, training: boolean) => tf.Tensor;

/**
 * maxPool(activation(conv(x, filter) + bias)), NHWC, by the kernel of that name. While training it gets `places` too, an input that it fills, so that the
 * tape keeps for the gradient which cell of each window was the first largest.
 */
export const convMaxPoolBy =
  (kernelName: string): ConvMaxPool =>
  (inputs, attrs, training) => {
    const { strides, pad } = attrs;
    const places = training
      ? { places: empty(pooledShape(convInfo(inputs.x.shape, inputs.filter.shape, strides, pad), attrs), 'bool') }
      : {};
    return tf.engine().runKernel(kernelName, { ...inputs, ...places }, { ...attrs });
  };

export const convMaxPool = convMaxPoolBy(CONV_POOL);

type Named = Readonly<Record<string, tf.TensorInfo>>;

const forward: tf.KernelFunc = ({ inputs, backend, attrs }) => {
  const { x, filter, bias, places } = inputs as Named;
  const ours = attrs as unknown as ConvPoolAttrs;
  const heap = heapOf(backend);
  const info = convInfo(x!.shape, filter!.shape, ours.strides, ours.pad);
  const shape = pooledShape(info, ours);
  const out = heap.output(shape);
  const [y, at] = [heap.address(out), places ? heap.address(places) : 0];
  const [image, weights, ofBias] = [heap.address(x!), heap.address(filter!), bias && heap.address(bias)];
  if (ours.poolSize.every((size) => size === 2)) {
    pooledAtOnce(heap, info, ours, image, packFilter(heap, info, weights, ofBias), y, at);
    return out;
  }
  const convolve = convolution(heap, info, image, weights, ofBias, ours.activation);
  const pooledPixels = shape[1] * shape[2] * shape[3];
  for (const { first, images, address } of bandsOf(heap, info)) {
    convolve(first, images, address);
    const from = first * pooledPixels;
    heap.kernels.maxPool(address, y + from * FLOAT, at && at + from, ...windowOf(info, ours, images));
  }
  return out;
};

/** Windows of 2 × 2: each tile of the product is pooled as soon as it is there. */
function pooledAtOnce(heap: Heap, info: Info, attrs: ConvPoolAttrs, x: number, filter: PackedFilter, y: number, places: number): void {
  const [images, p, q] = pooledShape(info, attrs);
  const { base, rowBytes, imageBytes, down, right } = framedImages(heap, info, x);
  const [pixels, table] = [images * p * q, heap.scratch('table', images * p * q * FLOAT)];
  heap.kernels.tabulateWindows(table, base, images, p, q, imageBytes, attrs.poolStrides[0] * down, attrs.poolStrides[1] * right);
  const { rows, run, k, packed } = filter;
  const tile = heap.scratch('tile', rows * run * POOLED_TILE_BYTES_PER_K);
  const [jump, relu] = [rowBytes - run * FLOAT, attrs.activation === 'relu' ? 1 : 0];
  heap.kernels.multiplyPooledWindows(table, pixels, right, down, rows, run, jump, packed, k, y, places, relu, tile, heap.edge);
}

export const convPoolGradient: tf.GradConfig = {
  kernelName: CONV_POOL,
  inputsToSave: ['x', 'filter', 'places'],
  outputsToSave: [true],
  gradFunc: (dy, saved, attrs) => {
    const [x, filter, places, y] = saved as [tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor];
    const dz = (attrs['activation'] as string) === 'relu' ? reluGradient(dy as tf.Tensor, y) : (dy as tf.Tensor);
    return {
      x: () => tf.engine().runKernel(BACKPROP_INPUT, { dy: dz, places, filter }, { ...attrs, inputShape: x.shape }),
      filter: () => tf.engine().runKernel(BACKPROP_FILTER, { x, dy: dz, places }, { ...attrs, filterShape: filter.shape }),
      bias: () => sumRows(dz),
    };
  },
};

const toFilter: tf.KernelFunc = ({ inputs, backend, attrs }) => {
  const { x, dy, places } = inputs as Named;
  const ours = attrs as unknown as ConvPoolAttrs;
  const filterShape = attrs!['filterShape'] as number[];
  const heap = heapOf(backend);
  const info = convInfo(x!.shape, filterShape, ours.strides, ours.pad);
  const out = heap.output(filterShape);
  backpropFilter(heap, info, heap.address(x!), unpooled(heap, info, ours, dy!, places!), heap.address(out));
  return out;
};

const toInput: tf.KernelFunc = ({ inputs, backend, attrs }) => {
  const { dy, places, filter } = inputs as Named;
  const ours = attrs as unknown as ConvPoolAttrs;
  const inputShape = attrs!['inputShape'] as number[];
  const heap = heapOf(backend);
  const info = convInfo(inputShape, filter!.shape, ours.strides, ours.pad);
  const out = heap.output(inputShape);
  backpropInput(heap, info, unpooled(heap, info, ours, dy!, places!), heap.address(filter!), heap.address(out));
  return out;
};

export const convPoolKernels: readonly tf.KernelConfig[] = Object.entries({
  [CONV_POOL]: forward,
  [BACKPROP_FILTER]: toFilter,
  [BACKPROP_INPUT]: toInput,
}).map(([kernelName, kernelFunc]) => ({ kernelName, backendName: 'wasm', kernelFunc }));

/** The gradient of what the convolution gives, from that of the pooled values. */
function unpooled(heap: Heap, info: Info, attrs: ConvPoolAttrs, dy: tf.TensorInfo, places: tf.TensorInfo): OutputGradient {
  const [address, at] = [heap.address(dy), heap.address(places)];
  const stored = tf.util.sizeFromShape(dy.shape);
  return {
    floats: { address, stored, elements: tf.util.sizeFromShape(info.outShape) },
    *bands() {
      for (const band of bandsOf(heap, info)) {
        const from = (stored / info.batchSize) * band.first;
        heap.kernels.maxUnpool(address + from * FLOAT, at + from, band.address, ...windowOf(info, attrs, band.images));
        yield band;
      }
    },
  };
}

/** As many images as fit, all in the same scratch memory. */
function* bandsOf(heap: Heap, { batchSize, outHeight, outWidth, outChannels }: Info): Generator<Band> {
  const imageBytes = outHeight * outWidth * outChannels * FLOAT;
  const most = Math.min(batchSize, Math.max(1, Math.floor(BAND_BYTES / imageBytes)));
  const address = heap.scratch('band', most * imageBytes);
  for (let first = 0; first < batchSize; first += most) yield { first, images: Math.min(most, batchSize - first), address };
}

function pooledShape({ batchSize, outHeight, outWidth, outChannels }: Info, { poolSize, poolStrides }: ConvPoolAttrs) {
  const along = (length: number, i: 0 | 1): number => Math.floor((length - poolSize[i]) / poolStrides[i]) + 1;
  return [batchSize, along(outHeight, 0), along(outWidth, 1), outChannels] as [number, number, number, number];
}

function windowOf(info: Info, attrs: ConvPoolAttrs, images: number): InnerWindow {
  const [, p, q, c] = pooledShape(info, attrs);
  return [images, info.outHeight, info.outWidth, c, p, q, ...attrs.poolSize, ...attrs.poolStrides];
}
