/** Values of the user's tensors, on whatever backend tf.js runs there. */
import * as tfc from '@tensorflow/tfjs-core';
import { BackendError } from '../errors.js';

/** The wasm backend can show its heap; others copy. */
interface HeapBackend {
  typedArrayFromHeap?(tensor: tfc.TensorInfo): ArrayLike<number>;
}

export const isOnHeap = (): boolean => typeof (tfc.backend() as HeapBackend).typedArrayFromHeap === 'function';

/** The values, to read at once: where they lie on the heap of the wasm backend, they are valid until the next operation of tf.js. @throws BackendError */
export function valuesOf(tensor: tfc.Tensor): ArrayLike<number> {
  if (isOnHeap() && tensor.dtype !== 'bool') return (tfc.backend() as HeapBackend).typedArrayFromHeap!(tensor);
  try {
    return tensor.dataSync<'float32'>();
  } catch (cause) {
    throw new BackendError(tfc.getBackend(), { cause });
  }
}
