/**
 * Kernels in place of those of tf.js's webgpu backend that will not do. Some add in an order of their own (atomic additions), so that sums differ
 * in the last bits from one run to the next, and engines with equal fingerprints compute equal bits; the others are wrong.
 *
 *     UnsortedSegmentSum   the gradient of gather, so of Embedding: each element of the sum is added up by one invocation, in order of the rows,
 *                          along a chain of the segment's rows that is made before
 *     BatchMatMul          of a long inner dimension it is split among invocations that add atomically: those products take another of its programs
 *     AvgPoolGrad          divides by the cells of a whole window also at a padded border, where the mean was over fewer
 *     AvgPool3DGrad        the same, and MaxPool3DGrad misses the largest value where windows are not as high as wide
 *     Reverse              takes four dimensions at most: the images of a ConvLSTM2D in time have five
 *     Cast                 gives a mask (bool) the type float32 and leaves its bits those of integers, which a transposition then refuses
 *
 * ScatterNd, SparseToDense, Bincount and Dilation2D's gradients have atomics too; no layer that a run may use comes to them.
 */
import * as tf from '@tensorflow/tfjs-core';
import { averagePool3dGradient, maxPool3dGradient } from '../../layers/pooling/pool3d.js';
import type { WebgpuBackend, WebgpuProgram } from './tfjs-backend.js';

/** Raised when a kernel of ours computes other bits than before. */
export const GPU_KERNELS_REVISION = 3;

/** From here on the stock product of matrices may be split; numbers of `webgpu_util.MatMulProgramType` in tf.js 4.22. */
const SPLIT_FROM = 2000;
const CHOSEN_BY_SHAPE = -1;
const PACKED = 3;
const PROGRAM_FLAG = 'WEBGPU_MATMUL_PROGRAM_TYPE';

let isInstalled = false;

/** Once per thread, when the backend has been imported. */
export function installGpuKernels(): void {
  if (isInstalled) return;
  isInstalled = true;
  replaceKernel(tf.UnsortedSegmentSum, () => unsortedSegmentSum);
  replaceKernel(tf.AvgPoolGrad, dividingByCells);
  replaceKernel(tf.AvgPool3DGrad, () => averagePool3dGradient);
  replaceKernel(tf.MaxPool3DGrad, () => maxPool3dGradient);
  replaceKernel(tf.Reverse, reversingAnyRank);
  replaceKernel(tf.Cast, convertingCast);
  // Both call the same products of matrices; a convolution comes to them with windows of one cell, or as large as its input.
  for (const name of [tf.BatchMatMul, tf._FusedMatMul]) replaceKernel(name, withoutSplitting(innerOfProduct));
  for (const name of [tf.Conv2D, tf.FusedConv2D]) replaceKernel(name, withoutSplitting(innerOfConvolution));
}

function replaceKernel(kernelName: string, replacement: (stock: tf.KernelFunc) => tf.KernelFunc): void {
  const stock = tf.getKernel(kernelName, 'webgpu');
  if (!stock) throw new Error(`the webgpu backend has no kernel ${kernelName}: it is not the version that this library was written for`);
  tf.unregisterKernel(kernelName, 'webgpu');
  tf.registerKernel({ ...stock, kernelFunc: replacement(stock.kernelFunc) });
}

type Call = Parameters<tf.KernelFunc>[0];

const innerOfProduct = ({ inputs, attrs }: Call): number => {
  const { a } = inputs as { a: tf.TensorInfo };
  return a.shape.at((attrs as unknown as tf.BatchMatMulAttrs).transposeA ? -2 : -1)!;
};

/** The largest that it can be: the windows' cells times the input's channels. */
const innerOfConvolution = ({ inputs }: Call): number => {
  const [height, width, channels] = (inputs as { filter: tf.TensorInfo }).filter.shape;
  return height! * width! * channels!;
};

const withoutSplitting =
  (innerOf: (call: Call) => number) =>
  (stock: tf.KernelFunc): tf.KernelFunc =>
  (call) => {
    tf.env().set(PROGRAM_FLAG, innerOf(call) >= SPLIT_FROM ? PACKED : CHOSEN_BY_SHAPE);
    return stock(call);
  };

/** out[s, …] = Σ x[i, …] over the rows i with segmentIds[i] = s, in order of the rows. Ids outside of the segments are dropped. */
const unsortedSegmentSum: tf.KernelFunc = ({ inputs, backend, attrs }) => {
  const { x, segmentIds } = inputs as { x: tf.Tensor; segmentIds: tf.Tensor };
  const { numSegments } = attrs as unknown as tf.UnsortedSegmentSumAttrs;
  const inner = x.shape.slice(segmentIds.shape.length);
  const rows = segmentIds.size;
  const width = tf.util.sizeFromShape(inner);
  return tf.tidy(() => {
    const run = (program: WebgpuProgram, on: tf.TensorInfo[], dtype: tf.DataType, ...uniforms: number[]): tf.Tensor => {
      const data = uniforms.map((value) => ({ type: 'int32' as const, data: [value] }));
      return tf.engine().makeTensorFromTensorInfo((backend as WebgpuBackend).runWebGPUProgram(program, on, dtype, data));
    };
    const chain = run(segmentChainProgram(numSegments + rows), [tf.reshape(segmentIds, [rows])], 'int32', rows, numSegments);
    const sum = run(segmentSumProgram(numSegments, width), [tf.reshape(x, [rows, width]), chain], 'float32', rows, numSegments, width);
    return tf.reshape(sum, [numSegments, ...inner]);
  });
};

