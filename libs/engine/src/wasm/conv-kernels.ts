/**
 * 2-D convolutions for training, as matrix products whose rows are windows of the image: no im2col is written. Shapes are
 * those of tf.js: x [n, h, w, c], dy [n, p, q, k], filter [i, j, c, k]; dilation 1.
 */
import * as tf from '@tensorflow/tfjs-core';
import { ProductMode, TILE_BYTES_PER_K } from '@paceline/kernels';
import { heapOf, type Heap } from './heap.js';
import { packedBytes, panelBytes, PANEL_HEAD_BYTES } from './products.js';
import { reluGradient, sumRows } from './passes.js';
import { beginOf, fewSet, roomForLists } from './sparse.js';

const FLOAT = 4;
/** Output pixels whose gradients are packed at once for the gradient of the filter. */
const BLOCK_OF_PIXELS = 384;
/** The same where they are listed: what they meet of the image stays in the first-level cache. */
const BLOCK_OF_LISTED_PIXELS = 128;

type Info = tf.backend_util.Conv2DInfo;

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
    const windows = windowsOf(heap, info, heap.address(x));
    const [run, k] = [info.filterWidth * info.inChannels, info.outChannels];
    const depth = info.filterHeight * run;
    const packed = heap.scratch('packed', packedBytes(depth, k));
    heap.kernels.packBias(bias ? heap.address(bias) : 0, k, packed, panelBytes(depth));
    heap.kernels.packPlain(heap.address(filter), k * FLOAT, depth, k, packed + PANEL_HEAD_BYTES, panelBytes(depth));
    const jump = windows.rowBytes - run * FLOAT;
    const relu = activation === 'relu' ? 1 : 0;
    const [rows, to] = [info.filterHeight, heap.address(out)];
    heap.kernels.multiplyWindows(windows.table, windows.count, rows, run, jump, packed, k, to, k * FLOAT, relu, heap.edge);
    return out;
  },
};

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

/** dW[i, j, c, k] = Σ over n, p, q of x[n, p·s + i − top, q·s + j − left, c] · dy[n, p, q, k] */
export const convBackpropFilter: tf.KernelConfig = {
  kernelName: tf.Conv2DBackpropFilter,
  backendName: 'wasm',
  kernelFunc: ({ inputs, backend, attrs }) => {
    const { x, dy } = inputs as { x: tf.TensorInfo; dy: tf.TensorInfo };
    const { strides, pad, dimRoundingMode, filterShape } = attrs as unknown as tf.Conv2DBackpropFilterAttrs;
    const heap = heapOf(backend);
    const info = convInfo(x.shape, filterShape, strides, pad, dimRoundingMode);
    const out = heap.output(filterShape);
    const windows = windowsOf(heap, info, heap.address(x));
    const [run, k] = [info.filterWidth * info.inChannels, info.outChannels];
    if (backpropFilterListed(heap, info, windows, heap.address(dy), heap.address(out))) return out;
    const block = Math.min(windows.count, BLOCK_OF_PIXELS);
    const packed = heap.scratch('packed', packedBytes(block, k));
    const tile = heap.scratch('tile', block * TILE_BYTES_PER_K);
    const { kernels, edge } = heap;
    const [from, to] = [heap.address(dy), heap.address(out)];
    for (let at = 0; at < windows.count; at += block) {
      const count = Math.min(block, windows.count - at);
      kernels.packBias(0, k, packed, panelBytes(count));
      kernels.packPlain(from + at * k * FLOAT, k * FLOAT, count, k, packed + PANEL_HEAD_BYTES, panelBytes(count));
      for (let row = 0; row < info.filterHeight; row++) {
        const into = to + row * run * k * FLOAT;
        const [table, mode] = [windows.table + at * FLOAT, at > 0 ? ProductMode.Add : ProductMode.Bias] as const;
        kernels.multiplyColumns(table, count, row * windows.rowBytes, run, packed, k, into, k * FLOAT, mode, tile, edge);
      }
    }
    return out;
  },
};

/**
 * The gradient of the filter by lists of what is set in dy, or else in x; true when one of them was mostly zeros, and it is done.
 *
 *   dy   dWᵀ[k, i, j, c] = the k columns of dy · the pixels of x that they meet, turned around in the end
 *   x    dW[i, j, c, k] = the columns of the windows · the pixels of dy
 */
