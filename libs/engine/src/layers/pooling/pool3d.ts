/**
 * 3-D pooling from the 2-D kernels: each slice by itself, then along the depth, where a whole slice is one pixel. In tf.js
 * 4.22 max pooling on wasm is wrong where a window has no positive number, its gradient on webgpu where windows are not as high
 * as wide, and the gradient of average pooling at padded borders on both. Of equal values in a window the first gets the
 * gradient, as in 2-D; tf.js's JavaScript backend takes the last. The cells of a padded window are a box, so its average is
 * that of the averages of its slices. Forward the stock kernel computes averages, right but for windows that end before the volume does (under-run.ts).
 */
import * as tf from '@tensorflow/tfjs-core';
import { reachOf } from '../convolution/under-run.js';

type Shape4 = [number, number, number, number];
type Pair = [number, number];
type Pad = 'valid' | 'same';

interface Pool {
  readonly size: Pair;
  readonly strides: Pair;
  readonly pad: Pad;
}

interface Pools {
  readonly slices: Shape4;
  readonly plane: Pool;
  readonly depth: Pool;
}

type Call = Parameters<tf.KernelFunc>[0];

export function maxPool3d({ inputs, attrs }: Call): tf.TensorInfo {
  const { x } = inputs as unknown as { x: tf.Tensor5D };
  const { slices, plane, depth } = poolsOf(x, attrs!);
  return tf.tidy(() => {
    const planes = maxPool(tf.reshape<tf.Rank.R4>(x, slices), plane);
    const out = maxPool(alongDepth(planes, x), depth);
    return tf.reshape(out, [x.shape[0], out.shape[1], planes.shape[1], planes.shape[2], x.shape[4]]);
  });
}

export function maxPool3dGradient({ inputs, attrs }: Call): tf.TensorInfo {
  const { dy, input } = inputs as unknown as { dy: tf.Tensor5D; input: tf.Tensor5D };
  const { slices, plane, depth } = poolsOf(input, attrs!);
  return tf.tidy(() => {
    const images = tf.reshape<tf.Rank.R4>(input, slices);
    const planes = maxPool(images, plane);
    const columns = alongDepth(planes, input);
    const dColumns = poolGradient(tf.MaxPoolGrad, tf.reshape(dy, [input.shape[0], dy.shape[1], 1, columns.shape[3]]), columns, depth);
    return tf.reshape(poolGradient(tf.MaxPoolGrad, tf.reshape(dColumns, planes.shape), images, plane), input.shape);
  });
}

export const averagePool3d =
  (stock: tf.KernelFunc): tf.KernelFunc =>
  (call) => {
    const { x } = call.inputs as unknown as { x: tf.Tensor5D };
    const [n, d, h, w, c] = x.shape;
    const { plane, depth } = poolsOf(x, call.attrs!);
    const strides = [depth.strides[0], ...plane.strides];
    const reach = [depth.size[0], ...plane.size].map((size, i) => reachOf([d, h, w][i]!, strides[i]!, size));
    if (plane.pad !== 'same' || x.size === n * c * reach.reduce((a, b) => a * b)) return stock(call);
    const cut = tf.slice(x, [0, 0, 0, 0, 0], [n, ...reach, c]);
    const y = stock({ ...call, inputs: { x: cut } });
    cut.dispose();
    return y;
  };

export function averagePool3dGradient({ inputs, attrs }: Call): tf.TensorInfo {
  const { dy, input } = inputs as unknown as { dy: tf.Tensor5D; input: tf.Tensor5D };
  const { slices, plane, depth } = poolsOf(input, attrs!);
  const [n, outDepth, p, q, c] = dy.shape;
  const image = p * q * c;
  return tf.tidy(() => {
    // The kernels use only the shape of the pooled tensor.
    const columns = tf.zeros<tf.Rank.R4>([n, input.shape[1], 1, image]);
    const dColumns = poolGradient(tf.AvgPoolGrad, tf.reshape(dy, [n, outDepth, 1, image]), columns, depth);
    const images = tf.reshape<tf.Rank.R4>(input, slices);
    return tf.reshape(poolGradient(tf.AvgPoolGrad, tf.reshape(dColumns, [slices[0], p, q, c]), images, plane), input.shape);
  });
}

function poolsOf({ shape: [n, d, h, w, c] }: tf.Tensor5D, attrs: tf.NamedAttrMap): Pools {
  const { filterSize, strides, pad } = attrs as unknown as { filterSize: number | number[]; strides: number | number[]; pad: Pad };
  const three = (value: number | number[]): number[] => (typeof value === 'number' ? [value, value, value] : value);
  const [[size, ...sizes], [stride, ...rest]] = [three(filterSize), three(strides)];
  return {
    slices: [n * d, h, w, c],
    plane: { size: sizes as Pair, strides: rest as Pair, pad },
    depth: { size: [size!, 1], strides: [stride!, 1], pad },
  };
}

/** [n · d, p, q, c] → [n, d, 1, p · q · c]. */
const alongDepth = (planes: tf.Tensor4D, { shape: [n, d] }: tf.Tensor5D): tf.Tensor4D =>
  tf.reshape(planes, [n, d, 1, planes.size / (n * d)]);

/** The stock kernel refuses windows of one pixel. */
function maxPool(x: tf.Tensor4D, { size, strides, pad }: Pool): tf.Tensor4D {
  if (size[0] * size[1] > 1) return tf.maxPool(x, size, strides, pad);
  return strides[0] * strides[1] === 1 ? x : (tf.stridedSlice(x, [0, 0, 0, 0], x.shape, [1, ...strides, 1]) as tf.Tensor4D);
}

function poolGradient(name: string, dy: tf.Tensor, input: tf.Tensor4D, { size, strides, pad }: Pool): tf.Tensor {
  return tf.engine().runKernel(name, { dy, input, output: dy }, { filterSize: size, strides, pad });
}
