/**
 * A convolution with the max pooling behind it on TensorFlow's CPU. The bias and relu come after the pooling, which is the same because both grow with
 * what they are given: they, and on the way back their gradients, pass over a quarter of the values (windows of 2 × 2). Where the largest
 * values are is found once, going forward.
 */
import * as tf from '@tensorflow/tfjs-core';
import type { ConvPoolAttrs, ConvPoolInputs } from '../wasm/conv-pool-kernels.js';
import { reluGradient, sumRows } from '../wasm/passes.js';
import { poolWithPlaces, unpool, type PoolWindow } from './max-pooling.js';
import { convolve, finish, nativeOf, type Inputs } from './operations.js';

const CONV_POOL = 'PacelineConvMaxPoolOnTensorflow';
const UNPOOL = 'PacelineMaxUnpool';

/** maxPool(activation(conv(x, filter) + bias)), NHWC. While training the tape keeps where the first largest value of each window was. */
export function convMaxPool(inputs: ConvPoolInputs, attrs: ConvPoolAttrs, training: boolean): tf.Tensor {
  const [y] = tf.engine().runKernel(CONV_POOL, { ...inputs }, { ...attrs, training }) as unknown as [tf.Tensor];
  return y;
}

const windowOf = (attrs: object): PoolWindow => {
  const { poolSize, poolStrides } = attrs as ConvPoolAttrs;
  return { size: poolSize, strides: poolStrides, padding: 'VALID' };
};

const forward: tf.KernelFunc = (call) => {
  const native = nativeOf(call);
  const conv = convolve(call);
  const { poolSize, poolStrides } = call.attrs as unknown as ConvPoolAttrs;
  if (!call.attrs!['training']) {
    const attrs = { filterSize: poolSize, strides: poolStrides, pad: 'valid' };
    const pooled = tf.getKernel(tf.MaxPool, 'tensorflow')!.kernelFunc({ inputs: { x: conv }, backend: native, attrs: attrs as never });
    native.disposeData(conv.dataId);
    return [finish(call, pooled as tf.TensorInfo)];
  }
  const [pooled, places] = poolWithPlaces(native, windowOf(call.attrs!), native.getInputTensorIds([conv])[0]!);
  native.disposeData(conv.dataId);
  return [finish(call, native.createOutputTensor(pooled)), native.createOutputTensor(places)];
};

export const convPoolGradient: tf.GradConfig = {
  kernelName: CONV_POOL,
  inputsToSave: ['x', 'filter'],
  outputsToSave: [true, true],
  gradFunc: (dys, saved, attrs) => {
    const [x, filter, y, places] = saved as [tf.Tensor4D, tf.Tensor4D, tf.Tensor, tf.Tensor];
    const { strides, pad, activation } = attrs as unknown as ConvPoolAttrs;
    const [dy] = dys as [tf.Tensor];
    const dPooled = activation === 'relu' ? reluGradient(dy, y) : dy;
    const shared = { strides, pad, dataFormat: 'NHWC' };
    const { outShape } = tf.backend_util.computeConv2DInfo(x.shape, filter.shape, strides, 1, pad);
    const dz: tf.Tensor = tf.engine().runKernel(UNPOOL, { dy: dPooled, places }, { ...attrs, outShape });
    return {
      x: () => tf.engine().runKernel(tf.Conv2DBackpropInput, { dy: dz, filter }, { ...shared, inputShape: x.shape }),
      filter: () => tf.engine().runKernel(tf.Conv2DBackpropFilter, { x, dy: dz }, { ...shared, filterShape: filter.shape }),
      bias: () => sumRows(dPooled),
    };
  },
};

const toPlaces: tf.KernelFunc = (call) => {
  const native = nativeOf(call);
  const { dy, places } = call.inputs as Inputs;
  const [gradient, at] = native.getInputTensorIds([dy!, places!]) as [number, number];
  const like = unwritten(native, call.attrs!['outShape'] as number[]);
  try {
    return native.createOutputTensor(unpool(native, windowOf(call.attrs!), like, gradient, at));
  } finally {
    native.binding.deleteTensor(like);
  }
};

/** A tensor of which only the shape matters. */
function unwritten({ binding }: ReturnType<typeof nativeOf>, shape: readonly number[]): number {
  const ofShape = binding.createTensor([shape.length], binding.TF_INT32, Int32Array.from(shape));
  const attrs = [
    { name: 'dtype', type: binding.TF_ATTR_TYPE, value: binding.TF_FLOAT },
    { name: 'init', type: binding.TF_ATTR_BOOL, value: false },
  ];
  try {
    return binding.executeOp('Empty', attrs, [ofShape], 1)[0]!.id;
  } finally {
    binding.deleteTensor(ofShape);
  }
}

export const convPoolKernels: Readonly<Record<string, tf.KernelFunc>> = { [CONV_POOL]: forward, [UNPOOL]: toPlaces };
