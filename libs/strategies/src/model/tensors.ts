/** Values of the user's tensors, on whatever backend tf.js runs there. */
import * as tfc from '@tensorflow/tfjs-core';
import { BackendError } from '../errors.js';

/** The wasm backend can show its heap; others copy. */
interface HeapBackend {
  typedArrayFromHeap?(tensor: tfc.TensorInfo): ArrayLike<number>;
}

/** The values, to read at once: valid until the next operation of tf.js. @throws BackendError */
export function valuesOf(tensor: tfc.Tensor): ArrayLike<number> {
  const backend = tfc.backend() as HeapBackend;
  if (typeof backend.typedArrayFromHeap === 'function' && tensor.dtype !== 'bool') return backend.typedArrayFromHeap(tensor);
  try {
    return tensor.dataSync<'float32'>();
  } catch (cause) {
    throw new BackendError(tfc.getBackend(), { cause });
  }
}
