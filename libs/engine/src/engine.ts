/**
 * The engine of a compute thread: tf.js behind one interface, whatever the backend. A replica step is pure (docs/protocol.md §7.1):
 * (parameters, state, batches, key) → (Σ gradients, state', count, Σ metrics), the same bits for the same inputs in any
 * process, whatever was computed before.
 */
import type { Layout } from '@paceline/learning';
import type { BackendName, ModelDescription, RowFormat, RunSpec } from '@paceline/spec';
import type { Kept } from './leaks/leak-trace.js';
import type { LossPart } from './model/ends.js';

/** Examples, one buffer per field of the row format, row-major: class indices too are float32. Longer buffers are read only so far. */
export interface Batch {
  readonly inputs: readonly Float32Array[];
  readonly targets: readonly Float32Array[];
  /** A factor of the loss per example; read exactly when the format is weighted. */
  readonly weights?: Float32Array | undefined;
  readonly count: number;
  /** In a step: where the values of each output of the model are copied to, as training computed them. Engine webgpu leaves them as they are. */
  readonly outputs?: readonly Float32Array[] | undefined;
}

/** A flat vector in one piece, or in consecutive pieces where one memory does not hold it. Engine webgpu takes pieces in shared memory alone. */
export type FlatVector = Float32Array | readonly Float32Array[];

export interface StepRequest {
  readonly round: number;
  readonly replica: number;
  /** Micro-batches, computed in this order. */
  readonly batches: readonly Batch[];
  /**
   * Flat in the order of the layout, overwritten whole: the gradient of the SUM over the examples (regularisation counts
   * once per example) in the trainable section, state' × count in the state section.
   */
  readonly out: FlatVector;
  /** Called when the gradients of a micro-batch are computed, and are about to be taken. Engine webgpu does not call it. */
  readonly onComputed?: (() => void) | undefined;
}

export interface Sums {
  /** Examples. */
  readonly count: number;
  /** The loss over the examples, then the sums of the metrics (libs/learning/src/metrics), in the order of `metricNames`. */
  readonly metricSums: number[];
}

export interface EngineDevice {
  readonly name: string;
  /** CPU or GPU. */
  readonly type: string;
  /** 0 where it is not known. */
  readonly memoryBytes: number;
}

export interface Engine {
  readonly name: BackendName;
  /** Engine, version, instruction set, threads, flags. Equal fingerprints compute equal bits. */
  readonly fingerprint: string;
  readonly devices: readonly EngineDevice[];
  /** The name of each sum: `loss`, then the metrics. */
  readonly metricNames: readonly string[];
  /** Takes over parameters and state from a flat vector in the order of the layout, which may be a view over shared memory. */
  load(flat: Float32Array): void;
  /**
   * Takes over elements from `offset` of the flat vector on, and leaves the others as they are; steps and evaluations see them all. Left out where parameters
   * can only be loaded as a whole (engine webgpu). @throws RangeError unless the layout has them
   */
  loadPart?(offset: number, values: Float32Array): void;
  /** One replica's part of a round. @throws RangeError for batches or outputs that do not fit the model */
  step(request: StepRequest): Sums;
  /** Scores a batch with the loaded parameters and state; nothing random, nothing changes. */
  evaluate(batch: Batch): Sums;
  /**
   * What the model answers for rows, with the loaded parameters and state: row-major, to an array for each output. Nothing random, nothing changes. Engine webgpu
   * does not have it.
   * @throws RangeError for inputs that are too short
   */
  predict?(rows: Pick<Batch, 'inputs' | 'count'>, outputs: readonly Float32Array[]): void;
  /** A step that also says what it leaves behind, and where that was made: `kept`, most bytes first. The same bits, somewhat slower. */
  trace(request: StepRequest): { readonly result: Sums; readonly kept: readonly Kept[] };
  /** Counts over all engines of this thread: tensors, their bytes, and the backend's values, those without a tensor included. */
  memory(): { readonly tensors: number; readonly buffers: number; readonly bytes: number };
  dispose(): void;
}

/** The part of a run spec that decides what a step computes. */
export type TrainedPart = Pick<RunSpec, 'model' | 'engine' | 'seed'> &
  LossPart &
  Partial<Pick<RunSpec, 'freeze'>> & {
    /** All is as in tf.js, also where that is not what Keras does: masked steps count in the loss, and masks and axes do what they do there. */
    readonly asTfjs?: boolean;
  };

export interface BackendOptions {
  /** Folder of a tfjs-node package with its binary, for `tensorflow`. */
  readonly tensorflowPackage?: string | undefined;
  /** Folder of the npm package `webgpu`, for `webgpu`. */
  readonly webgpuPackage?: string | undefined;
}

export interface EngineOptions extends BackendOptions {
  readonly spec: TrainedPart & Partial<Pick<RunSpec, 'stepDeadlineMs'>>;
  /** What computes. When it is left out: what the spec names, and wasm where that leaves it open. */
  readonly backend?: BackendName | undefined;
  readonly description: ModelDescription;
  /** The format of the examples that the engine gets. */
  readonly format: RowFormat;
  readonly layout: Layout;
}
