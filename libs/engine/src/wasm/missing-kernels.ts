/** Kernels that gradients need and the stock wasm backend does not have, in JavaScript on its heap: right, not fast. */
import * as tf from '@tensorflow/tfjs-core';
import { MathBackendCPU } from '@tensorflow/tfjs-backend-cpu';
import type { BackendWasm } from '@tensorflow/tfjs-backend-wasm';

/** out[segmentIds[i], …] = Σ x[i, …]: the gradient of gather, so of Embedding. Ids outside of the segments are dropped. */
export const unsortedSegmentSum: tf.KernelConfig = {
  kernelName: tf.UnsortedSegmentSum,
  backendName: 'wasm',
  kernelFunc: (call) => {
    const backend = call.backend as BackendWasm;
    const { x, segmentIds } = call.inputs as { x: tf.TensorInfo; segmentIds: tf.TensorInfo };
    const { numSegments } = call.attrs as unknown as tf.UnsortedSegmentSumAttrs;
    const inner = x.shape.slice(segmentIds.shape.length);
    const out = backend.makeOutput([numSegments, ...inner], 'float32');
    const sums = (backend.typedArrayFromHeap(out) as Float32Array).fill(0);
    const values = backend.typedArrayFromHeap(x) as Float32Array;
    const ids = backend.typedArrayFromHeap(segmentIds) as Int32Array;
    const width = tf.util.sizeFromShape(inner);
    for (let i = 0; i < ids.length; i++) {
      const id = ids[i]!;
      if (id < 0 || id >= numSegments) continue;
      for (let j = 0; j < width; j++) sums[id * width + j] = sums[id * width + j]! + values[i * width + j]!;
    }
    return out;
  },
};

/** A kernel of the JavaScript backend that works on copies of the operands. */
export function borrowed(kernelName: string): tf.KernelConfig {
  const lender = tf.getKernel(kernelName, 'cpu');
  if (!lender) throw new Error(`the cpu backend has no kernel ${kernelName}: it is not the version that this library was written for`);
  return {
    kernelName,
    backendName: 'wasm',
    kernelFunc: (call) => {
      const backend = call.backend as BackendWasm;
      // A backend of its own for each call: with it goes everything that the kernel allocates.
      const cpu = new MathBackendCPU();
      const inputs = Object.fromEntries(
        Object.entries(call.inputs as Record<string, tf.TensorInfo>).map(([name, { shape, dtype, dataId }]) => {
          const values = backend.typedArrayFromHeap({ shape, dtype, dataId }).slice();
          return [name, cpu.makeTensorInfo(shape, dtype, values as tf.backend_util.TypedArray)];
        }),
      );
      const result = lender.kernelFunc({ ...call, inputs, backend: cpu }) as tf.TensorInfo;
      return backend.makeOutput(result.shape, result.dtype, undefined, cpu.data.get(result.dataId).values);
    },
  };
}
