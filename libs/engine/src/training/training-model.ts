/**
 * The run's model as every engine computes it: what goes in, what is minimised, what is counted. How parameters get behind the variables and
 * how values get out of tensors is each engine's own matter: at once (create-engine.ts), or read from a GPU meanwhile (backends/webgpu/gpu-engine.ts).
 */
import { isDeepStrictEqual } from 'node:util';
import { fieldLength, matchesPatterns, type ModelDescription, type RowFormat } from '@paceline/spec';
import * as tf from '@tensorflow/tfjs-core';
import type * as tfl from '@tensorflow/tfjs-layers';
import { buildModel, type BuiltModel, type BuiltWeight } from '../model/build-model.js';
import { descriptionOf } from '../describe/describe.js';
import { planModel } from '../topology/plan-model.js';
import { bindEnds, type ModelEnds } from '../model/ends.js';
import type { Batch, TrainedPart } from '../engine.js';
import { freezeOf } from '../topology/frozen-layers.js';
import { withInner } from '../layers/inner-layers.js';
import { prepareLayers, type Fusing } from '../layers/prepare.js';
import { LogitsBefore } from '../loss/logits-before.js';
import { evaluateLoss, type Scoring } from '../loss/loss.js';
import { MaskRecorder, type OutputMasks } from '../loss/output-masks.js';
import { checkIds, idFieldsOf, type IdField } from './input-ids.js';
import { Randomness } from './randomness.js';
import { withTape } from './tape.js';
import type { TensorMemory } from '../backends/tensor-memory.js';

export class TrainingModel {
  /** The name of each sum: the loss, then the metrics. */
  readonly metricNames: readonly string[];
  readonly randomness = new Randomness();
  /** Trainable weights first, then state. */
  readonly weights: readonly BuiltWeight[];
  readonly layers: readonly tfl.layers.Layer[];
  /** Patterns of the variables that are not trained, by the spec and by the topology. */
  readonly freeze: readonly string[] | undefined;
  private readonly regularizers: readonly (() => tf.Scalar)[];
  private readonly logits: LogitsBefore;
  private readonly masks: MaskRecorder;
  private readonly idFields: readonly IdField[];

  private constructor(
    private readonly format: RowFormat,
    readonly ends: ModelEnds,
    private readonly built: BuiltModel,
    fusing: Fusing,
    { freeze, asTfjs }: Pick<TrainedPart, 'freeze' | 'asTfjs'>,
  ) {
    this.metricNames = ends.metrics.sumNames;
    this.weights = built.weights;
    this.layers = built.model.layers;
    prepareLayers(built.model, fusing, this.randomness);
    this.freeze = freezeOf(built.plan, freeze);
    this.regularizers = penaltiesOf(built, this.freeze);
    inferWhereFrozen(built, this.freeze);
    this.logits = new LogitsBefore(built.model, ends.outputs);
    this.masks = new MaskRecorder(asTfjs ? undefined : built.model);
    this.idFields = idFieldsOf(built.model, ends.inputs);
  }

  /**
   * On the present backend; parameters are zero.
   * @throws ModelError when the model cannot be built or differs from the description (another release made it)
   */
  static build(spec: TrainedPart, description: ModelDescription, format: RowFormat, fusing: Fusing): TrainingModel {
    const { plan, root } = planModel(spec, format);
    const built = buildModel(plan, root, true, spec.asTfjs);
    // Compared by value: PostgreSQL's jsonb keeps no order of keys.
    if (!isDeepStrictEqual(descriptionOf(built).variables, description.variables))
      throw new Error('the model built here differs from its description: api and workers must run the same release');
    return new TrainingModel(format, bindEnds(built.model, plan, root, spec, format), built, fusing, spec);
  }

  /**
   * A stage of a model (libs/engine/src/stages). Its first input is the tensor that it receives, if it does.
   * @param ends without outputs where it passes a tensor on
   */
  static stage(
    built: BuiltModel,
    ends: ModelEnds,
    format: RowFormat,
    fusing: Fusing,
    trained: Pick<TrainedPart, 'freeze' | 'asTfjs'>,
  ): TrainingModel {
    return new TrainingModel(format, ends, built, fusing, trained);
  }

  /** d(Σ losses + penalties)/d(variables), by the variables' names. */
  gradients(
    batch: Batch,
    variables: tf.Variable[],
    lossOf: LossOf,
    noteInputs?: (inputs: readonly tf.Tensor[]) => void,
  ): tf.NamedTensorMap {
    const inputs = this.inputsOf(batch);
    noteInputs?.(inputs);
    return this.watched((loss) => withTape(() => tf.variableGrads(() => loss(inputs, batch, lossOf), variables).grads));
  }

