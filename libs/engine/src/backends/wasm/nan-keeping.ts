/**
 * Stock kernels that lose NaN, because they compare: clips, pooling, and the larger or smaller of two. A model that has diverged would go on with a loss
 * that is a number. Where the operand is finite, which is one look at it, they compute what they did; where it is not, NaN is put back.
 */
import * as tf from '@tensorflow/tfjs-core';
import { windowOf } from '../../layers/pooling/pool-wasm.js';
import { heapOf } from './heap.js';

type Call = Parameters<tf.KernelFunc>[0];
/** Puts NaN where it belongs in y, from the values of the operand. */
type PutBack = (y: tf.TensorInfo, operand: tf.TensorInfo, call: Call, stock: tf.KernelFunc) => void;

const keeping =
  (operand: 'x' | 'b', putBack: PutBack) =>
  (stock: tf.KernelFunc): tf.KernelFunc =>
  (call) => {
    const x = (call.inputs as Readonly<Record<string, tf.TensorInfo>>)[operand]!;
    const y = stock(call) as tf.TensorInfo;
    if (x.dtype !== 'float32') return y;
    const heap = heapOf(call.backend);
    if (heap.kernels.isFinite(heap.address(x), tf.util.sizeFromShape(x.shape)) === 0) putBack(y, x, call, stock);
    return y;
  };

const oneByOne: PutBack = (y, x, { backend }) => {
  const [to, from] = [heapOf(backend).floats(y), heapOf(backend).floats(x)];
  for (let i = 0; i < to.length; i++) if (Number.isNaN(from[i])) to[i] = Number.NaN;
};

/** The first of two operands keeps its NaN. */
const swapped: PutBack = (y, _, call, stock) => {
  const { a, b } = call.inputs as { a: tf.TensorInfo; b: tf.TensorInfo };
  const other = stock({ ...call, inputs: { a: b, b: a } }) as tf.TensorInfo;
  oneByOne(y, other, call, stock);
  heapOf(call.backend).dispose(other);
};

/** `part` of a cell is NaN, or adds up with others to NaN, where the window's is. */
const pooling =
  (part: (cell: number) => number): PutBack =>
  (y, x, call) => {
    const [to, from] = [heapOf(call.backend).floats(y), heapOf(call.backend).floats(x)];
    const [images, h, w, c, p, q, filterH, filterW, strideH, strideW, top, left] = windowOf(call, x.shape);
    for (let at = 0; at < images * p * q * c; at++) {
      const [channel, column, row, image] = [at % c, Math.floor(at / c) % q, Math.floor(at / (c * q)) % p, Math.floor(at / (c * q * p))];
      const [fromRow, fromColumn] = [row * strideH - top, column * strideW - left];
      let sum = 0;
      for (let i = Math.max(fromRow, 0); i < Math.min(fromRow + filterH, h); i++)
        for (let j = Math.max(fromColumn, 0); j < Math.min(fromColumn + filterW, w); j++)
          sum += part(from[((image * h + i) * w + j) * c + channel]!);
      if (Number.isNaN(sum)) to[at] = Number.NaN;
    }
  };

/** By the kernel. */
export const nanKeeping: Readonly<Record<string, (stock: tf.KernelFunc) => tf.KernelFunc>> = {
  [tf.ClipByValue]: keeping('x', oneByOne),
  [tf.Relu6]: keeping('x', oneByOne),
  [tf.MaxPool]: keeping(
    'x',
    pooling((cell) => (Number.isNaN(cell) ? cell : 0)),
  ),
  [tf.AvgPool]: keeping(
    'x',
    pooling((cell) => cell),
  ),
  [tf.Maximum]: keeping('b', swapped),
  [tf.Minimum]: keeping('b', swapped),
};