const WORKGROUP = 64;

/** The gradient of each mean is scaled by what the division by the whole window takes away. */
const dividingByCells =
  (stock: tf.KernelFunc): tf.KernelFunc =>
  (call) => {
    const { dy, input } = call.inputs as { dy: tf.Tensor; input: tf.TensorInfo };
    const { filterSize, strides, pad } = call.attrs as unknown as tf.AvgPoolGradAttrs;
    const shape = input.shape as [number, number, number, number];
    const info = tf.backend_util.computePool2DInfo(shape, filterSize, strides, 1, pad);
    const { outHeight, outWidth, filterHeight, filterWidth, padInfo } = info;
    if (padInfo.type === 'VALID') return stock(call);
    const inside = (out: number, stride: number, before: number, window: number, size: number): number => {
      const from = out * stride - before;
      return Math.min(from + window, size) - Math.max(from, 0);
    };
    const scale = new Float32Array(outHeight * outWidth);
    for (let row = 0; row < outHeight; row++) {
      const rows = inside(row, info.strideHeight, padInfo.top, filterHeight, info.inHeight);
      for (let column = 0; column < outWidth; column++) {
        const columns = inside(column, info.strideWidth, padInfo.left, filterWidth, info.inWidth);
        scale[row * outWidth + column] = (filterHeight * filterWidth) / (rows * columns);
      }
    }
    const scaled = tf.tidy(() => tf.mul(dy, tf.tensor(scale, [1, outHeight, outWidth, 1])));
    const gradient = stock({ ...call, inputs: { input, dy: scaled } });
    scaled.dispose();
    return gradient;
  };

/** Along one dimension of many the others are one in front and one behind. */
const reversingAnyRank =
  (stock: tf.KernelFunc): tf.KernelFunc =>
  (call) => {
    const { x } = call.inputs as { x: tf.Tensor };
    const [axis, ...more] = tf.util.parseAxisParam((call.attrs as unknown as tf.ReverseAttrs).dims, x.shape);
    if (x.rank <= 4 || axis === undefined || more.length > 0) return stock(call);
    const [before, behind] = [x.shape.slice(0, axis), x.shape.slice(axis + 1)].map((part) => tf.util.sizeFromShape(part));
    return tf.tidy(() => tf.reshape(tf.reverse(tf.reshape(x, [before!, x.shape[axis]!, behind!]), 1), x.shape));
  };

/** Bool and int32 lie on the GPU as 32-bit integers. */
const convertingCast =
  (stock: tf.KernelFunc): tf.KernelFunc =>
  (call) => {
    const { x } = call.inputs as { x: tf.TensorInfo };
    const { dtype } = call.attrs as unknown as tf.CastAttrs;
    if (dtype !== 'float32' || (x.dtype !== 'bool' && x.dtype !== 'int32')) return stock(call);
    return (call.backend as WebgpuBackend).runWebGPUProgram(toFloatProgram(x.shape), [x], 'float32');
  };

function toFloatProgram(shape: number[]): WebgpuProgram {
  return {
    ...elementwise(shape),
    variableNames: ['x'],
    shaderKey: 'pacelineToFloat',
    getUserCode: () => `
      fn main(index : i32) {
        if (index < uniforms.size) { result[index] = f32(x[index]); }
      }`,
  };
}

/** One invocation per element of the output. */
const elementwise = (shape: number[]): Pick<WebgpuProgram, 'outputShape' | 'workgroupSize' | 'dispatchLayout' | 'dispatch' | 'size'> => ({
  outputShape: shape,
  workgroupSize: [WORKGROUP, 1, 1],
  dispatchLayout: { x: shape.map((_, i) => i) },
  dispatch: [Math.ceil(tf.util.sizeFromShape(shape) / WORKGROUP), 1, 1],
  size: true,
});

/** [segments + rows]: of each segment its first row, then of each row the next one of its segment; `rows` where there is none. */
function segmentChainProgram(length: number): WebgpuProgram {
  return {
    ...elementwise([length]),
    variableNames: ['segmentIds'],
    uniforms: 'rows : i32, segments : i32,',
    shaderKey: 'pacelineSegmentChain',
    getUserCode: () => `
      fn main(index : i32) {
        if (index < uniforms.size) {
          var row = max(index - uniforms.segments + 1, 0);
          var segment = index;
          if (index >= uniforms.segments) { segment = i32(segmentIds[row - 1]); }
          while (row < uniforms.rows && i32(segmentIds[row]) != segment) { row = row + 1; }
          result[index] = row;
        }
      }`,
  };
}

function segmentSumProgram(segments: number, width: number): WebgpuProgram {
  return {
    ...elementwise([segments, width]),
    variableNames: ['x', 'chain'],
    uniforms: 'rows : i32, segments : i32, width : i32,',
    shaderKey: 'pacelineSegmentSum',
    getUserCode: () => `
      fn main(index : i32) {
        if (index < uniforms.size) {
          let segment = index / uniforms.width;
          let column = index % uniforms.width;
          var sum = 0.0;
          var row = i32(chain[segment]);
          while (row < uniforms.rows) {
            sum = sum + x[row * uniforms.width + column];
            row = i32(chain[uniforms.segments + row]);
          }
          result[index] = sum;
        }
      }`,
  };
}
