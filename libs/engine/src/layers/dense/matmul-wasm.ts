/**
 * Matrix products of tensors. The stock kernel has XNNPACK only for a·b and packs b anew for every new tensor; with transposeA or transposeB it
 * falls to a plain loop: 12.7 ms for xᵀ·d of 784 × 64 × 256, where ours takes 0.8 (one core).
 */
import * as tf from '@tensorflow/tfjs-core';
import { heapOf } from '../../backends/wasm/heap.js';
import { multiply } from '../../backends/wasm/products.js';

const FLOAT = 4;

/** BatchMatMul: a [..., m, k] · b [..., k, n]. Batches that are broadcast in more than one dimension go to the stock kernel. */
export function batchMatMul(stock: tf.KernelFunc): tf.KernelFunc {
  return (call) => {
    const { a, b } = call.inputs as { a: tf.TensorInfo; b: tf.TensorInfo };
    const { transposeA = false, transposeB = false } = call.attrs as unknown as tf.BatchMatMulAttrs;
    const [batchA, batchB] = [a, b].map(({ shape }) => tf.util.sizeFromShape(shape.slice(0, -2))) as [number, number];
    const isSame = tf.util.arraysEqual(a.shape.slice(0, -2), b.shape.slice(0, -2));
    if (a.dtype !== 'float32' || b.dtype !== 'float32' || !(isSame || batchA === 1 || batchB === 1)) return stock(call);
    const [m, k] = transposeA ? swapped(a) : lastTwo(a);
    const [, n] = transposeB ? swapped(b) : lastTwo(b);
    const heap = heapOf(call.backend);
    const out = heap.output([...(batchA >= batchB ? a : b).shape.slice(0, -2), m, n]);
    const [atA, atB, atOut] = [a, b, out].map((tensor) => heap.address(tensor)) as [number, number, number];
    for (let i = 0; i < Math.max(batchA, batchB); i++) {
      multiply(heap, {
        a: atA + (batchA === 1 ? 0 : i * m * k * FLOAT),
        b: atB + (batchB === 1 ? 0 : i * k * n * FLOAT),
        c: atOut + i * m * n * FLOAT,
        transposeA,
        transposeB,
        m,
        n,
        k,
      });
    }
    return out;
  };
}

const lastTwo = ({ shape }: tf.TensorInfo): [number, number] => [shape.at(-2)!, shape.at(-1)!];
const swapped = ({ shape }: tf.TensorInfo): [number, number] => [shape.at(-1)!, shape.at(-2)!];

/** The stock fused kernel called with plain operands: nothing that trains uses it, evaluation may. */
export function explicitTranspose(stock: tf.KernelFunc): tf.KernelFunc {
  return (call) => {
    const { transposeA, transposeB } = call.attrs as unknown as tf._FusedMatMulAttrs;
    if (!transposeA && !transposeB) return stock(call);
    const heap = heapOf(call.backend);
    const { a, b } = call.inputs as { a: tf.TensorInfo; b: tf.TensorInfo };
    const plainA = transposeA ? transposed(a, call.backend) : a;
    const plainB = transposeB ? transposed(b, call.backend) : b;
    try {
      const attrs = { ...call.attrs, transposeA: false, transposeB: false };
      return stock({ ...call, inputs: { ...call.inputs, a: plainA, b: plainB }, attrs });
    } finally {
      if (plainA !== a) heap.dispose(plainA);
      if (plainB !== b) heap.dispose(plainB);
    }
  };
}

/** Swaps the last two dimensions. */
function transposed(x: tf.TensorInfo, backend: unknown): tf.TensorInfo {
  const rank = x.shape.length;
  const perm = [...x.shape.keys()];
  [perm[rank - 2], perm[rank - 1]] = [rank - 1, rank - 2];
  const kernel = tf.getKernel(tf.Transpose, 'wasm')!;
  return kernel.kernelFunc({ inputs: { x }, backend: backend as object, attrs: { perm } }) as tf.TensorInfo;
}
