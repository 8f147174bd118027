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
    this.writePart(tensor, 0, values);
    this.settle(tensor);
  }

  writePart(tensor: tf.TensorInfo, from: number, values: Float32Array): void {
    this.own(tensor).set(values, from);
  }

  settle(tensor: tf.TensorInfo): void {
    const info = this.backend.tensorMap.get(tensor.dataId);
    if (info.id >= 0) this.backend.binding.deleteTensor(info.id);
    info.id = this.backend.binding.createTensor(info.shape, info.dtype, this.own(tensor));
    info.values = null;
  }

  private own({ dataId, shape }: tf.TensorInfo): Float32Array {
    let own = this.written.get(dataId);
    if (!own) this.written.set(dataId, (own = new Float32Array(tf.util.sizeFromShape(shape))));
    return own;
  }
}