  /** The same of the last stage of a model, and, where it is needed, d/d(the tensor that it receives). */
  lastStageGradients(
    batch: Batch,
    variables: readonly tf.Variable[],
    lossOf: LossOf,
    returns: boolean,
  ): { readonly gradients: tf.NamedTensorMap; readonly received: tf.Tensor | undefined } {
    const inputs = this.inputsOf(batch);
    const xs = [...variables, ...(returns ? inputs.slice(0, 1) : [])];
    const of = (loss: LossOfInputs) => () => loss(inputs, batch, lossOf);
    if (xs.length === 0) return this.watched((loss) => (of(loss)(), { gradients: {}, received: undefined }));
    const { grads } = this.watched((loss) => withTape(() => tf.engine().gradients(of(loss), xs, undefined, true)));
    return { gradients: byName(variables, grads), received: grads[variables.length] };
  }

  /** What a stage in front of others gives the next one in training, [count, ...]; `inputs` begin with the tensor that it receives, if it does. */
  passing(batch: Pick<Batch, 'inputs' | 'count'>): { readonly inputs: readonly tf.Tensor[]; readonly output: () => tf.Tensor } {
    const inputs = this.inputsOf(batch);
    return { inputs, output: () => this.built.model.apply(single(inputs), { training: true }) as tf.Tensor };
  }

  /** What the layers say about logits and masks is known while `of` runs. */
  private watched<T>(of: (loss: LossOfInputs) => T): T {
    return this.logits.during((logitsOf) =>
      this.masks.during((masksOf) =>
        of((inputs, batch, lossOf) => {
          const outputs = [this.built.model.apply(single(inputs), { training: true }) as tf.Tensor | tf.Tensor[]].flat();
          const masks = masksOf();
          const losses = this.scorings(batch, true).map((scoring, i) => lossOf(outputs[i]!, scoring, logitsOf(outputs[i]!), masks[i]));
          return this.withPenalties(losses, batch.count);
        }),
      ),
    );
  }

  /** The sum of losses over so many examples, and of the penalties. */
  withPenalties(losses: readonly tf.Scalar[], count: number): tf.Scalar {
    const penalties = this.penalties().map((penalty) => tf.mul<tf.Scalar>(penalty, count));
    return [...losses, ...penalties].reduce((sum, other) => tf.add(sum, other));
  }

  /** Writes the inputs of a batch to where they lie in a recorded step. */
  fillInputs({ inputs, count }: Pick<Batch, 'inputs' | 'count'>, into: readonly Float32Array[]): void {
    this.ends.inputs.forEach(({ field, length }, i) => into[i]!.set(inputs[field]!.subarray(0, count * length)));
  }

  /** [count, ...] of each output, nothing random, and the masks that they come with. */
  outputs(batch: Pick<Batch, 'inputs' | 'count'>): { outputs: tf.Tensor[]; masks: OutputMasks } {
    return this.masks.during((masksOf) => {
      const outputs = [this.built.model.apply(single(this.inputsOf(batch)), { training: false }) as tf.Tensor | tf.Tensor[]].flat();
      return { outputs, masks: Object.fromEntries(Object.entries(masksOf()).map(([i, mask]) => [i, mask.clone()])) };
    });
  }

  /**
   * The loss over the examples and the sums of the metrics, in the order of `metricNames`, from the values of the outputs and of the penalties.
   * @param masks of the outputs that have one
   * @param logits in training, of the outputs that have some
   */
  scored(
    batch: Batch,
    memory: Pick<TensorMemory, 'values'>,
    outputs: readonly tf.Tensor[],
    penalties: readonly tf.Scalar[],
    masks: OutputMasks,
    logits?: readonly (tf.Tensor | undefined)[],
  ): Float64Array {
    const sums = this.zeros();
    this.scorings(batch, logits !== undefined).forEach((scoring, i) =>
      evaluateLoss(withMask(scoring, memory, masks[i]), this.ends.metrics, memory, outputs[i]!, sums, logits?.[i]),
    );
    for (const penalty of penalties) sums[0]! += memory.values(penalty)[0]! * batch.count;
    return sums;
  }

  /** What each output is scored against in training. */
  scoringsOf(batch: Batch): readonly Scoring[] {
    return this.scorings(batch, true);
  }

  get hasPenalties(): boolean {
    return this.regularizers.length > 0;
  }

  zeros(): Float64Array {
    return new Float64Array(this.metricNames.length);
  }

  /** On the weights, once per example in the loss. */
  penalties(): tf.Scalar[] {
    return this.regularizers.map((regularizer) => regularizer());
  }

