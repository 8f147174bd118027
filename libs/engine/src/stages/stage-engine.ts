/**
 * The engine of one stage of a model (cut-model.ts): it has the layers and the variables of the stage alone.
 *
 * What a stage computes of some rows has the bits that these layers compute in the engine of the whole model (create-engine.ts): the same kernels, the same
 * random numbers, which depend on the rows' key and the layer, and the gradient of each tensor that goes over a boundary as it came back. What a stage needs for the
 * gradients of rows that it has passed on is kept until these come back (kept-forward.ts).
 */
import type { Layout } from '@paceline/learning';
import { matchesPatterns, type BackendName, type ModelDescription, type RowFormat } from '@paceline/spec';
import * as tf from '@tensorflow/tfjs-core';
import { startBackend, type StartedBackend } from '../backends/start-backend.js';
import { WasmMemory } from '../backends/tensor-memory.js';
import { describeModel } from '../describe/describe.js';
import type { Batch, Engine, FlatVector, TrainedPart } from '../engine.js';
import { differentiableLoss } from '../loss/loss.js';
import { buildModel } from '../model/build-model.js';
import { bindEnds } from '../model/ends.js';
import { freezeOf } from '../topology/frozen-layers.js';
import { planModel } from '../topology/plan-model.js';
import { Housekeeping } from '../training/garbage.js';
import { byName, type LossOf, TrainingModel, withMask } from '../training/training-model.js';
import { VariableStore } from '../training/variable-store.js';
import { cutModel, type Stage, type StageCuts } from './cut-model.js';
import { traceKept, type Kept as KeptTensors } from '../leaks/leak-trace.js';
import { KeptForward } from './kept-forward.js';

/** Rows that go through the stages together: a micro-batch of the pipeline. They have the random numbers that this replica of the whole model has in this round. */
export interface StageKey {
  readonly round: number;
  readonly replica: number;
}

export interface StageGradients {
  /** Flat in the order of the layout: gradients of the sum over the examples in the trainable section, state' × count in the state section. */
  readonly out: FlatVector;
  /** Where a stage passes a tensor on: the gradient of that tensor, which came back. */
  readonly passed?: Float32Array | undefined;
  /** Where a stage receives a tensor: the gradient of that tensor is written here. */
  readonly received?: Float32Array | undefined;
}

/** A batch of a stage has its inputs: the tensor that it receives first, if it does, then the inputs of the model that it reads itself. */
export interface StageEngine extends Pick<Engine, 'fingerprint' | 'devices' | 'metricNames' | 'memory' | 'dispose'> {
  readonly stage: Stage;
  /** Numbers of the fields of the row format that it reads itself, in the order of its inputs. */
  readonly fields: readonly number[];
  /** Takes its variables over from a flat vector in the order of its layout. */
  load(flat: Float32Array): void;
  /**
   * In training: what the stage gives the next one, [count, ...]. What their gradients need is kept until `gradients` of the same key, or `forget`; the arrays of the
   * batch are the caller's again when this returns.
   */
  pass(key: StageKey, batch: Pick<Batch, 'inputs' | 'count'>, passed: Float32Array): void;
  /**
   * @returns the sums of the metrics in the order of `metricNames`, and first the loss over the examples, with the penalties on the variables of the stage; the
   * penalties alone where it passes a tensor on
   */
  gradients(key: StageKey, batch: Batch, gradients: StageGradients): Float64Array;
  /** Frees what it keeps of rows whose gradients did not come back. */
  forget(): void;
  /** As inference computes it: the outputs of the model, or the tensor that is passed on. */
  predict(batch: Pick<Batch, 'inputs' | 'count'>, outputs: readonly Float32Array[]): void;
  /** Scores rows as inference computes them. @param passed where the tensor is written that the stage passes on, if it does @returns as `gradients` */
  evaluate(batch: Batch, passed?: Float32Array): Float64Array;
  /** Does something, and says what that leaves behind and where it was made: `kept`, most bytes first. */
  traced<T>(act: () => T): { readonly result: T; readonly kept: readonly KeptTensors[] };
}

export interface StageOptions {
  readonly spec: TrainedPart;
  readonly format: RowFormat;
  /** Places the stage's variables, and perhaps others. */
  readonly layout: Layout;
  readonly cuts: StageCuts;
  /** From 0. */
  readonly index: number;
  /** Not webgpu. Left out: wasm. */
  readonly backend?: BackendName | undefined;
}

/** The model, and its stages. @throws ModelError where it cannot be cut so */
export async function describeStages(
  spec: TrainedPart,
  format: RowFormat,
  cuts: StageCuts,
): Promise<{ readonly description: ModelDescription; readonly stages: readonly Stage[] }> {
  const description = await describeModel(spec, format);
  const { plan, root } = planModel(spec, format);
  return { description, stages: cutModel(buildModel(plan, root, false), cuts) };
}