function backpropFilterListed(heap: Heap, info: Info, windows: Windows, dy: number, to: number): boolean {
  const { inChannels: c, outChannels: k, filterHeight, filterWidth } = info;
  const { kernels } = heap;
  const ofDy = fewSet(heap, dy, windows.count * k, c, windows.base, windows.floats);
  const ofX = ofDy === undefined ? fewSet(heap, windows.base, windows.floats, k, dy, windows.count * k) : undefined;
  if (ofDy === undefined && ofX === undefined) return false;
  const [run, depth] = [filterWidth * c, filterHeight * filterWidth * c];
  const block = Math.min(windows.count, BLOCK_OF_LISTED_PIXELS);
  // One row of a filter's cells meets an element of x at most once for each cell.
  const { entries, starts } =
    ofDy === undefined
      ? roomForLists(heap, Math.min(ofX! * filterWidth, block * run), run)
      : roomForLists(heap, Math.min(ofDy, block * k), k);
  const rows = heap.scratch('rows', windows.count * FLOAT);
  kernels.tabulate(rows, dy, k * FLOAT, windows.count);
  const sums = ofDy === undefined ? to : heap.scratch('transposed', k * depth * FLOAT);
  const zeros = beginOf(heap, undefined, Math.max(c, k));
  for (let at = 0; at < windows.count; at += block) {
    const count = Math.min(block, windows.count - at);
    const [ofWindows, ofRows] = [windows.table + at * FLOAT, rows + at * FLOAT];
    const begin = at === 0 ? zeros : 0;
    if (ofDy !== undefined) {
      kernels.listColumns(ofRows, 0, count, k, ofWindows, entries, starts);
      for (let cell = 0; cell < filterHeight * filterWidth; cell++) {
        const pixel = Math.floor(cell / filterWidth) * windows.rowBytes + (cell % filterWidth) * c * FLOAT;
        kernels.multiplyListed(starts, k, pixel, c, begin, sums + cell * c * FLOAT, depth * FLOAT);
      }
    } else {
      for (let row = 0; row < filterHeight; row++) {
        kernels.listColumns(ofWindows, row * windows.rowBytes, count, run, ofRows, entries, starts);
        kernels.multiplyListed(starts, run, 0, k, begin, sums + row * run * k * FLOAT, k * FLOAT);
      }
    }
  }
  if (ofDy !== undefined) kernels.transpose(sums, k, depth, to);
  return true;
}

/** dx[n, p·s + i − top, q·s + j − left, c] += Σ over k of dy[n, p, q, k] · filter[i, j, c, k]; also the forward pass of transposed convolutions. */
export function convBackpropInput(stock: tf.KernelFunc): tf.KernelFunc {
  return (call) => {
    const { dy, filter } = call.inputs as { dy: tf.TensorInfo; filter: tf.TensorInfo };
    const { strides, pad, dataFormat, dimRoundingMode, inputShape } = call.attrs as unknown as tf.Conv2DBackpropInputAttrs;
    if (dataFormat === 'NCHW') return stock(call);
    const info = convInfo(inputShape, filter.shape, strides, pad, dimRoundingMode);
    const heap = heapOf(call.backend);
    const out = heap.output(inputShape);
    spread(heap, info, heap.address(dy), heap.address(filter), heap.address(out));
    return out;
  };
}