  /**
   * Everything that can be wrong with a batch is found before tf.js starts: an operation that fails leaves its tape behind.
   * @throws RangeError
   */
  checkBatch(batch: Batch): void {
    const { format } = this;
    const { targets, weights, count } = batch;
    this.checkInputs(batch);
    format.targets.forEach((field, i) => checkFloats(count, field.name, targets[i], count * fieldLength(field)));
    if (format.isWeighted) checkFloats(count, 'weights', weights, count);
    for (const [i, field] of format.targets.entries()) {
      if (field.kind !== 'classes') continue;
      const [perExample, labels] = [fieldLength(field), targets[i]!];
      for (let at = 0; at < count * perExample; at++) {
        const label = labels[at]!;
        if (field.isPadded === true && Number.isNaN(label)) continue;
        if (!(Number.isInteger(label) && label >= 0 && label < field.classes))
          throw new RangeError(`label ${label} of example ${Math.floor(at / perExample)} is not one of the ${field.classes} classes`);
      }
    }
  }

  /** @throws RangeError */
  checkInputs({ inputs, count }: Pick<Batch, 'inputs' | 'count'>): void {
    if (!Number.isSafeInteger(count) || count < 0) throw new RangeError(`a batch of ${count} examples`);
    this.format.inputs.forEach((field, i) => checkFloats(count, field.name, inputs[i], count * fieldLength(field)));
    checkIds(this.idFields, inputs, count);
  }

  dispose(): void {
    this.built.model.dispose();
  }

  /** Weights of the classes of an output count in training alone. */
  private scorings({ targets, weights, count }: Batch, isTraining: boolean): Scoring[] {
    const ofExamples = this.format.isWeighted ? weights : undefined;
    return this.ends.outputs.map((output) => {
      const labels = targets[output.field]!;
      const byClass = isTraining && output.target.kind === 'classes' ? output.target.classWeights : undefined;
      if (!byClass) return { output, targets: labels, weights: ofExamples };
      const ofOutput = Float32Array.from({ length: count }, (_, i) => (ofExamples?.[i] ?? 1) * byClass[labels[i]!]!);
      return { output, targets: labels, weights: ofOutput };
    });
  }

  private inputsOf({ inputs, count }: Pick<Batch, 'inputs' | 'count'>): tf.Tensor[] {
    return this.ends.inputs.map(({ field, length, shape }) => tf.tensor(inputs[field]!.subarray(0, count * length), [count, ...shape]));
  }
}

/** The sum of the examples' losses at an output, from its values [count, ...], what they were before their last activation, and their mask. */
export type LossOf = (outputs: tf.Tensor, scoring: Scoring, logits: tf.Tensor | undefined, mask: tf.Tensor | undefined) => tf.Scalar;

type LossOfInputs = (inputs: readonly tf.Tensor[], batch: Batch, lossOf: LossOf) => tf.Scalar;

/** The gradients of variables, which come first among those that were asked for. */
export const byName = (variables: readonly tf.Variable[], gradients: readonly (tf.Tensor | undefined)[]): tf.NamedTensorMap =>
  Object.fromEntries(variables.flatMap(({ name }, i) => (gradients[i] ? [[name, gradients[i]]] : [])));

/** As tf.js takes the inputs of a model. */
const single = (inputs: readonly tf.Tensor[]): tf.Tensor | tf.Tensor[] => (inputs.length === 1 ? inputs[0]! : [...inputs]);

function checkFloats(count: number, what: string, given: Float32Array | undefined, floats: number): void {
  if (!given || given.length < floats)
    throw new RangeError(`a batch of ${count} examples needs ${floats} floats of ${what}, not ${given?.length ?? 0}`);
}

/** With the values of the mask that the output came with. */
export const withMask = (scoring: Scoring, memory: Pick<TensorMemory, 'values'>, mask: tf.Tensor | undefined): Scoring =>
  mask ? Object.assign({}, scoring, { mask: memory.values(mask) }) : scoring;

/** Batch normalisation none of whose variables is trained normalises by its moving averages in training too, as Keras' trainable = false does. */
function inferWhereFrozen({ model, weights }: BuiltModel, freeze: readonly string[] | undefined): void {
  if (!freeze) return;
  for (const layer of model.layers) {
    const own = weights.filter(({ path }) => path.startsWith(`${layer.name}/`));
    if (own.length === 0 || !own.every(({ path }) => matchesPatterns(freeze, path))) continue;
    for (const part of withInner(layer)) {
      if (part.getClassName() !== 'BatchNormalization') continue;
      const call = part.call.bind(part);
      part.call = (inputs, kwargs) => call(inputs, Object.assign({}, kwargs, { training: false }));
    }
  }
}

/** What the regularizers of the weights that are trained add to the loss; as in Keras 3 those of frozen ones count for nothing. */
export const penaltiesOf = ({ weights }: Pick<BuiltModel, 'weights'>, freeze: readonly string[] | undefined): (() => tf.Scalar)[] =>
  weights.flatMap(({ path, penalty }) => (penalty && !matchesPatterns(freeze, path) ? [penalty] : []));
