/** Kernels that `@tensorflow/tfjs-node` lacks, or has in a form that only the whole of tf.js can call. */
import * as tf from '@tensorflow/tfjs-core';
import { nativeOf } from './operations.js';

export const missingKernels: Readonly<Record<string, tf.KernelFunc>> = {
  /** Used by CategoryEncoding. */
  [tf.DenseBincount]: (call) => {
    const { x, weights } = call.inputs as { x: tf.TensorInfo; weights: tf.TensorInfo };
    const { size, binaryOutput = false } = call.attrs as unknown as tf.DenseBincountAttrs;
    const native = nativeOf(call);
    const { TF_ATTR_TYPE, TF_ATTR_BOOL, TF_INT32, TF_FLOAT } = native.binding;
    const attrs = [
      { name: 'Tidx', type: TF_ATTR_TYPE, value: TF_INT32 },
      { name: 'T', type: TF_ATTR_TYPE, value: TF_FLOAT },
      { name: 'binary_output', type: TF_ATTR_BOOL, value: binaryOutput },
    ];
    const categories = tf.scalar(size, 'int32');
    const counts = native.executeSingleOutput('DenseBincount', attrs, [x, categories, weights]);
    categories.dispose();
    return counts;
  },
  /** The package's own one calls methods of tensors that tf.js has only when all of it is loaded. */
  [tf.Prelu]: ({ inputs }) => {
    const { x, alpha } = inputs as unknown as { x: tf.Tensor; alpha: tf.Tensor };
    return tf.tidy(() => tf.add(tf.relu(x), tf.mul(alpha, tf.minimum(x, 0))));
  },
};
