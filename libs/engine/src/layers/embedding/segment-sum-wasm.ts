/** out[segmentIds[i], …] = Σ x[i, …]: the gradient of gather, so of Embedding. Ids outside of the segments are dropped. */
import * as tf from '@tensorflow/tfjs-core';
import { heapOf } from '../../backends/wasm/heap.js';

export const unsortedSegmentSum: tf.KernelConfig = {
  kernelName: tf.UnsortedSegmentSum,
  backendName: 'wasm',
  kernelFunc: ({ inputs, backend, attrs }) => {
    const { x, segmentIds } = inputs as { x: tf.TensorInfo; segmentIds: tf.TensorInfo };
    const { numSegments } = attrs as unknown as tf.UnsortedSegmentSumAttrs;
    const heap = heapOf(backend);
    const inner = x.shape.slice(segmentIds.shape.length);
    const width = tf.util.sizeFromShape(inner);
    const rows = tf.util.sizeFromShape(segmentIds.shape);
    const out = heap.output([numSegments, ...inner]);
    heap.kernels.fillZero(heap.address(out), numSegments * width * 4);
    heap.kernels.addSegments(heap.address(x), heap.address(segmentIds), rows, width, numSegments, heap.address(out));
    return out;
  },
};