/** @throws ModelError */
export async function createStageEngine(options: StageOptions): Promise<StageEngine> {
  const { backend = 'wasm' } = options;
  if (backend === 'webgpu') throw new Error('a stage is computed in one thread, and webgpu has a thread of its own');
  return new TfjsStageEngine(options, await startBackend(backend));
}

interface Kept {
  readonly round: number;
  /** Undefined where nothing in the stage, and nothing in front of it, is trained. */
  readonly forward: KeptForward | undefined;
  /** Variables that are trained, and the tensor that was received, where its gradient is needed. */
  readonly xs: tf.Tensor[];
  /** Of layers, after these rows. */
  readonly state: readonly Float32Array[];
}

interface Taken {
  readonly gradients: tf.NamedTensorMap;
  readonly received: tf.Tensor | undefined;
}

class TfjsStageEngine implements StageEngine {
  readonly fingerprint: string;
  readonly devices: Engine['devices'];
  readonly metricNames: readonly string[];
  readonly stage: Stage;
  readonly fields: readonly number[];
  /** Whether somebody in front needs the gradient of what the stage receives: there is nothing to train where all is frozen. */
  private readonly returns: boolean;
  private readonly seed: number;
  private readonly model: TrainingModel;
  private readonly store: VariableStore;
  private readonly housekeeping = new Housekeeping();
  /** Rows that were passed on and did not come back, by their replica. */
  private readonly kept = new Map<number, Kept>();

  constructor(
    { spec, format, layout, cuts, index }: StageOptions,
    private readonly backend: StartedBackend,
  ) {
    const { plan, root } = planModel(spec, format);
    const whole = buildModel(plan, root, false);
    const stages = cutModel(whole, cuts);
    const stage = stages[index]!;
    const ends = bindEnds(whole.model, plan, root, spec, format);
    const shapes = [...(stage.received ? [stage.received] : []), ...stage.inputs.map((input) => ends.inputs[input]!.shape)];
    const inputs = shapes.map((shape, field) => ({ name: `input ${field}`, shape, field, length: sizeOf(shape) }));
    const isLast = stage.passed === undefined;
    const built = buildModel(stage.plan, root, true, spec.asTfjs);
    this.model = TrainingModel.stage(
      built,
      { inputs, outputs: isLast ? ends.outputs : [], metrics: ends.metrics },
      {
        inputs: inputs.map(({ name, shape }) => ({ name, shape: [...shape] })),
        targets: isLast ? format.targets : [],
        isWeighted: isLast && format.isWeighted,
      },
      backend,
      spec,
    );
    const places = new Map(layout.variables.map((variable) => [variable.path, variable]));
    const variables = built.weights.flatMap(({ path }) => places.get(path) ?? []);
    this.store = new VariableStore({ ...layout, variables }, built.weights, backend.memory, this.model.freeze);
    this.fingerprint = backend.fingerprint;
    this.devices = backend.devices;
    this.metricNames = ends.metrics.sumNames;
    this.stage = stage;
    this.fields = stage.inputs.map((input) => ends.inputs[input]!.field);
    this.seed = spec.seed;
    const patterns = freezeOf(plan, spec.freeze);
    const inFront = new Set(stages.slice(0, index).flatMap((other) => other.variables));
    this.returns = whole.weights.some(({ path, trainable }) => trainable && inFront.has(path) && !matchesPatterns(patterns, path));
  }

  load(flat: Float32Array): void {
    this.backend.activate();
    this.store.load(flat);
  }

  pass(key: StageKey, batch: Pick<Batch, 'inputs' | 'count'>, passed: Float32Array): void {
    const { model, store, backend } = this;
    backend.activate();
    model.checkInputs(batch);
    if (this.kept.has(key.replica)) throw new Error(`rows of replica ${key.replica} are passed on twice`);
    store.restoreState();
    this.during(key, () => {
      const { inputs, output } = model.passing(this.owned(batch));
      const xs: tf.Tensor[] = [...store.trainable, ...(this.returns ? inputs.slice(0, 1) : [])];
      const forward = xs.length > 0 ? KeptForward.of(output) : undefined;
      this.kept.set(key.replica, { round: key.round, forward, xs, state: store.stateNow() });
      passed.set(backend.memory.values(forward?.output ?? output()));
    });
  }

  gradients(key: StageKey, batch: Batch, { out, passed, received }: StageGradients): Float64Array {
    const { model, store, backend } = this;
    backend.activate();
    const pieces = store.checked(out);
    let sums = model.zeros();
    if (passed) {
      const kept = this.kept.get(key.replica);
      if (kept?.round !== key.round) throw new Error(`rows of replica ${key.replica} come back that were not passed on`);
      this.kept.delete(key.replica);
      this.during(key, () => this.take(this.passedGradients(kept, batch.count, passed), pieces, received));
      store.writeState(pieces, batch.count, kept.state);
    } else {
      model.checkBatch(batch);
      store.restoreState();
      this.during(key, () => (sums = this.lastGradients(batch, pieces, received)));
      store.writeState(pieces, batch.count);
    }
    this.housekeeping.afterStep();
    sums[0]! += this.penalties(batch.count);
    return sums;
  }

