/** Operations of TensorFlow on float32, as the kernels of ours are made of them. */
import * as tf from '@tensorflow/tfjs-core';
import type { TensorflowBackend } from './load-package.js';

export type Call = Parameters<tf.KernelFunc>[0];
export type Inputs = Readonly<Record<string, tf.TensorInfo>>;

export const nativeOf = ({ backend }: Call): TensorflowBackend => backend as TensorflowBackend;

export function execute(call: Call, name: string, inputs: readonly tf.TensorInfo[], attrs: readonly object[] = []): tf.TensorInfo {
  const native = nativeOf(call);
  const dtype = { name: 'T', type: native.binding.TF_ATTR_TYPE, value: native.binding.TF_FLOAT };
  return native.executeSingleOutput(name, [dtype, ...attrs], inputs);
}

/** What a layer computes with its bias and its relu; what lies between is given back. */
export function finish(call: Call, product: tf.TensorInfo): tf.TensorInfo {
  const { bias } = call.inputs as Inputs;
  let out = product;
  const follow = (name: string, inputs: readonly tf.TensorInfo[]): void => {
    const next = execute(call, name, inputs);
    nativeOf(call).disposeData(out.dataId);
    out = next;
  };
  if (bias) follow('BiasAdd', [out, bias]);
  if (call.attrs!['activation'] === 'relu') follow('Relu', [out]);
  return out;
}

/** Without bias and relu. */
export function convolve(call: Call): tf.TensorInfo {
  const { x, filter } = call.inputs as Inputs;
  const attrs = { ...call.attrs, dataFormat: 'NHWC', dilations: 1 };
  const conv = tf.getKernel(tf.Conv2D, 'tensorflow')!;
  return conv.kernelFunc({ inputs: { x: x!, filter: filter! }, backend: call.backend, attrs }) as tf.TensorInfo;
}
