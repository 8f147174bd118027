/**
 * The engine of a compute thread: tf.js behind one interface, whatever the backend. A replica step is pure (ROUNDS §2):
 * (parameters, state, batches, key) → (Σ gradients, state', count, Σ metrics), the same bits for the same inputs in any
 * process, whatever was computed before.
 */
import { isDeepStrictEqual } from 'node:util';
import type { Layout } from '@paceline/learning';
import { BACKENDS, type BackendName, type ModelDescription, type RunSpec } from '@paceline/spec';
import * as tf from '@tensorflow/tfjs-core';
import { startBackend, type BackendOptions, type EngineDevice, type StartedBackend } from './backend.js';
import { buildModel, type BuiltModel } from './build-model.js';
import { descriptionOf, planModel } from './describe.js';
import { Housekeeping } from './housekeeping.js';
import { prepareLayers } from './layers/prepare.js';
import { traceKept, type Kept } from './leaks/leak-trace.js';
import { differentiableLoss, evaluateLoss, type Scored } from './loss.js';
import { Randomness } from './randomness.js';
import { VariableStore } from './variable-store.js';

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
  readonly spec: Pick<RunSpec, 'model' | 'loss' | 'metrics' | 'engine' | 'seed'>;
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
  const backend = await startBackend(options.backend ?? BACKENDS.find((name) => name === spec.engine) ?? 'wasm', options);
  const { plan, root } = planModel(spec);
  const built = buildModel(plan, root, true);
  // Compared by value: PostgreSQL's jsonb keeps no order of keys.
  if (!isDeepStrictEqual(descriptionOf(built).variables, description.variables))
    throw new Error('the model built here differs from its description: api and workers must run the same release');
  return new TfjsEngine(spec, description, layout, backend, built);
}

class TfjsEngine implements Engine {
  readonly name: BackendName;
  readonly fingerprint: string;
  readonly devices: readonly EngineDevice[];
  readonly metricNames: readonly string[];
  private readonly randomness = new Randomness();
  private readonly housekeeping = new Housekeeping();
  private readonly variables: VariableStore;
  private readonly exampleLength: number;
  private readonly regularizers: readonly (() => tf.Scalar)[];

  constructor(
    private readonly spec: EngineOptions['spec'],
    private readonly description: ModelDescription,
    layout: Layout,
    private readonly backend: StartedBackend,
    private readonly built: BuiltModel,
  ) {
    this.name = backend.name;
    this.fingerprint = backend.fingerprint;
    this.devices = backend.devices;
    this.metricNames = ['loss', ...spec.metrics];
    this.exampleLength = description.inputShape.reduce((a, b) => a * b, 1);
    this.variables = new VariableStore(layout, built.weights, backend.memory);
    this.regularizers = built.model.layers.flatMap((layer) => (layer as unknown as { losses: (() => tf.Scalar)[] }).losses);
    prepareLayers(built.model, backend, this.randomness);
  }

  load(flat: Float32Array): void {
    this.backend.activate();
    this.variables.load(flat);
  }

  step({ round, replica, batches, out }: StepRequest): Sums {
    this.backend.activate();
    this.variables.checkLength(out);
    this.variables.restoreState();
    const total = { count: 0, lossSum: 0, correct: 0 };
    let isFirst = true;
    for (const [microBatch, batch] of batches.entries()) {
      this.checkBatch(batch);
      if (batch.count === 0) continue;
      const key = { seed: this.spec.seed, round, replica, microBatch };
      const scored = this.randomness.during(key, () => tf.tidy(() => this.microBatch(batch, out, isFirst)));
      isFirst = false;
      total.count += batch.count;
      total.lossSum += scored.lossSum;
      total.correct += scored.correct;
    }
    if (total.count === 0) out.fill(0);
    else this.variables.writeState(out, total.count);
    this.housekeeping.afterStep();
    return this.sums(total.count, total);
  }

  evaluate(batch: Batch): Sums {
    this.backend.activate();
    this.checkBatch(batch);
    if (batch.count === 0) return this.sums(0, { lossSum: 0, correct: 0 });
    this.variables.restoreState();
    const scored = tf.tidy(() => {
      const outputs = this.built.model.apply(this.inputOf(batch), { training: false }) as tf.Tensor;
      const { lossSum, correct } = evaluateLoss(this.spec.loss, this.backend.memory, outputs, batch.y);
      return { lossSum: lossSum + this.regularisation(batch.count), correct };
    });
    return this.sums(batch.count, scored);
  }

  trace(request: StepRequest): { result: Sums; kept: Kept[] } {
    this.backend.activate();
    return traceKept(this.built.model.layers, () => this.step(request));
  }

  memory(): { tensors: number; buffers: number; bytes: number } {
    const { numTensors, numBytes } = tf.memory();
    return { tensors: numTensors, buffers: tf.backend().numDataIds(), bytes: numBytes };
  }

  dispose(): void {
    this.backend.activate();
    this.built.model.dispose();
  }

  /** Gradients of one micro-batch, copied or added into `out` from where tf.js left them. */
  private microBatch(batch: Batch, out: Float32Array, isFirst: boolean): Scored {
    const input = this.inputOf(batch);
    let scored: Scored | undefined;
    const { grads } = tf.variableGrads(() => {
      const outputs = this.built.model.apply(input, { training: true }) as tf.Tensor;
      let loss = differentiableLoss(this.spec.loss, this.backend.memory, outputs, batch.y, (result) => (scored = result));
      for (const regularizer of this.regularizers) loss = tf.add(loss, tf.mul(regularizer(), batch.count));
      return loss;
    }, this.variables.trainable);
    this.variables.takeGradients(grads, out, isFirst);
    return { lossSum: scored!.lossSum + this.regularisation(batch.count), correct: scored!.correct };
  }

  private inputOf({ x, count }: Batch): tf.Tensor {
    return tf.tensor(x.subarray(0, count * this.exampleLength), [count, ...this.description.inputShape]);
  }

  /** The penalty on the weights, counted once per example like the gradient's. */
  private regularisation(count: number): number {
    return tf.tidy(() => this.regularizers.reduce((sum, regularizer) => sum + this.backend.memory.values(regularizer())[0]! * count, 0));
  }

  /** Everything that can be wrong with a batch is found before tf.js starts: an operation that fails leaves its tape behind. */
  private checkBatch({ x, y, count }: Batch): void {
    const floats = count * this.exampleLength;
    if (!Number.isSafeInteger(count) || count < 0 || x.length < floats || y.length < count) {
      throw new RangeError(`a batch of ${count} examples needs ${floats} floats and ${count} labels, not ${x.length} and ${y.length}`);
    }
    const classes = this.description.outputShape[0]!;
    for (let row = 0; row < count; row++) {
      if (!(y[row]! >= 0 && y[row]! < classes))
        throw new RangeError(`label ${y[row]} of example ${row} is not one of the ${classes} classes`);
    }
  }

  private sums(count: number, { lossSum, correct }: Scored): Sums {
    const byName: Readonly<Record<string, number>> = { loss: lossSum, accuracy: correct };
    return { count, metricSums: this.metricNames.map((name) => byName[name]!) };
  }
}
