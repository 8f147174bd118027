/**
 * Reaches the values behind tensors without tf.js's own copies: `dataSync` of the wasm backend slices the heap, and
 * `Variable.assign` allocates. Parameters are written straight behind the variables, gradients are copied once, from where they lie.
 */
import * as tf from '@tensorflow/tfjs-core';
import type { BackendWasm } from '@tensorflow/tfjs-backend-wasm';
import type { MathBackendCPU } from '@tensorflow/tfjs-backend-cpu';

export interface TensorMemory {
  /** The values of a float32 tensor, to read: where they lie, or a copy where JavaScript cannot reach them. Valid until the next tf.js operation. */
  values(tensor: tf.TensorInfo): Float32Array;
  /** Copies them, once. `out` has their length. */
  copyTo(tensor: tf.TensorInfo, out: Float32Array): void;
  /** Overwrites the values of a variable. */
  write(tensor: tf.TensorInfo, values: Float32Array): void;
  /** Overwrites some of them, from an element on. No operation may read the variable before `settle`. Not on a GPU. */
  writePart?(tensor: tf.TensorInfo, from: number, values: Float32Array): void;
  /** All parts of a variable are written. */
  settle?(tensor: tf.TensorInfo): void;
}

export class WasmMemory implements TensorMemory {
  private readonly backend = tf.backend() as BackendWasm;

  values(tensor: tf.TensorInfo): Float32Array {
    return this.backend.typedArrayFromHeap(tensor) as Float32Array;
  }

  copyTo(tensor: tf.TensorInfo, out: Float32Array): void {
    out.set(this.values(tensor));
  }

  write(tensor: tf.TensorInfo, values: Float32Array): void {
    this.writePart(tensor, 0, values);
    this.settle(tensor);
  }

  writePart(tensor: tf.TensorInfo, from: number, values: Float32Array): void {
    this.values(tensor).set(values, from);
  }

  /**
   * XNNPACK keeps operators with packed copies of the weights, by tensor id: after a write they would go on computing with
   * the old values. Telling the C++ side that the tensor was disposed drops them; the memory stays ours, so it is
   * registered again at once.
   */
  settle(tensor: tf.TensorInfo): void {
    const { id, memoryOffset } = this.backend.dataIdMap.get(tensor.dataId);
    const { tfjs } = this.backend.wasm;
    tfjs.disposeData(id);
    tfjs.registerTensor(id, tf.util.sizeFromShape(tensor.shape), memoryOffset);
  }
}

export class CpuMemory implements TensorMemory {
  private readonly backend = tf.backend() as MathBackendCPU;

  values(tensor: tf.TensorInfo): Float32Array {
    return this.backend.data.get(tensor.dataId).values as Float32Array;
  }

  copyTo(tensor: tf.TensorInfo, out: Float32Array): void {
    out.set(this.values(tensor));
  }

  write(tensor: tf.TensorInfo, values: Float32Array): void {
    this.writePart(tensor, 0, values);
  }

  writePart(tensor: tf.TensorInfo, from: number, values: Float32Array): void {
    this.values(tensor).set(values, from);
  }

  /** The JavaScript backend reads the values anew in every operation. */
  settle(): void {}
}
