/** What of tf.js's webgpu backend (4.22) is used here, and how it is loaded: it registers itself, if `navigator.gpu` is there when it is. */
import { createRequire } from 'node:module';
import type * as tf from '@tensorflow/tfjs-core';

export interface WebgpuBackend {
  readonly device: GPUDevice;
  readonly tensorMap: { get(dataId: object): TensorData };
  /** Buffers of earlier steps are used again. */
  readonly bufferManager: { acquireBuffer(size: number, usage: number): GPUBuffer; releaseBuffer(buffer: GPUBuffer): void };
  /** Where operations are recorded until `submitQueue`; null where none are, until `ensureCommandEncoderReady` is called. */
  readonly commandEncoder: GPUCommandEncoder | null;
  ensureCommandEncoderReady(): void;
  endComputePassEncoder(): void;
  submitQueue(): void;
  /** Queues a program of ours. */
  runWebGPUProgram(
    program: WebgpuProgram,
    inputs: readonly tf.TensorInfo[],
    dtype: tf.DataType,
    uniforms?: readonly { readonly type: 'int32' | 'float32'; readonly data: readonly number[] }[],
  ): tf.TensorInfo;
}

export interface TensorData {
  /** Where JavaScript knows them. */
  readonly values?: tf.backend_util.TypedArray | null;
  /** As long as the values, once an operation has needed them on the GPU. */
  readonly resource?: GPUBuffer | null;
  /** Tensors over these values. */
  readonly refCount: number;
}

/** A compute shader, with the fields that tf.js fills in where it compiles it. */
export interface WebgpuProgram {
  /** Finds a pipeline that was compiled before, together with types and ranks of inputs and output. */
  readonly shaderKey: string;
  readonly outputShape: number[];
  /** In the order of the inputs. In the shader each is an array of f32, or of i32 for int32 and bool. */
  readonly variableNames: readonly string[];
  /** Declarations of the uniforms beyond those of tf.js, as in WGSL: `rows : i32,`. */
  readonly uniforms?: string;
  readonly workgroupSize: readonly [number, number, number];
  /** Which dimensions of the output lie along x. */
  readonly dispatchLayout: { readonly x: readonly number[] };
  /** Workgroups. */
  readonly dispatch: readonly [number, number, number];
  /** Whether `uniforms.size` is to be there, the elements of the output. */
  readonly size: boolean;
  /** WGSL with `fn main(index : i32)`, which writes `result[index]`. */
  getUserCode(): string;
}

/** Once per thread. */
export function loadWebgpuBackend(): void {
  const require = createRequire(import.meta.url);
  require('@tensorflow/tfjs-backend-webgpu');
}
