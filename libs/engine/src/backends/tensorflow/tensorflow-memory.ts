/** Values behind tensors of the tensorflow backend, which lie in TensorFlow's own buffers. */
import * as tf from '@tensorflow/tfjs-core';
import type { TensorMemory } from '../tensor-memory.js';
import type { TensorflowBackend } from './load-package.js';

export class TensorflowMemory implements TensorMemory {
  private readonly backend = tf.backend() as TensorflowBackend;
  /** What was written, per variable: TensorFlow may compute from this very memory. */
  private readonly written = new WeakMap<object, Float32Array>();

  values(tensor: tf.TensorInfo): Float32Array {
    const { id, values } = this.backend.tensorMap.get(tensor.dataId);
    return values ?? this.backend.binding.tensorDataSync(id);
  }

  copyTo(tensor: tf.TensorInfo, out: Float32Array): void {
    const { id, values } = this.backend.tensorMap.get(tensor.dataId);
    const { binding } = this.backend;
    if (values) out.set(values);
    else if (binding.readTensorInto) binding.readTensorInto(id, out);
    else out.set(binding.tensorDataSync(id));
  }

  write(tensor: tf.TensorInfo, values: Float32Array): void {
    const info = this.backend.tensorMap.get(tensor.dataId);
    if (info.id >= 0) this.backend.binding.deleteTensor(info.id);
    let own = this.written.get(tensor.dataId);
    if (!own) this.written.set(tensor.dataId, (own = new Float32Array(values.length)));
    own.set(values);
    info.id = this.backend.binding.createTensor(info.shape, info.dtype, own);
    info.values = null;
  }
}
