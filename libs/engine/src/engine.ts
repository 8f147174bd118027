/**
 * The engine of a compute thread: tf.js behind one interface, whatever the backend. A replica step is pure (ROUNDS §2):
 * (parameters, state, batches, key) → (Σ gradients, state', count, Σ metrics), the same bits for the same inputs in any
 * process, whatever was computed before.
 */
import type { Layout } from '@paceline/learning';
import { BACKENDS, type BackendName, type ModelDescription, type RunSpec } from '@paceline/spec';
import * as tf from '@tensorflow/tfjs-core';
import { startBackend, type BackendOptions, type EngineDevice, type StartedBackend } from './backend.js';
import { Housekeeping } from './housekeeping.js';
import { traceKept, type Kept } from './leaks/leak-trace.js';
import { differentiableLoss, evaluateLoss, type Scored } from './loss.js';
import { TrainingModel, type TrainedPart } from './training-model.js';
import { VariableStore } from './variable-store.js';
import { startThreadEngine } from './webgpu/thread-engine.js';

/** Rows of the dataset: `x` count × example floats, row-major; `y` count class indices. Longer buffers are read only so far. */
export interface Batch {
  readonly x: Float32Array;
  readonly y: Int32Array;
  readonly count: number;
}

export interface StepRequest {
  readonly round: number;
  readonly replica: number;
  /** Micro-batches, computed in this order. */
  readonly batches: readonly Batch[];
  /**
   * Flat in the order of the layout, overwritten whole: the gradient of the SUM over the examples (regularisation counts
   * once per example) in the trainable section, state' × count in the state section.
   */
  readonly out: Float32Array;
}

export interface Sums {
  /** Examples. */
  readonly count: number;
  /** Sums over the examples, in the order of `metricNames`. */
  readonly metricSums: number[];
}

export interface Engine {
  readonly name: BackendName;
  /** Engine, version, instruction set, threads, flags. Equal fingerprints compute equal bits. */
  readonly fingerprint: string;
  readonly devices: readonly EngineDevice[];
  readonly metricNames: readonly string[];
  /** Takes over parameters and state from a flat vector in the order of the layout, which may be a view over shared memory. */
  load(flat: Float32Array): void;
  /** One replica's part of a round. @throws RangeError for batches or outputs that do not fit the model */
  step(request: StepRequest): Sums;
  /** Scores a batch with the loaded parameters and state; nothing random, nothing changes. */
  evaluate(batch: Batch): Sums;
  /** A step that also says what it leaves behind, and where that was made: `kept`, most bytes first. The same bits, somewhat slower. */
  trace(request: StepRequest): { readonly result: Sums; readonly kept: readonly Kept[] };
  /** Of all engines of this thread: tensors, their bytes, and the backend's values, with those that no tensor names. */
  memory(): { readonly tensors: number; readonly buffers: number; readonly bytes: number };
  dispose(): void;
}

export interface EngineOptions extends BackendOptions {
  readonly spec: TrainedPart & Partial<Pick<RunSpec, 'stepDeadlineMs'>>;
  /** What computes. When it is left out: what the spec names, and wasm where that leaves it open. */
  readonly backend?: BackendName | undefined;
  readonly description: ModelDescription;
  readonly layout: Layout;
}

/**
 * Builds the run's model on its backend. Parameters are zero until `load`.
 * @throws ModelError when the model cannot be built or differs from the description (another release made it)
 * @throws EngineUnavailableError
 */
export async function createEngine(options: EngineOptions): Promise<Engine> {
  const { spec, description, layout } = options;
  const name = options.backend ?? BACKENDS.find((backend) => backend === spec.engine) ?? 'wasm';
  if (name === 'webgpu') return startThreadEngine(options);
  const backend = await startBackend(name, options);
  return new TfjsEngine(spec, layout, backend, TrainingModel.build(spec, description, backend));
}

class TfjsEngine implements Engine {
  readonly name: BackendName;
  readonly fingerprint: string;
  readonly devices: readonly EngineDevice[];
  readonly metricNames: readonly string[];
  private readonly housekeeping = new Housekeeping();
  private readonly variables: VariableStore;

  constructor(
    private readonly spec: EngineOptions['spec'],
    layout: Layout,
    private readonly backend: StartedBackend,
    private readonly model: TrainingModel,
  ) {
    this.name = backend.name;
    this.fingerprint = backend.fingerprint;
    this.devices = backend.devices;
    this.metricNames = model.metricNames;
    this.variables = new VariableStore(layout, model.weights, backend.memory);
  }

  load(flat: Float32Array): void {
    this.backend.activate();
    this.variables.load(flat);
  }

  step({ round, replica, batches, out }: StepRequest): Sums {
    const { model, variables } = this;
    this.backend.activate();
    variables.checkLength(out);
    variables.restoreState();
    const total = { count: 0, lossSum: 0, correct: 0 };
    let isFirst = true;
    for (const [microBatch, batch] of batches.entries()) {
      model.checkBatch(batch);
      if (batch.count === 0) continue;
      const key = { seed: this.spec.seed, round, replica, microBatch };
      const scored = model.randomness.during(key, () => tf.tidy(() => this.microBatch(batch, out, isFirst)));
      isFirst = false;
      total.count += batch.count;
      total.lossSum += scored.lossSum;
      total.correct += scored.correct;
    }
    if (total.count === 0) out.fill(0);
    else variables.writeState(out, total.count);
    this.housekeeping.afterStep();
    return model.sums(total.count, total);
  }

  evaluate(batch: Batch): Sums {
    const { model } = this;
    this.backend.activate();
    model.checkBatch(batch);
    if (batch.count === 0) return model.sums(0, { lossSum: 0, correct: 0 });
    this.variables.restoreState();
    const scored = tf.tidy(() => {
      const { lossSum, correct } = evaluateLoss(this.spec.loss, this.backend.memory, model.outputs(batch), batch.y);
      return { lossSum: lossSum + this.regularisation(batch.count), correct };
    });
    return model.sums(batch.count, scored);
  }

  trace(request: StepRequest): { result: Sums; kept: Kept[] } {
    this.backend.activate();
    return traceKept(this.model.layers, () => this.step(request));
  }

  memory(): { tensors: number; buffers: number; bytes: number } {
    const { numTensors, numBytes } = tf.memory();
    return { tensors: numTensors, buffers: tf.backend().numDataIds(), bytes: numBytes };
  }

  dispose(): void {
    this.backend.activate();
    this.model.dispose();
  }

  /** Gradients of one micro-batch, copied or added into `out` from where tf.js left them. */
  private microBatch(batch: Batch, out: Float32Array, isFirst: boolean): Scored {
    const { model, variables, backend } = this;
    let scored: Scored | undefined;
    const grads = model.gradients(batch, variables.trainable, (outputs) =>
      differentiableLoss(this.spec.loss, backend.memory, outputs, batch.y, (result) => (scored = result)),
    );
    variables.takeGradients(grads, out, isFirst);
    return { lossSum: scored!.lossSum + this.regularisation(batch.count), correct: scored!.correct };
  }

  /** The penalty on the weights, counted once per example like the gradient's. */
  private regularisation(count: number): number {
    return tf.tidy(() => this.model.penalties().reduce((sum, penalty) => sum + this.backend.memory.values(penalty)[0]! * count, 0));
  }
}
