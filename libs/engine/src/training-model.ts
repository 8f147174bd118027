/**
 * The run's model as every engine computes it: what goes in, what is minimised, what is counted. How parameters get behind the variables and
 * how values get out of tensors is each engine's own matter: at once (engine.ts), or read from a GPU meanwhile (webgpu/gpu-engine.ts).
 */
import { isDeepStrictEqual } from 'node:util';
import type { ModelDescription, RunSpec } from '@paceline/spec';
import * as tf from '@tensorflow/tfjs-core';
import type * as tfl from '@tensorflow/tfjs-layers';
import { buildModel, type BuiltModel, type BuiltWeight } from './build-model.js';
import { descriptionOf, planModel } from './describe.js';
import type { Batch, Sums } from './engine.js';
import { cellsOf, withInner } from './layers/parts.js';
import { prepareLayers, type Fusing } from './layers/prepare.js';
import type { Scored } from './loss.js';
import { Randomness } from './randomness.js';

export type TrainedPart = Pick<RunSpec, 'model' | 'loss' | 'metrics' | 'engine' | 'seed'>;

export class TrainingModel {
  readonly metricNames: readonly string[];
  readonly randomness = new Randomness();
  /** Trainable weights first, then state. */
  readonly weights: readonly BuiltWeight[];
  readonly layers: readonly tfl.layers.Layer[];
  private readonly exampleLength: number;
  private readonly regularizers: readonly (() => tf.Scalar)[];

  private constructor(
    spec: TrainedPart,
    private readonly description: ModelDescription,
    private readonly built: BuiltModel,
    fusing: Fusing,
  ) {
    this.metricNames = ['loss', ...spec.metrics];
    this.weights = built.weights;
    this.layers = built.model.layers;
    this.exampleLength = description.inputShape.reduce((a, b) => a * b, 1);
    this.regularizers = regularizersOf(this.layers);
    prepareLayers(built.model, fusing, this.randomness);
  }

  /**
   * On the present backend; parameters are zero.
   * @throws ModelError when the model cannot be built or differs from the description (another release made it)
   */
  static build(spec: TrainedPart, description: ModelDescription, fusing: Fusing): TrainingModel {
    const { plan, root } = planModel(spec);
    const built = buildModel(plan, root, true);
    // Compared by value: PostgreSQL's jsonb keeps no order of keys.
    if (!isDeepStrictEqual(descriptionOf(built).variables, description.variables))
      throw new Error('the model built here differs from its description: api and workers must run the same release');
    return new TrainingModel(spec, description, built, fusing);
  }

  /**
   * d(Σ losses + penalties)/d(variables), by the variables' names.
   * @param lossOf the sum of the examples' losses from the outputs [count, classes]
   */
  gradients(batch: Batch, variables: tf.Variable[], lossOf: (outputs: tf.Tensor) => tf.Scalar): tf.NamedTensorMap {
    const input = this.inputOf(batch);
    const { grads } = tf.variableGrads(() => {
      let loss = lossOf(this.built.model.apply(input, { training: true }) as tf.Tensor);
      for (const penalty of this.penalties()) loss = tf.add(loss, tf.mul(penalty, batch.count));
      return loss;
    }, variables);
    return grads;
  }

  /** [count, classes], nothing random. */
  outputs(batch: Batch): tf.Tensor {
    return this.built.model.apply(this.inputOf(batch), { training: false }) as tf.Tensor;
  }

  /** On the weights, once per example in the loss. */
  penalties(): tf.Scalar[] {
    return this.regularizers.map((regularizer) => regularizer());
  }

  /**
   * Everything that can be wrong with a batch is found before tf.js starts: an operation that fails leaves its tape behind.
   * @throws RangeError
   */
  checkBatch({ x, y, count }: Batch): void {
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

  sums(count: number, { lossSum, correct }: Scored): Sums {
    const byName: Readonly<Record<string, number>> = { loss: lossSum, accuracy: correct };
    return { count, metricSums: this.metricNames.map((name) => byName[name]!) };
  }

  dispose(): void {
    this.built.model.dispose();
  }

  private inputOf({ x, count }: Batch): tf.Tensor {
    return tf.tensor(x.subarray(0, count * this.exampleLength), [count, ...this.description.inputShape]);
  }
}

/** tf.js leaves out those of wrapped recurrent layers and of cells. A wrapper may give those of its layer as its own. */
function regularizersOf(layers: readonly tfl.layers.Layer[]): (() => tf.Scalar)[] {
  const parts = layers.flatMap(withInner).flatMap((layer) => [layer, ...cellsOf(layer)]);
  return [...new Set(parts.flatMap((part) => (part as unknown as { losses: (() => tf.Scalar)[] }).losses))];
}
