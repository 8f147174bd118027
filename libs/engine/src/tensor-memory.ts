/**
 * Reaches the values behind tensors without tf.js's own copies: `dataSync` of the wasm backend slices the heap, and
 * `Variable.assign` allocates. Parameters are written straight behind the variables, gradients are read where they lie.
 */
import * as tf from '@tensorflow/tfjs-core';
import type { BackendWasm } from '@tensorflow/tfjs-backend-wasm';
import type { MathBackendCPU } from '@tensorflow/tfjs-backend-cpu';

export interface TensorMemory {
  /** The live values of a float32 tensor, for reading and writing. Valid until the next tf.js operation. */
  values(tensor: tf.TensorInfo): Float32Array;
  /** Must follow every write to the values of a tensor that operations have used already. */
  overwritten(tensor: tf.TensorInfo): void;
}

export class WasmMemory implements TensorMemory {
  private readonly backend = tf.backend() as BackendWasm;

  values(tensor: tf.TensorInfo): Float32Array {
    return this.backend.typedArrayFromHeap(tensor) as Float32Array;
  }

  /**
   * XNNPACK keeps operators with packed copies of the weights, by tensor id: after a write they would go on computing with
   * the old values. Telling the C++ side that the tensor was disposed drops them; the memory stays ours, so it is
   * registered again at once.
   */
  overwritten(tensor: tf.TensorInfo): void {
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

  overwritten(): void {
    // The JavaScript backend reads the values anew in every operation.
  }
}
