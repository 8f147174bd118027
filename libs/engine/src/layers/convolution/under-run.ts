/**
 * Windows that end before their image does. With padding `same` that happens where a stride is longer than the window: two of four pixels, then nothing
 * of the last two. tf.js 4.22 gets it wrong: XNNPACK computes zeros then, and 3-D kernels shift the windows. What no window reaches is cut off
 * first: of the rest `same` pads nothing there.
 */
import * as tf from '@tensorflow/tfjs-core';
import { heapOf } from '../../backends/wasm/heap.js';

/** How much of a dimension the windows of padding `same` reach, counted from its beginning. */
export const reachOf = (size: number, stride: number, window: number): number =>
  Math.min(size, (Math.ceil(size / stride) - 1) * stride + window);

/** For the kernels of 2-D convolutions on wasm that are XNNPACK's, channels last. Without such windows they compute what they did. */
export const cutToReach =
  (stock: tf.KernelFunc): tf.KernelFunc =>
  (call) => {
    const { x, filter } = call.inputs as { x: tf.TensorInfo; filter: tf.TensorInfo };
    const { strides, pad, dataFormat } = call.attrs as unknown as Pick<tf.Conv2DAttrs, 'strides' | 'pad' | 'dataFormat'>;
    if (pad !== 'same' || dataFormat === 'NCHW') return stock(call);
    const [n, inHeight, inWidth, channels] = x.shape as [number, number, number, number];
    const [down, right] = typeof strides === 'number' ? [strides, strides] : strides;
    const [height, width] = [reachOf(inHeight, down, filter.shape[0]!), reachOf(inWidth, right, filter.shape[1]!)];
    if (height === inHeight && width === inWidth) return stock(call);
    const heap = heapOf(call.backend);
    const cut = heap.output([n, height, width, channels]);
    const [from, to, inRow, row] = [heap.address(x), heap.address(cut), inWidth * channels * 4, width * channels * 4];
    for (let i = 0; i < n; i++) heap.kernels.copyRows(from + i * inHeight * inRow, inRow, to + i * height * row, row, height, row);
    const y = stock({ ...call, inputs: { ...call.inputs, x: cut } });
    heap.dispose(cut);
    return y;
  };
