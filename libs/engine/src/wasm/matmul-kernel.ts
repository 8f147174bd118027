/**
 * Matrix products with transposed operands. The stock kernel has XNNPACK only for a·b; with transposeA or transposeB it
 * falls to a plain loop: 12.7 ms instead of 0.9 for xᵀ·d of 784 × 64 × 256 (one core). Transposing first costs 0.05 ms.
 */
import * as tf from '@tensorflow/tfjs-core';
import type { BackendWasm } from '@tensorflow/tfjs-backend-wasm';

/** The same kernel, called with plain operands. */
export function explicitTranspose(stock: tf.KernelFunc): tf.KernelFunc {
  return (call) => {
    const { transposeA, transposeB } = call.attrs as unknown as tf.BatchMatMulAttrs;
    if (!transposeA && !transposeB) return stock(call);
    const backend = call.backend as BackendWasm;
    const { a, b } = call.inputs as { a: tf.TensorInfo; b: tf.TensorInfo };
    const plainA = transposeA ? transposed(a, backend) : a;
    const plainB = transposeB ? transposed(b, backend) : b;
    try {
      return stock({
        ...call,
        inputs: { ...call.inputs, a: plainA, b: plainB },
        attrs: { ...call.attrs, transposeA: false, transposeB: false },
      });
    } finally {
      if (plainA !== a) backend.disposeData(plainA.dataId);
      if (plainB !== b) backend.disposeData(plainB.dataId);
    }
  };
}

/** Swaps the last two dimensions. */
function transposed(x: tf.TensorInfo, backend: BackendWasm): tf.TensorInfo {
  const rank = x.shape.length;
  const perm = [...x.shape.keys()];
  [perm[rank - 2], perm[rank - 1]] = [rank - 1, rank - 2];
  const kernel = tf.getKernel(tf.Transpose, 'wasm')!;
  return kernel.kernelFunc({ inputs: { x }, backend, attrs: { perm } }) as tf.TensorInfo;
}
