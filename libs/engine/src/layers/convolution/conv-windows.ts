/** The windows of a convolution over images: rows of a matrix that is never written. Shapes are those of tf.js: x [n, h, w, c]; dilation 1. */
import * as tf from '@tensorflow/tfjs-core';
import type { Heap } from '../../backends/wasm/heap.js';

const FLOAT = 4;

export type Info = tf.backend_util.Conv2DInfo;

export interface Frame {
  readonly height: number;
  readonly width: number;
  /** The image fills it: there is no padding. */
  readonly isBare: boolean;
}

/** The image with its padding, large enough for every window. */
export function frameOf({
  padInfo,
  inHeight,
  inWidth,
  outHeight,
  outWidth,
  strideHeight,
  strideWidth,
  filterHeight,
  filterWidth,
}: Info): Frame {
  const height = Math.max(padInfo.top + inHeight, (outHeight - 1) * strideHeight + filterHeight);
  const width = Math.max(padInfo.left + inWidth, (outWidth - 1) * strideWidth + filterWidth);
  return { height, width, isBare: height === inHeight && width === inWidth };
}

export interface Windows {
  /** Where each begins. */
  readonly table: number;
  readonly count: number;
  readonly rowBytes: number;
  /** What they lie in. */
  readonly base: number;
  readonly floats: number;
}

/** Addresses of the windows of all images, which are copied into a frame of zeros where there is padding. */
export function windowsOf(heap: Heap, info: Info, x: number): Windows {
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

export function convInfo(
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
