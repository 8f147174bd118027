/** Values of the user's tensors, on whatever backend tf.js runs there. */
import * as tfc from '@tensorflow/tfjs-core';
import { BackendError } from '../errors.js';

/** The wasm backend can show its heap; others copy. */
interface HeapBackend {
  typedArrayFromHeap?(tensor: tfc.TensorInfo): ArrayLike<number>;
}

/** The values, to be kept. @throws BackendError */
export function keptValuesOf(tensor: tfc.Tensor): ArrayLike<number> {
  const values = valuesOf(tensor);
  return isOnHeap(tfc.backend() as HeapBackend) ? Float32Array.from(values) : values;
}

const isOnHeap = (backend: HeapBackend): boolean => typeof backend.typedArrayFromHeap === 'function';

/** The values, to read at once: valid until the next operation of tf.js. @throws BackendError */
export function valuesOf(tensor: tfc.Tensor): ArrayLike<number> {
  const backend = tfc.backend() as HeapBackend;
  if (isOnHeap(backend) && tensor.dtype !== 'bool') return backend.typedArrayFromHeap!(tensor);
  try {
    return tensor.dataSync<'float32'>();
  } catch (cause) {
    throw new BackendError(tfc.getBackend(), { cause });
  }
}
