/**
 * Values in and out of tensors on a GPU. They are read asynchronously: what is wanted is named first and fetched together (`fetch`), and looked
 * at afterwards, so that everything which copies values is the same for all engines.
 */
import * as tf from '@tensorflow/tfjs-core';
import type { TensorMemory } from '../tensor-memory.js';
import type { WebgpuBackend } from './tfjs-backend.js';

export class GpuMemory implements TensorMemory {
  /** By tf.js's data id. */
  private fetched = new Map<object, Float32Array>();

  constructor(private readonly backend: WebgpuBackend) {}

  /** Waits for what computes the tensors (float32) and reads them; what was fetched before is forgotten. */
  async fetch(tensors: readonly tf.TensorInfo[]): Promise<void> {
    const values = await Promise.all(tensors.map(({ dataId }) => this.backend.read(dataId)));
    this.fetched = new Map(tensors.map(({ dataId }, i) => [dataId, values[i] as Float32Array]));
  }

  /** @throws Error when it was not among what was fetched last */
  values(tensor: tf.TensorInfo): Float32Array {
    const values = this.fetched.get(tensor.dataId);
    if (!values) throw new Error('the values of a tensor on the GPU were not fetched');
    return values;
  }

  copyTo(tensor: tf.TensorInfo, out: Float32Array): void {
    out.set(this.values(tensor));
  }

  /** The values are copied here, and go to the GPU with the first operation that reads the variable. */
  write(variable: tf.TensorInfo, values: Float32Array): void {
    tf.tidy(() => (variable as tf.Variable).assign(tf.tensor(values.slice(), variable.shape)));
  }
}
