/**
 * The engine of a compute thread: tf.js behind one interface, whatever the backend. A replica step is pure (docs/protocol.md §7.1):
 * (parameters, state, batches, key) → (Σ gradients, state', count, Σ metrics), the same bits for the same inputs in any
 * process, whatever was computed before.
 */
import type { Layout } from '@paceline/learning';
import { BACKENDS, type BackendName, type ModelDescription, type RowFormat, type RunSpec } from '@paceline/spec';
import * as tf from '@tensorflow/tfjs-core';
import { startBackend, type BackendOptions, type EngineDevice, type StartedBackend } from './backend.js';
import { Housekeeping } from './housekeeping.js';
import { traceKept, type Kept } from './leaks/leak-trace.js';
import { differentiableLoss } from './loss.js';
import { TrainingModel, withMask, type TrainedPart } from './training-model.js';
import { VariableStore } from './variable-store.js';
import { startThreadEngine } from './webgpu/thread-engine.js';

/** Examples, one buffer per field of the row format, row-major: class indices too are float32. Longer buffers are read only so far. */
export interface Batch {
  readonly inputs: readonly Float32Array[];
  readonly targets: readonly Float32Array[];
  /** A factor of the loss per example; read exactly when the format is weighted. */
  readonly weights?: Float32Array | undefined;
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
  /** The loss over the examples, then the sums of the metrics (libs/learning/src/metrics), in the order of `metricNames`. */
  readonly metricSums: number[];
}

export interface Engine {
  readonly name: BackendName;
  /** Engine, version, instruction set, threads, flags. Equal fingerprints compute equal bits. */
  readonly fingerprint: string;
  readonly devices: readonly EngineDevice[];
  /** Of each sum what it belongs to: `loss`, then the metrics. */
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
  /** Of the examples that it gets. */
  readonly format: RowFormat;
  readonly layout: Layout;
}

/**
 * Builds the run's model on its backend. Parameters are zero until `load`.
 * @throws ModelError when the model cannot be built or differs from the description (another release made it)
 * @throws EngineUnavailableError
 */
export async function createEngine(options: EngineOptions): Promise<Engine> {
  const { spec, description, format, layout } = options;
  const name = options.backend ?? BACKENDS.find((backend) => backend === spec.engine) ?? 'wasm';
  if (name === 'webgpu') return startThreadEngine(options);
  const backend = await startBackend(name, options);
  return new TfjsEngine(spec, layout, backend, TrainingModel.build(spec, description, format, backend));
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
    this.variables = new VariableStore(layout, model.weights, backend.memory, model.freeze);
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
    const metricSums = model.zeros();
    let count = 0;
    for (const [microBatch, batch] of batches.entries()) {
      model.checkBatch(batch);
      if (batch.count === 0) continue;
      const key = { seed: this.spec.seed, round, replica, microBatch };
      const sums = model.randomness.during(key, () => inTidy(() => this.microBatch(batch, out, count === 0)));
      count += batch.count;
      sums.forEach((sum, i) => (metricSums[i]! += sum));
    }
    if (count === 0) out.fill(0);
    else variables.writeState(out, count);
    this.housekeeping.afterStep();
    return { count, metricSums: [...metricSums] };
  }

  evaluate(batch: Batch): Sums {
    const { model } = this;
    const { memory } = this.backend;
    this.backend.activate();
    model.checkBatch(batch);
    if (batch.count === 0) return { count: 0, metricSums: [...model.zeros()] };
    this.variables.restoreState();
    const metricSums = inTidy(() => {
      const { outputs, masks } = model.outputs(batch);
      const sums = model.scored(batch, memory, outputs, [], masks);
      sums[0]! += this.regularisation(batch.count);
      return sums;
    });
    return { count: batch.count, metricSums: [...metricSums] };
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
  private microBatch(batch: Batch, out: Float32Array, isFirst: boolean): Float64Array {
    const { model, variables, backend } = this;
    const sums = model.zeros();
    const grads = model.gradients(batch, variables.trainable, (outputs, scoring, logits, mask) =>
      differentiableLoss(withMask(scoring, backend.memory, mask), model.ends.metrics, backend.memory, outputs, sums, logits),
    );
    variables.takeGradients(grads, out, isFirst);
    sums[0]! += this.regularisation(batch.count);
    // A loss may be no number while its slope is one, as that of a logarithm is: such a round must not count.
    if (!Number.isFinite(sums[0])) out[0] = Number.NaN;
    return sums;
  }

  /** The penalty on the weights, counted once per example like the gradient's. */
  private regularisation(count: number): number {
    return tf.tidy(() => this.model.penalties().reduce((sum, penalty) => sum + this.backend.memory.values(penalty)[0]! * count, 0));
  }
}

/** A tidy looks through what it gives back for tensors; there are none in these sums. */
function inTidy(of: () => Float64Array): Float64Array {
  let sums: Float64Array | undefined;
  tf.tidy(() => {
    sums = of();
  });
  return sums!;
}
