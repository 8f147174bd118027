/**
 * Max pooling on TensorFlow's CPU that says where each window has its largest value, and its gradient: one pass that adds dy there. TensorFlow's
 * MaxPoolGrad does both in one operation at half the speed; the bits are equal. MaxPoolWithArgmax is slow with the indices that
 * MaxPoolGradWithArgmax wants, so they are made with 32 bits and cast.
 */
import * as tf from '@tensorflow/tfjs-core';
import type { OperationOutput, TensorflowBackend } from '../../backends/tensorflow/load-package.js';

interface PoolWindow {
  readonly size: readonly [number, number];
  readonly strides: readonly [number, number];
  readonly padding: 'VALID' | 'SAME';
}

export function replaceMaxPoolGradient(): void {
  const stock = tf.getKernel(tf.MaxPoolGrad, 'tensorflow')!;
  tf.unregisterKernel(tf.MaxPoolGrad, 'tensorflow');
  tf.registerKernel({ ...stock, kernelFunc: maxPoolGradient });
}

const maxPoolGradient: tf.KernelFunc = ({ inputs, backend, attrs }) => {
  const { dy, input } = inputs as { dy: tf.TensorInfo; input: tf.TensorInfo };
  const { filterSize, strides, pad, dimRoundingMode } = attrs as unknown as tf.MaxPoolGradAttrs;
  const shape = input.shape as [number, number, number, number];
  const info = tf.backend_util.computePool2DInfo(shape, filterSize, strides, 1, pad, dimRoundingMode);
  const padding = info.padInfo.type;
  if (padding !== 'VALID' && padding !== 'SAME')
    throw new Error(`TensorFlow's pooling knows the padding valid and same, this is ${padding.toLowerCase()}`);
  const native = backend as TensorflowBackend;
  const window: PoolWindow = {
    size: [info.filterHeight, info.filterWidth],
    strides: [info.strideHeight, info.strideWidth],
    padding,
  };
  const [x, gradient] = native.getInputTensorIds([input, dy]) as [number, number];
  const [values, places] = poolWithPlaces(native, window, x);
  try {
    return native.createOutputTensor(unpool(native, window, x, gradient, places.id));
  } finally {
    for (const { id } of [values, places]) native.binding.deleteTensor(id);
  }
};

/** The largest value of each window, and where in its image the first one is (32 bits). */
function poolWithPlaces(native: TensorflowBackend, window: PoolWindow, x: number): readonly [OperationOutput, OperationOutput] {
  const { binding } = native;
  const attributes = [...attributesOf(native, window), type(native, 'Targmax', binding.TF_INT32)];
  return binding.executeOp('MaxPoolWithArgmax', attributes, [x], 2) as readonly [OperationOutput, OperationOutput];
}

/** dy where `places` says, 0 elsewhere; of x only the shape is looked at. */
function unpool(native: TensorflowBackend, window: PoolWindow, x: number, dy: number, places: number): OperationOutput {
  const { binding } = native;
  const cast = [type(native, 'SrcT', binding.TF_INT32), type(native, 'DstT', binding.TF_INT64)];
  const truncate = { name: 'Truncate', type: binding.TF_ATTR_BOOL, value: false };
  const wide = binding.executeOp('Cast', [...cast, truncate], [places], 1)[0]!.id;
  try {
    const attributes = [...attributesOf(native, window), type(native, 'Targmax', binding.TF_INT64)];
    return binding.executeOp('MaxPoolGradWithArgmax', attributes, [x, dy, wide], 1)[0]!;
  } finally {
    binding.deleteTensor(wide);
  }
}

function attributesOf(native: TensorflowBackend, { size, strides, padding }: PoolWindow): readonly object[] {
  const { binding } = native;
  return [
    type(native, 'T', binding.TF_FLOAT),
    { name: 'ksize', type: binding.TF_ATTR_INT, value: [1, ...size, 1] },
    { name: 'strides', type: binding.TF_ATTR_INT, value: [1, ...strides, 1] },
    { name: 'padding', type: binding.TF_ATTR_STRING, value: padding },
    { name: 'include_batch_in_index', type: binding.TF_ATTR_BOOL, value: false },
  ];
}

const type = ({ binding }: TensorflowBackend, name: string, value: number): object => ({ name, type: binding.TF_ATTR_TYPE, value });
