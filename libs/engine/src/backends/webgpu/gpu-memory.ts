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
    this.fetched = new Map();
    const there = new Map<object, GPUBuffer>();
    for (const { dataId } of tensors) {
      const { values, resource } = this.backend.tensorMap.get(dataId);
      if (values) this.fetched.set(dataId, values as Float32Array);
      else if (resource) there.set(dataId, resource);
    }
    const copy = await this.copyOf([...there.values()]);
    let offset = 0;
    for (const [dataId, { size }] of there) {
      this.fetched.set(dataId, new Float32Array(copy, offset, size / Float32Array.BYTES_PER_ELEMENT));
      offset += size;
    }
  }

  /** One behind the other. The backend's own `read` submits and maps a buffer for each tensor. */
  private async copyOf(buffers: readonly GPUBuffer[]): Promise<ArrayBuffer> {
    const bytes = buffers.reduce((sum, { size }) => sum + size, 0);
    if (bytes === 0) return new ArrayBuffer(0);
    const { backend } = this;
    const staging = backend.bufferManager.acquireBuffer(bytes, GPUBufferUsage.COPY_DST | GPUBufferUsage.MAP_READ);
    backend.ensureCommandEncoderReady();
    backend.endComputePassEncoder();
    let offset = 0;
    for (const buffer of buffers) {
      backend.commandEncoder!.copyBufferToBuffer(buffer, 0, staging, offset, buffer.size);
      offset += buffer.size;
    }
    backend.submitQueue();
    await staging.mapAsync(GPUMapMode.READ);
    const copy = staging.getMappedRange().slice(0);
    staging.unmap();
    backend.bufferManager.releaseBuffer(staging);
    return copy;
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

  /** Over the variable's own values, where nothing else needs those; otherwise beside them, and to the GPU with the first operation that reads them. */
  write(variable: tf.TensorInfo, values: Float32Array): void {
    const { device, tensorMap, commandEncoder } = this.backend;
    const { values: known, resource, refCount } = tensorMap.get(variable.dataId);
    const copy = values.slice(); // Dawn takes no shared memory
    if (resource && !known && refCount === 1 && !commandEncoder) device.queue.writeBuffer(resource, 0, copy);
    else tf.tidy(() => (variable as tf.Variable).assign(tf.tensor(copy, variable.shape)));
  }
}
