/**
 * A convolution with the max pooling behind it on TensorFlow's CPU. The convolution is TensorFlow's; pooling, bias and relu are one pass of the addon
 * over what it gives, and the way back is one pass that writes its gradient. The bias and relu come after the pooling, which is the same because both
 * grow with what they are given.
 */
import * as tf from '@tensorflow/tfjs-core';
import { convMaxPoolBy, type ConvPoolAttrs } from './conv-pool-wasm.js';
import { convInfo } from '../convolution/conv-windows.js';
import { EMPTY, reluGradient, sumRows } from '../../backends/wasm/passes.js';
import type { TensorflowBinding } from '../../backends/tensorflow/load-package.js';
import { convolve, nativeOf, type Inputs } from '../../backends/tensorflow/operations.js';

const CONV_POOL = 'PacelineConvMaxPoolOnTensorflow';
const UNPOOL = 'PacelineMaxUnpool';

/** Which passes of the addon are used: on a CPU, where Paceline built it. They have one thread; where TensorFlow may use more, its own pooling does. */
export const poolingOf = (binding: TensorflowBinding, env: NodeJS.ProcessEnv = process.env): number | undefined =>
  !binding.isUsingGpuDevice() && env['TF_NUM_INTRAOP_THREADS'] === '1' ? binding.poolingRevision : undefined;

export const convMaxPool = convMaxPoolBy(CONV_POOL);

const windowOf = ({ poolSize, poolStrides }: ConvPoolAttrs): readonly number[] => [...poolSize, ...poolStrides];

const forward: tf.KernelFunc = (call) => {
  const native = nativeOf(call);
  const { bias, places } = call.inputs as Inputs;
  const attrs = call.attrs as unknown as ConvPoolAttrs;
  const conv = convolve(call);
  try {
    const [x, b] = native.getInputTensorIds(bias ? [conv, bias] : [conv]) as [number, number?];
    const [y, at] = native.binding.maxPool!(x, b ?? -1, places !== undefined, windowOf(attrs), attrs.activation === 'relu');
    if (places) native.tensorMap.get(places.dataId).id = at!.id;
    return native.createOutputTensor(y!);
  } finally {
    native.disposeData(conv.dataId);
  }
};

export const convPoolGradient: tf.GradConfig = {
  kernelName: CONV_POOL,
  inputsToSave: ['x', 'filter', 'places'],
  outputsToSave: [true],
  gradFunc: (dy, saved, attrs) => {
    const [x, filter, places, y] = saved as [tf.Tensor4D, tf.Tensor4D, tf.Tensor, tf.Tensor];
    const { strides, pad, activation } = attrs as unknown as ConvPoolAttrs;
    const dPooled = activation === 'relu' ? reluGradient(dy as tf.Tensor, y) : (dy as tf.Tensor);
    const shared = { strides, pad, dataFormat: 'NHWC' };
    const { outHeight, outWidth } = convInfo(x.shape, filter.shape, strides, pad);
    const dz: tf.Tensor = tf.engine().runKernel(UNPOOL, { dy: dPooled, places }, { ...attrs, image: [outHeight, outWidth] });
    return {
      x: () => tf.engine().runKernel(tf.Conv2DBackpropInput, { dy: dz, filter }, { ...shared, inputShape: x.shape }),
      filter: () => tf.engine().runKernel(tf.Conv2DBackpropFilter, { x, dy: dz }, { ...shared, filterShape: filter.shape }),
      bias: () => sumRows(dPooled),
    };
  },
};

const unpool: tf.KernelFunc = (call) => {
  const native = nativeOf(call);
  const { dy, places } = call.inputs as Inputs;
  const [gradient, at] = native.getInputTensorIds([dy!, places!]) as [number, number];
  const attrs = call.attrs as unknown as ConvPoolAttrs & { readonly image: readonly number[] };
  return native.createOutputTensor(native.binding.maxUnpool!(gradient, at, attrs.image, windowOf(attrs)));
};

/** TensorFlow has no tensor of it yet, so it cannot be read: the kernel that it is handed to gives it one. */
const empty: tf.KernelFunc = (call) => {
  const native = nativeOf(call);
  const { shape, dtype } = call.attrs as unknown as { readonly shape: number[]; readonly dtype: 'float32' | 'bool' };
  return native.createOutputTensor({ id: -1, shape, dtype: dtype === 'bool' ? native.binding.TF_BOOL : native.binding.TF_FLOAT });
};

export const convPoolKernels: Readonly<Record<string, tf.KernelFunc>> = { [CONV_POOL]: forward, [UNPOOL]: unpool, [EMPTY]: empty };
