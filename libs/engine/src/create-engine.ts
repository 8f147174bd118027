/** Creates the engine of a compute thread. Backends that are read at once share one class here; webgpu is a proxy to a thread of its own. */
import type { Layout } from '@paceline/learning';
import { BACKENDS, type BackendName } from '@paceline/spec';
import * as tf from '@tensorflow/tfjs-core';
import { startBackend, type StartedBackend } from './backends/start-backend.js';
import { startThreadEngine } from './backends/webgpu/thread-engine.js';
import type { Batch, Engine, EngineDevice, EngineOptions, StepRequest, Sums } from './engine.js';
import { traceKept, type Kept } from './leaks/leak-trace.js';
import { differentiableLoss } from './loss/loss.js';
import { Housekeeping } from './training/garbage.js';
import { TrainingModel, withMask } from './training/training-model.js';
import { VariableStore } from './training/variable-store.js';

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

  step({ round, replica, batches, out, onComputed }: StepRequest): Sums {
    const { model, variables } = this;
    this.backend.activate();
    const pieces = variables.checked(out);
    variables.restoreState();
    const metricSums = model.zeros();
    let count = 0;
    for (const [microBatch, batch] of batches.entries()) {
      model.checkBatch(batch);
      if (batch.count === 0) continue;
      const key = { seed: this.spec.seed, round, replica, microBatch };
      const sums = model.randomness.during(key, () => inTidy(() => this.microBatch(batch, pieces, count === 0, onComputed)));
      count += batch.count;
      sums.forEach((sum, i) => (metricSums[i]! += sum));
    }
    if (count === 0) for (const piece of pieces) piece.fill(0);
    else variables.writeState(pieces, count);
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

  predict(rows: Pick<Batch, 'inputs' | 'count'>, outputs: readonly Float32Array[]): void {
    const { model, backend } = this;
    backend.activate();
    model.checkInputs(rows);
    this.variables.restoreState();
    tf.tidy(() => model.outputs(rows).outputs.forEach((values, i) => outputs[i]!.set(backend.memory.values(values))));
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
  private microBatch(batch: Batch, out: readonly Float32Array[], isFirst: boolean, onComputed: StepRequest['onComputed']): Float64Array {
    const { model, variables, backend } = this;
    const sums = model.zeros();
    const grads = model.gradients(batch, variables.trainable, (outputs, scoring, logits, mask) => {
      batch.outputs?.[scoring.output.index]?.set(backend.memory.values(outputs));
      return differentiableLoss(withMask(scoring, backend.memory, mask), model.ends.metrics, backend.memory, outputs, sums, logits);
    });
    onComputed?.();
    variables.takeGradients(grads, out, isFirst);
    sums[0]! += this.regularisation(batch.count);
    // A loss may be no number while its slope is one, as that of a logarithm is: such a round must not count.
    if (!Number.isFinite(sums[0])) out[0]![0] = Number.NaN;
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
