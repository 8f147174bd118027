/** Creates the engine of a compute thread. Backends that are read at once share one class here; webgpu is a proxy to a thread of its own. */
import type { Layout } from '@paceline/learning';
import { BACKENDS, type BackendName } from '@paceline/spec';
import * as tf from '@tensorflow/tfjs-core';
import { startBackend, type StartedBackend } from './backends/start-backend.js';
import { startThreadEngine } from './backends/webgpu/thread-engine.js';
import { type RecordedStep, StepRecorder, valuesKept } from './backends/wasm/recorded-step.js';
import type { BackendWasm } from '@tensorflow/tfjs-backend-wasm';
import type { Batch, Engine, EngineDevice, EngineOptions, StepRequest, Sums } from './engine.js';
import { traceKept, type Kept } from './leaks/leak-trace.js';
import { differentiableLoss, scoreWithGradient } from './loss/loss.js';
import { Housekeeping } from './training/garbage.js';
import { MOST_KEPT_BYTES, Replays, type Replay } from './training/replays.js';
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

/** What a micro-batch gives. */
interface Computed {
  readonly sums: Float64Array;
  /** By the names of the variables. */
  readonly gradients: Readonly<Record<string, tf.TensorInfo>>;
}

class TfjsEngine implements Engine {
  readonly name: BackendName;
  readonly fingerprint: string;
  readonly devices: readonly EngineDevice[];
  readonly metricNames: readonly string[];
  private readonly housekeeping = new Housekeeping();
  private readonly variables: VariableStore;
  /** Undefined where no step of this engine is replayed. */
  private readonly replays: Replays | undefined;
  private isTracing = false;

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
    const isWasm = backend.name === 'wasm' || backend.name === 'wasm-relaxed';
    // What a step does to the state of layers, and penalties, are operations outside of what is recorded.
    if (isWasm && !this.variables.hasState && !model.hasPenalties) this.replays = new Replays();
  }

  load(flat: Float32Array): void {
    this.backend.activate();
    this.variables.load(flat);
  }

  loadPart(offset: number, values: Float32Array): void {
    this.backend.activate();
    this.variables.loadPart(offset, values);
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
      const sums =
        this.replayed(batch, pieces, count === 0, onComputed) ??
        model.randomness.during(key, () => inTidy(() => this.microBatch(batch, pieces, count === 0, onComputed)));
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
    this.isTracing = true;
    try {
      return traceKept(this.model.layers, () => this.step(request));
    } finally {
      this.isTracing = false;
    }
  }

  memory(): { tensors: number; buffers: number; bytes: number } {
    const { numTensors, numBytes } = tf.memory();
    return { tensors: numTensors, buffers: tf.backend().numDataIds() - valuesKept(tf.backend()), bytes: numBytes };
  }

  dispose(): void {
    this.backend.activate();
    this.replays?.end();
    this.model.dispose();
  }

  /** Gradients of one micro-batch, copied or added into `out` from where tf.js left them. */
  private microBatch(batch: Batch, out: readonly Float32Array[], isFirst: boolean, onComputed: StepRequest['onComputed']): Float64Array {
    const replay = this.replayOf(batch)?.begin();
    const proof = replay?.isToProve === true ? this.withOutputs(batch) : batch;
    const { sums, gradients } = replay?.isDue === true ? this.recorded(batch, replay) : this.computed(proof);
    if (replay?.isToProve === true) this.prove(proof, replay, sums, gradients);
    onComputed?.();
    sums[0]! += this.regularisation(batch.count);
    this.taken(gradients, sums, out, isFirst);
    return sums;
  }

  private computed(batch: Batch, recorder?: StepRecorder): Computed {
    const { model, variables, backend } = this;
    const sums = model.zeros();
    const lossOf: Parameters<TrainingModel['gradients']>[2] = (outputs, scoring, logits, mask) => {
      batch.outputs?.[scoring.output.index]?.set(backend.memory.values(outputs));
      if (mask) recorder?.giveUp('an output has a mask');
      const note = (gradient: tf.TensorInfo): void => recorder?.noteLoss(outputs, logits, gradient);
      const masked = withMask(scoring, backend.memory, mask);
      return differentiableLoss(masked, model.ends.metrics, backend.memory, outputs, sums, logits, recorder && note);
    };
    const gradients = model.gradients(batch, variables.trainable, lossOf, recorder && ((inputs) => recorder.noteInputs(inputs)));
    return { sums, gradients };
  }

  private recorded(batch: Batch, replay: Replay): Computed {
    const { randomness } = this.model;
    const { result, step } = StepRecorder.record(tf.backend() as BackendWasm, { mostBytes: MOST_KEPT_BYTES }, (recorder) => {
      const draws = randomness.draws;
      const computed = this.computed(batch, recorder);
      if (randomness.draws > draws) recorder.giveUp('it draws random numbers');
      return { result: computed, gradients: computed.gradients };
    });
    replay.take(step);
    return result;
  }

  /** The next step after a recording is computed both ways: a recording whose bits differ is never used. */
  private prove(batch: Batch, replay: Replay, sums: Float64Array, gradients: Computed['gradients']): void {
    const { memory } = this.backend;
    const step = replay.step!;
    const bits = (values: Float32Array | Float64Array): Buffer => Buffer.from(values.buffer, values.byteOffset, values.byteLength);
    const isSame = (name: string): boolean => bits(memory.values(gradients[name]!)).equals(bits(memory.values(step.gradients[name]!)));
    const lengths = this.outputLengths(batch.count);
    const outputs = lengths.map((length) => new Float32Array(length)); // those of the caller stay as they were computed
    step.spoil();
    const again = this.replay(step, { ...batch, outputs });
    const isProven =
      again !== undefined &&
      step.constantsAreUnchanged &&
      bits(again).equals(bits(sums)) &&
      Object.keys(gradients).every(isSame) &&
      batch.outputs!.every((values, i) => bits(values.subarray(0, lengths[i])).equals(bits(outputs[i]!)));
    if (isProven) replay.isProven = true;
    else this.replays!.end();
  }

  /** Undefined where a step of this size is computed: a traced one always is. */
  private replayOf({ count }: Batch): Replay | undefined {
    return this.isTracing ? undefined : this.replays?.of(count);
  }

  private outputLengths(count: number): number[] {
    return this.model.ends.outputs.map(({ width, positions }) => count * width * positions);
  }

  /** The same batch, whose outputs are compared also where nobody has asked for them. */
  private withOutputs(batch: Batch): Batch {
    return { ...batch, outputs: batch.outputs ?? this.outputLengths(batch.count).map((length) => new Float32Array(length)) };
  }

  /** Replays the step. Undefined where there is no proven recording, or the replay has failed. */
  private replayed(
    batch: Batch,
    out: readonly Float32Array[],
    isFirst: boolean,
    onComputed: StepRequest['onComputed'],
  ): Float64Array | undefined {
    const replay = this.replayOf(batch);
    if (!replay?.isProven || !replay.step) return undefined;
    const sums = this.replay(replay.step, batch);
    if (!sums) {
      this.replays!.end();
      return undefined;
    }
    onComputed?.();
    this.taken(replay.step.gradients, sums, out, isFirst);
    return sums;
  }

  private replay(step: RecordedStep, batch: Batch): Float64Array | undefined {
    const { model, backend } = this;
    const { memory } = backend;
    const sums = model.zeros();
    const scorings = model.scoringsOf(batch);
    try {
      step.replay(
        (inputs) =>
          model.fillInputs(
            batch,
            inputs.map((input) => memory.values(input)),
          ),
        ({ outputs, logits, gradient }, i) => {
          const [scoring, values] = [scorings[i]!, memory.values(outputs)];
          batch.outputs?.[scoring.output.index]?.set(values);
          scoreWithGradient(scoring, model.ends.metrics, values, logits && memory.values(logits), memory.values(gradient), sums);
        },
      );
    } catch {
      return undefined; // the step is computed then, and says what is wrong
    }
    return sums;
  }

  private taken(gradients: Computed['gradients'], sums: Float64Array, out: readonly Float32Array[], isFirst: boolean): void {
    this.variables.takeGradients(gradients, out, isFirst);
    // A loss may be no number while its slope is one, as that of a logarithm is: such a round must not count.
    if (!Number.isFinite(sums[0])) out[0]![0] = Number.NaN;
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
