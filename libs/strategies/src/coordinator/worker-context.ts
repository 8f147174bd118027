/** What a function knows that a ClusterCoordinator has given to a worker. */
import type * as tfc from '@tensorflow/tfjs-core';

export interface WorkerContext {
  /** From 0. */
  readonly workerIndex: number;
  readonly numWorkers: number;
  /** The tf.js of the worker (tfjs-core), on its wasm backend, with the kernels of Paceline. */
  readonly tf: typeof tfc;
  /** What this worker keeps between functions. A worker that is started again begins with nothing. */
  readonly state: Record<string, unknown>;
}

/** What a function gets for a model of the strategy: its parameters, which the servers have. */
export interface ServedParameters {
  /** The present values by name. Tensors are disposed when the function ends. */
  read(): Promise<Record<string, tfc.Tensor>>;
  /**
   * The servers update the parameters at once, with the optimizer of the model, whatever other workers do meanwhile.
   * @param gradients of every trained parameter: means over the examples. Those of frozen layers and of state may be there, and count for nothing
   * @param learningRate that of the optimizer by default
   */
  applyGradients(gradients: Readonly<Record<string, tfc.Tensor>>, learningRate?: number): Promise<void>;
}