  forget(): void {
    for (const { forward } of this.kept.values()) forward?.dispose();
    this.kept.clear();
  }

  /** Backends other than wasm keep the arrays that they are given, and read them when the gradients are due. */
  private owned({ inputs, count }: Pick<Batch, 'inputs' | 'count'>): Pick<Batch, 'inputs' | 'count'> {
    return { inputs: this.backend.memory instanceof WasmMemory ? inputs : inputs.map((input) => input.slice()), count };
  }

  private passedGradients({ forward, xs }: Kept, count: number, passed: Float32Array): Taken {
    const { trainable } = this.store;
    const grads = forward?.gradients(xs, (output) => this.model.withPenalties([scalarWithGradient(output, passed)], count)) ?? [];
    return { gradients: byName(trainable, grads), received: grads[trainable.length] };
  }

  private lastGradients(batch: Batch, pieces: readonly Float32Array[], received: Float32Array | undefined): Float64Array {
    const { model, backend } = this;
    const sums = model.zeros();
    const lossOf: LossOf = (outputs, scoring, logits, mask) => {
      batch.outputs?.[scoring.output.index]?.set(backend.memory.values(outputs));
      return differentiableLoss(withMask(scoring, backend.memory, mask), model.ends.metrics, backend.memory, outputs, sums, logits);
    };
    this.take(model.lastStageGradients(batch, this.store.trainable, lossOf, this.returns), pieces, received);
    return sums;
  }

  private take({ gradients, received: gradient }: Taken, pieces: readonly Float32Array[], received: Float32Array | undefined): void {
    this.store.takeGradients(gradients, pieces, true);
    if (gradient) received?.set(this.backend.memory.values(gradient));
    else received?.fill(0); // the loss does not depend on it, or nobody needs it
  }

  predict(batch: Pick<Batch, 'inputs' | 'count'>, outputs: readonly Float32Array[]): void {
    const { model, store, backend } = this;
    backend.activate();
    model.checkInputs(batch);
    store.restoreState();
    tf.tidy(() => model.outputs(batch).outputs.forEach((values, i) => outputs[i]!.set(backend.memory.values(values))));
  }

  evaluate(batch: Batch, passed?: Float32Array): Float64Array {
    let sums = this.model.zeros();
    if (passed) this.predict(batch, [passed]);
    else sums = this.scored(batch);
    sums[0]! += this.penalties(batch.count);
    return sums;
  }

  traced<T>(act: () => T): { result: T; kept: KeptTensors[] } {
    this.backend.activate();
    return traceKept(this.model.layers, act);
  }

  memory(): { tensors: number; buffers: number; bytes: number } {
    this.backend.activate();
    const { numTensors, numBytes } = tf.memory();
    return { tensors: numTensors, buffers: tf.backend().numDataIds(), bytes: numBytes };
  }

  dispose(): void {
    this.backend.activate();
    this.forget();
    this.model.dispose();
  }

  /** What the last stage makes of a batch, without penalties. */
  private scored(batch: Batch): Float64Array {
    const { model, store, backend } = this;
    backend.activate();
    model.checkBatch(batch);
    store.restoreState();
    let sums = model.zeros();
    tf.tidy(() => {
      const { outputs, masks } = model.outputs(batch);
      sums = model.scored(batch, backend.memory, outputs, [], masks);
    });
    return sums;
  }

  /** The penalties on the variables of the stage count once per example. */
  private penalties(count: number): number {
    return tf.tidy(() => this.model.penalties().reduce((sum, penalty) => sum + this.backend.memory.values(penalty)[0]! * count, 0));
  }

  private during({ round, replica }: StageKey, of: () => void): void {
    this.model.randomness.during({ seed: this.seed, round, replica, microBatch: 0 }, () => tf.tidy(of));
  }
}

const sizeOf = (shape: readonly number[]): number => shape.reduce((a, b) => a * b, 1);

/** Its value is 0; what flows back through it is the gradient. */
function scalarWithGradient(tensor: tf.Tensor, gradient: Float32Array): tf.Scalar {
  const op = tf.customGrad((x, save) => {
    (save as tf.GradSaveFunc)([tf.tensor(gradient, (x as tf.Tensor).shape)]);
    return { value: tf.scalar(0), gradFunc: (_, saved) => saved[0]!.clone() };
  });
  return op(tensor) as tf.Scalar;
}