function spread(heap: Heap, info: Info, dy: number, filter: number, dx: number): void {
  const { inChannels: c, outChannels: k, outHeight: p, outWidth: q, filterHeight, filterWidth, inHeight, inWidth } = info;
  const { kernels, edge } = heap;
  const cellBytes = packedBytes(k, c);
  const cells = filterHeight * filterWidth;
  const set = fewSet(heap, dy, info.batchSize * p * q * k, c, filter, cells * c * k);
  const lists = set === undefined ? undefined : roomForLists(heap, Math.min(set, p * q * k), p * q);
  const packed = heap.scratch('packed', cells * cellBytes);
  for (let cell = 0; cell < cells; cell++) {
    const [from, to] = [filter + cell * c * k * FLOAT, packed + cell * cellBytes];
    if (lists) kernels.transpose(from, c, k, to);
    else kernels.packTransposed(from, k * FLOAT, k, c, to + PANEL_HEAD_BYTES, panelBytes(k));
  }
  const table = heap.scratch('table', p * q * FLOAT);
  const frame = frameOf(info);
  const rowBytes = frame.width * c * FLOAT;
  const imageBytes = inHeight * inWidth * c * FLOAT;
  const image = frame.isBare ? 0 : heap.scratch('image', frame.height * rowBytes);
  for (let n = 0; n < info.batchSize; n++) {
    const into = frame.isBare ? dx + n * imageBytes : image;
    const from = dy + n * p * q * k * FLOAT;
    kernels.fillZero(into, frame.height * rowBytes);
    const [h, w] = [info.strideHeight, info.strideWidth];
    if (lists) {
      kernels.listRows(from, k * FLOAT, p * q, k, c * FLOAT, lists.entries, lists.starts);
      kernels.spreadListed(lists.starts, p, q, packed, cellBytes, filterHeight, filterWidth, into, rowBytes, c, h, w);
    } else kernels.spreadWindows(table, from, p, q, k, packed, cellBytes, filterHeight, filterWidth, into, rowBytes, c, h, w, edge);
    if (frame.isBare) continue;
    const inner = image + info.padInfo.top * rowBytes + info.padInfo.left * c * FLOAT;
    kernels.copyRows(inner, rowBytes, dx + n * imageBytes, inWidth * c * FLOAT, inHeight, inWidth * c * FLOAT);
  }
}

interface Frame {
  readonly height: number;
  readonly width: number;
  /** The image fills it: there is no padding. */
  readonly isBare: boolean;
}

/** The image with its padding, large enough for every window. */
function frameOf({ padInfo, inHeight, inWidth, outHeight, outWidth, strideHeight, strideWidth, filterHeight, filterWidth }: Info): Frame {
  const height = Math.max(padInfo.top + inHeight, (outHeight - 1) * strideHeight + filterHeight);
  const width = Math.max(padInfo.left + inWidth, (outWidth - 1) * strideWidth + filterWidth);
  return { height, width, isBare: height === inHeight && width === inWidth };
}

interface Windows {
  /** Where each begins. */
  readonly table: number;
  readonly count: number;
  readonly rowBytes: number;
  /** What they lie in. */
  readonly base: number;
  readonly floats: number;
}

/** Addresses of the windows of all images, which are copied into a frame of zeros where there is padding. */
function windowsOf(heap: Heap, info: Info, x: number): Windows {
  const { batchSize, inHeight, inWidth, inChannels, outHeight, outWidth } = info;
  const { kernels } = heap;
  const frame = frameOf(info);
  const pixel = inChannels * FLOAT;
  const [rowBytes, inRow] = [frame.width * pixel, inWidth * pixel];
  const frameBytes = frame.height * rowBytes;
  let base = x;
  if (!frame.isBare) {
    base = heap.scratch('image', batchSize * frameBytes);
    kernels.fillZero(base, batchSize * frameBytes);
    const inner = base + info.padInfo.top * rowBytes + info.padInfo.left * pixel;
    for (let n = 0; n < batchSize; n++)
      kernels.copyRows(x + n * inHeight * inRow, inRow, inner + n * frameBytes, rowBytes, inHeight, inRow);
  }
  const count = batchSize * outHeight * outWidth;
  const table = heap.scratch('table', count * FLOAT);
  const [down, right] = [info.strideHeight * rowBytes, info.strideWidth * pixel];
  kernels.tabulateWindows(table, base, batchSize, outHeight, outWidth, frameBytes, down, right);
  return { table, count, rowBytes, base, floats: (batchSize * frameBytes) / FLOAT };
}

function convInfo(
  inputShape: readonly number[],
  filterShape: readonly number[],
  strides: number | [number, number],
  pad: tf.Conv2DBackpropFilterAttrs['pad'],
  dimRoundingMode?: tf.Conv2DBackpropFilterAttrs['dimRoundingMode'],
): Info {
  const [input, filter] = [inputShape, filterShape] as [number[], number[]] as [
    [number, number, number, number],
    [number, number, number, number],
  ];
  return tf.backend_util.computeConv2DInfo(input, filter, strides, 1, pad, dimRoundingMode);
}
