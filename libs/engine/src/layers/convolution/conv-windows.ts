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

/** Images as the windows see them. */
export interface FramedImages {
  readonly base: number;
  readonly rowBytes: number;
  readonly imageBytes: number;
  /** From one window to the next below and beside it. */
  readonly down: number;
  readonly right: number;
}

/** The images, copied into a frame of zeros where there is padding. */
export function framedImages(heap: Heap, info: Info, x: number): FramedImages {
  const { batchSize, inHeight, inWidth, inChannels } = info;
  const { kernels } = heap;
  const frame = frameOf(info);
  const pixel = inChannels * FLOAT;
  const [rowBytes, inRow] = [frame.width * pixel, inWidth * pixel];
  const imageBytes = frame.height * rowBytes;
  const [down, right] = [info.strideHeight * rowBytes, info.strideWidth * pixel];
  if (frame.isBare) return { base: x, rowBytes, imageBytes, down, right };
  const base = heap.scratch('image', batchSize * imageBytes);
  kernels.fillZero(base, batchSize * imageBytes);
  const inner = base + info.padInfo.top * rowBytes + info.padInfo.left * pixel;
  for (let n = 0; n < batchSize; n++) kernels.copyRows(x + n * inHeight * inRow, inRow, inner + n * imageBytes, rowBytes, inHeight, inRow);
  return { base, rowBytes, imageBytes, down, right };
}

/** Addresses of the windows of all images. */
export function windowsOf(heap: Heap, info: Info, x: number): Windows {
  const { batchSize, outHeight, outWidth } = info;
  const { base, rowBytes, imageBytes, down, right } = framedImages(heap, info, x);
  const count = batchSize * outHeight * outWidth;
  const table = heap.scratch('table', count * FLOAT);
  heap.kernels.tabulateWindows(table, base, batchSize, outHeight, outWidth, imageBytes, down, right);
  return { table, count, rowBytes, base, floats: (batchSize * imageBytes) / FLOAT };
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
