/** Gradients of depthwise convolutions; dilated ones, which tf.js cannot differentiate either, go to the JavaScript backend. */
import * as tf from '@tensorflow/tfjs-core';
import { MathBackendCPU } from '@tensorflow/tfjs-backend-cpu';
import type { BackendWasm } from '@tensorflow/tfjs-backend-wasm';
import type { DepthwiseWindow } from '@paceline/kernels';
import { heapOf, type Heap } from '../../backends/wasm/heap.js';

export const depthwiseKernels = (): readonly tf.KernelConfig[] => [
  withoutDilation(tf.DepthwiseConv2dNativeBackpropFilter, (heap, { x, dy }, window, shape) => {
    const out = heap.output(shape);
    heap.kernels.fillZero(heap.address(out), tf.util.sizeFromShape(shape) * 4);
    heap.kernels.depthwiseGradients(heap.address(x!), 0, heap.address(dy!), 0, heap.address(out), ...window);
    return out;
  }),
  withoutDilation(tf.DepthwiseConv2dNativeBackpropInput, (heap, { filter, dy }, window, shape) => {
    const out = heap.output(shape);
    heap.kernels.fillZero(heap.address(out), tf.util.sizeFromShape(shape) * 4);
    heap.kernels.depthwiseGradients(0, heap.address(filter!), heap.address(dy!), heap.address(out), 0, ...window);
    return out;
  }),
];

type Inputs = Readonly<Record<string, tf.TensorInfo>>;
type Compute = (heap: Heap, inputs: Inputs, window: DepthwiseWindow, shape: number[]) => tf.TensorInfo;
interface DepthwiseAttrs {
  readonly strides: [number, number] | number;
  readonly dilations?: [number, number] | number;
  readonly pad: tf.DepthwiseConv2dNativeBackpropFilterAttrs['pad'];
  readonly dimRoundingMode?: 'floor' | 'round' | 'ceil';
  readonly filterShape?: [number, number, number, number];
  readonly inputShape?: [number, number, number, number];
}

function withoutDilation(kernelName: string, compute: Compute): tf.KernelConfig {
  const dilated = borrowed(kernelName);
  return {
    ...dilated,
    kernelFunc: (call) => {
      const attrs = call.attrs as unknown as DepthwiseAttrs;
      const inputs = call.inputs as Inputs;
      const inputShape = attrs.inputShape ?? (inputs['x']!.shape as [number, number, number, number]);
      const filterShape = attrs.filterShape ?? (inputs['filter']!.shape as [number, number, number, number]);
      const { strides, dilations = 1, pad, dimRoundingMode } = attrs;
      const info = tf.backend_util.computeConv2DInfo(inputShape, filterShape, strides, dilations, pad, dimRoundingMode, true);
      if (info.dilationHeight !== 1 || info.dilationWidth !== 1) return dilated.kernelFunc(call);
      return compute(heapOf(call.backend), inputs, windowOf(info), attrs.inputShape ?? attrs.filterShape!);
    },
  };
}

const windowOf = (info: tf.backend_util.Conv2DInfo): DepthwiseWindow => [
  info.batchSize,
  info.inHeight,
  info.inWidth,
  info.inChannels,
  info.outChannels / info.inChannels,
  info.outHeight,
  info.outWidth,
  info.filterHeight,
  info.filterWidth,
  info.strideHeight,
  info.strideWidth,
  info.padInfo.top,
  info.padInfo.left,
];

/** A kernel of the JavaScript backend that works on copies of the operands. */
function borrowed(kernelName: string): tf.KernelConfig {
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
