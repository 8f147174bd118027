/**
 * The dense and convolutional layers of ours on TensorFlow's own operations: what stock tf.js makes of relu's gradient are six passes over
 * the activations (compare, select, fill, cast, multiply…), here it is one, and bias gradients are one as well.
 */
import * as tf from '@tensorflow/tfjs-core';
import { CONV_KERNEL, convGradient } from '../../layers/convolution/conv-wasm.js';
import { DENSE_KERNEL, denseGradient } from '../../layers/dense/dense-wasm.js';
import { RELU_GRADIENT, SUM_ROWS } from '../wasm/passes.js';
import { convPoolGradient, convPoolKernels } from '../../layers/pooling/conv-pool-tensorflow.js';
import { replaceMaxPoolGradient } from '../../layers/pooling/max-pool-tensorflow.js';
import { missingKernels } from './missing-kernels.js';
import { convolve, execute, finish, nativeOf, type Call, type Inputs } from './operations.js';

/** Raised when these kernels compute different bits than before. */
export const TENSORFLOW_KERNELS_REVISION = 4;

const flag = (call: Call, name: string, value: boolean): object => ({
  name,
  value,
  type: nativeOf(call).binding.TF_ATTR_BOOL,
});

const KERNELS: Readonly<Record<string, tf.KernelFunc>> = {
  [RELU_GRADIENT]: (call) => {
    const { dy, y } = call.inputs as Inputs;
    return execute(call, 'ReluGrad', [dy!, y!]);
  },
  [SUM_ROWS]: (call) => execute(call, 'BiasAddGrad', [(call.inputs as Inputs)['x']!]),
  [DENSE_KERNEL]: (call) => {
    const { x, w } = call.inputs as Inputs;
    return finish(call, execute(call, 'MatMul', [x!, w!], [flag(call, 'transpose_a', false), flag(call, 'transpose_b', false)]));
  },
  [CONV_KERNEL]: (call) => finish(call, convolve(call)),
  ...convPoolKernels,
};

/** Once per thread. */
export function installFusedKernels(isOnGpu: boolean): void {
  if (tf.getKernel(DENSE_KERNEL, 'tensorflow')) return;
  if (!isOnGpu) replaceMaxPoolGradient();
  for (const [kernelName, kernelFunc] of Object.entries(KERNELS)) tf.registerKernel({ kernelName, backendName: 'tensorflow', kernelFunc });
  for (const [kernelName, kernelFunc] of Object.entries(missingKernels)) {
    if (tf.getKernel(kernelName, 'tensorflow')) tf.unregisterKernel(kernelName, 'tensorflow');
    tf.registerKernel({ kernelName, backendName: 'tensorflow', kernelFunc });
  }
  // A thread that has started wasm too has them already.
  for (const gradient of [denseGradient, convGradient, convPoolGradient])
    if (!tf.getGradient(gradient.kernelName)) tf.registerGradient(gradient);
}
