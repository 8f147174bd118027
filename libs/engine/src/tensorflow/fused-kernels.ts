/**
 * The dense and convolutional layers of ours on TensorFlow's own operations: what stock tf.js makes of relu's gradient are six passes over
 * the activations (compare, select, fill, cast, multiply…), here it is one, and bias gradients are one as well.
 */
import * as tf from '@tensorflow/tfjs-core';
import { CONV_KERNEL, convGradient } from '../wasm/conv-kernels.js';
import { DENSE_KERNEL, denseGradient } from '../wasm/dense-kernel.js';
import { RELU_GRADIENT, SUM_ROWS } from '../wasm/passes.js';
import type { TensorflowBackend } from './load-package.js';
import { replaceMaxPoolGradient } from './max-pool-gradient.js';

/** Raised when these kernels compute different bits than before. */
export const TENSORFLOW_KERNELS_REVISION = 1;

type Call = Parameters<tf.KernelFunc>[0];
type Inputs = Readonly<Record<string, tf.TensorInfo>>;

/** One operation of TensorFlow on float32. */
function execute({ backend }: Call, name: string, inputs: readonly tf.TensorInfo[], attrs: readonly object[] = []): tf.TensorInfo {
  const { binding } = backend as TensorflowBackend;
  const dtype = { name: 'T', type: binding.TF_ATTR_TYPE, value: binding.TF_FLOAT };
  return (backend as TensorflowBackend).executeSingleOutput(name, [dtype, ...attrs], inputs);
}

/** The product of a layer with its bias and its relu; what lies between is given back. */
function finish(call: Call, product: tf.TensorInfo): tf.TensorInfo {
  const { bias } = call.inputs as Inputs;
  let out = product;
  const follow = (name: string, inputs: readonly tf.TensorInfo[]): void => {
    const next = execute(call, name, inputs);
    (call.backend as TensorflowBackend).disposeData(out.dataId);
    out = next;
  };
  if (bias) follow('BiasAdd', [out, bias]);
  if (call.attrs!['activation'] === 'relu') follow('Relu', [out]);
  return out;
}

const flag = ({ backend }: Call, name: string, value: boolean): object => ({
  ...{ name, value },
  type: (backend as TensorflowBackend).binding.TF_ATTR_BOOL,
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
  [CONV_KERNEL]: (call) => {
    const { x, filter } = call.inputs as Inputs;
    const attrs = { ...call.attrs, dataFormat: 'NHWC', dilations: 1 };
    const conv = tf.getKernel(tf.Conv2D, 'tensorflow')!;
    return finish(call, conv.kernelFunc({ inputs: { x: x!, filter: filter! }, backend: call.backend, attrs }) as tf.TensorInfo);
  },
};

/** Once per thread. */
export function installFusedKernels(isOnGpu: boolean): void {
  if (tf.getKernel(DENSE_KERNEL, 'tensorflow')) return;
  if (!isOnGpu) replaceMaxPoolGradient();
  for (const [kernelName, kernelFunc] of Object.entries(KERNELS)) tf.registerKernel({ kernelName, backendName: 'tensorflow', kernelFunc });
  // A thread that has started wasm too has them already.
  for (const gradient of [denseGradient, convGradient]) if (!tf.getGradient(gradient.kernelName)) tf.registerGradient(gradient);
}
