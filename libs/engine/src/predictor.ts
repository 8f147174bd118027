/** A model with given weights that answers for rows: what evaluates and predicts outside of runs. Nothing random, nothing changes. */
import type { RowFormat, RunSpec } from '@paceline/spec';
import * as tf from '@tensorflow/tfjs-core';
import { startBackend } from './backends/start-backend.js';
import { withInner } from './layers/inner-layers.js';
import { buildModel, type BuiltWeight } from './model/build-model.js';
import { planModel, type ModelPart } from './topology/plan-model.js';
import { bindEnds, type LossPart } from './model/ends.js';
import type { Batch } from './engine.js';
import { freezeOf } from './topology/frozen-layers.js';
import { addScores, halfOf } from './loss/loss.js';
import { ModelError } from './errors/model-error.js';
import { MaskRecorder } from './loss/output-masks.js';
import { penaltiesOf } from './training/training-model.js';

export interface PredictorField {
  /** The name of the model's layer. */
  readonly name: string;
  /** The shape of one example, without the batch. */
  readonly shape: readonly (number | null)[];
}

export interface Predictor {
  readonly inputs: readonly PredictorField[];
  readonly outputs: readonly PredictorField[];
  /**
   * @param inputs row-major, one array for each input; a size that the model leaves open follows from its length
   * @returns row-major, one array for each output
   * @throws RangeError for arrays that do not fit
   */
  predict(inputs: readonly Float32Array[], count: number): Float32Array[];
  /**
   * Scores rows as the evaluation of a run does.
   * @throws ModelError when model, loss and rows do not go together
   */
  scorer(spec: LossPart & Partial<Pick<RunSpec, 'freeze'>>, format: RowFormat): Scorer;
  dispose(): void;
}

export interface Scorer {
  /** The name of each sum: `loss`, then the metrics. */
  readonly metricNames: readonly string[];
  /** The number of each output's target in the format. */
  readonly targets: readonly number[];
  /** For each output: what its number has to be above for the second of two classes, where it has one number for them. */
  readonly halves: readonly number[];
  /** Fields of the batch are in the order of the format. Sums in the order of `metricNames`, and what the model gives. */
  score(batch: Batch): { readonly sums: Float64Array; readonly outputs: Float32Array[] };
  /** Loss and metrics by name, of the sums of so many examples; null where one is unknown. */
  finish(sums: ArrayLike<number>, examples: number): Record<string, number | null>;
}

/**
 * On the wasm backend.
 * @param valuesOf the values of a variable by its path, `layer/weight`
 * @param format of its rows, which a model of the zoo needs
 * @throws ModelError when the model cannot be built, or a variable is missing or of another size
 */
export async function createPredictor(
  spec: Pick<ModelPart, 'model'>,
  valuesOf: (path: string) => Float32Array | undefined,
  format?: RowFormat,
): Promise<Predictor> {
  const { plan, root } = planModel(spec, format);
  const backend = await startBackend('wasm');
  backend.activate();
  const built = buildModel(plan, root, true);
  const { model, weights } = built;
  for (const layer of model.layers) for (const part of withInner(layer)) backend.fuse(part); // without it some, such as ConvLSTM2D with channels first, fail
  writeWeights(weights, valuesOf, root);
  const inputs = fieldsOf(model.inputs, model.inputNames);
  const recorder = new MaskRecorder(model);
  /** What the model answers, and the masks that its outputs come with. */
  const answer = (given: readonly Float32Array[], count: number): { outputs: Float32Array[]; masks: (Float32Array | undefined)[] } => {
    backend.activate();
    const read = (tensor: tf.Tensor): Float32Array => Float32Array.from(tensor.dataSync());
    const run = (masksOf: () => Record<string, tf.Tensor>) => {
      const tensors = inputs.map(({ name, shape }, i) => {
        const values = given[i];
        if (values === undefined) throw new RangeError(`there are no values for the input ${name}`);
        return tf.tensor(values, [count, ...sizesOf(shape, values.length / count, name)]);
      });
      const outputs = [model.apply(tensors.length === 1 ? tensors[0]! : tensors, { training: false })].flat() as tf.Tensor[];
      const masks = masksOf();
      return { outputs: outputs.map(read), masks: outputs.map((_, i) => masks[i] && read(masks[i])) };
    };
    // Not a tidy's result: there are no tensors in it.
    let answered: ReturnType<typeof run>;
    tf.tidy(() => {
      answered = recorder.during(run);
    });
    return answered!;
  };
  const predict = (given: readonly Float32Array[], count: number): Float32Array[] => answer(given, count).outputs;
  return {
    inputs,
    outputs: fieldsOf(model.outputs, model.outputNames),
    predict,
    scorer(loss, rows) {
      const ends = bindEnds(model, plan, root, loss, rows);
      const regularizers = penaltiesOf(built, freezeOf(plan, loss.freeze));
      return {
        metricNames: ends.metrics.sumNames,
        finish: (sums, examples) => ends.metrics.finish(sums, examples),
        targets: ends.outputs.map(({ field }) => field),
        halves: ends.outputs.map(halfOf),
        score(batch) {
          const { count, targets, weights } = batch;
          const { outputs, masks } = answer(
            ends.inputs.map(({ field, length }) => batch.inputs[field]!.subarray(0, count * length)),
            count,
          );
          const sums = new Float64Array(ends.metrics.sumNames.length);
          for (const [i, output] of ends.outputs.entries())
            addScores(
              { output, targets: targets[output.field]!, weights: rows.isWeighted ? weights : undefined, mask: masks[i] },
              ends.metrics,
              outputs[i]!,
              sums,
            );
          // On the weights, once per example, as in the loss of the run.
          const penalty = tf.tidy(() => regularizers.reduce((sum, regularizer) => sum + regularizer().dataSync()[0]!, 0));
          sums[0]! += penalty * count;
          return { sums, outputs };
        },
      };
    },
    dispose: () => model.dispose(),
  };
}

const fieldsOf = (tensors: readonly { shape: (number | null)[] }[], names: readonly string[]): PredictorField[] =>
  tensors.map(({ shape }, i) => ({ name: names[i]!, shape: shape.slice(1) }));

/** @throws ModelError */
function writeWeights(weights: readonly BuiltWeight[], valuesOf: (path: string) => Float32Array | undefined, root: string): void {
  for (const { path, shape, variable } of weights) {
    const values = valuesOf(path);
    const size = tf.util.sizeFromShape([...shape]);
    if (values?.length !== size)
      throw new ModelError(root, `variable ${path} [${shape.join(', ')}] ${values ? `has ${values.length} values` : 'is missing'}`);
    const tensor = tf.tensor(values, [...shape]);
    variable!.write(tensor);
    tensor.dispose();
  }
}

function sizesOf(shape: readonly (number | null)[], floats: number, name: string): number[] {
  const known = shape.reduce<number>((product, size) => product * (size ?? 1), 1);
  const open = shape.filter((size) => size === null).length;
  const rest = floats / known;
  if (!Number.isSafeInteger(rest) || (open === 0 && rest !== 1) || open > 1)
    throw new RangeError(
      `${floats} numbers for each example do not fit the input ${name} [${shape.map((size) => size ?? '?').join(', ')}]`,
    );
  return shape.map((size) => size ?? rest);
}
