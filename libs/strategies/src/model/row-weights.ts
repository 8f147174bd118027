/**
 * `sampleWeight` of `fit` and `evaluate`, which tf.js 4.22 does not have: a weight for each row, with the meaning of Keras. The loss of a batch is the sum of the
 * weighted losses of its rows, divided by their number; metrics are not weighted. tf.js takes class weights in this way, so weights of rows go the same way
 * through `fit`. With class weights too, a row counts with the product.
 */
import * as tfc from '@tensorflow/tfjs-core';
import { UnsupportedError } from '../errors.js';
import type { Column } from './batch-columns.js';
import type { Compiled } from './compiled.js';
import type { Standardized, TfModel } from './tf-model.js';

/** In the place of `sampleWeight` among the arguments of `fit`: `standardizeUserData` gets it. */
export class GivenWeights {
  constructor(
    readonly training: tfc.Tensor1D | undefined,
    /** Of `validationData`. */
    readonly validation: tfc.Tensor1D | undefined,
  ) {}
}

/** Behind the weights that tf.js knows come these two. */
interface Weights {
  /** Of all rows, also those that `validationSplit` takes. */
  readonly training: tfc.Tensor | undefined;
  readonly validation: tfc.Tensor | undefined;
}

/** What tf.js has standardized without them, with the weights. @throws UnsupportedError for class weights of several outputs */
export function withWeights(
  model: TfModel,
  [inputs, targets, ofClasses]: Standardized,
  { training, validation }: GivenWeights,
): Standardized {
  if (model.outputs.length > 1 && ofClasses?.some((weights) => weights)) {
    for (const weights of ofClasses) weights?.dispose();
    throw classWeightOfSeveral();
  }
  const weightOf = (ofClass: tfc.Tensor | null): tfc.Tensor | null => {
    if (!training || !ofClass) return training?.clone() ?? ofClass;
    const product = tfc.mul(training, ofClass);
    ofClass.dispose();
    return product;
  };
  const each = model.outputs.map((_, i) => weightOf(ofClasses?.[i] ?? null));
  return [inputs, targets, [...each, training ?? null, validation ?? null]];
}

/** Those in the data of `fitLoop`. */
export function weightsIn({ inputs, outputs }: TfModel, data: readonly (tfc.Tensor | null)[]): Weights {
  const at = inputs.length + 2 * outputs.length;
  return { training: data[at] ?? undefined, validation: data[at + 1] ?? undefined };
}

/** Weights of the rows of a validation; undefined where it has none. @param count rows that are trained on */
export function validationWeights({ training, validation }: Weights, count: number): tfc.Tensor | undefined {
  if (validation) return validation.clone();
  const all = training?.shape[0] ?? 0;
  return training && all > count ? tfc.slice(training, count, all - count) : undefined;
}

type Weighted = readonly { readonly weights: Column | undefined }[];

/** @throws UnsupportedError for weights that the model cannot have */
export function checkWeights(model: TfModel, compiled: Compiled, targets: Weighted): void {
  const weights = targets.find((target) => target.weights !== undefined)?.weights;
  if (weights) checkWeightsOfRows(model, compiled, weights.isOfRows ? 'sampleWeight' : 'classWeight');
}

const classWeightOfSeveral = (): UnsupportedError =>
  new UnsupportedError('classWeight', 'is not supported for models with several outputs');

export function checkWeightsOfRows({ outputs }: TfModel, { hasLossOfBatch, format }: Compiled, what: 'sampleWeight' | 'classWeight'): void {
  if (what === 'classWeight' && outputs.length > 1) throw classWeightOfSeveral();
  if (hasLossOfBatch) throw new UnsupportedError(what, 'needs a loss by its name: a function of tf.losses gives one number for a batch');
  if (format.targets.some(({ kind, shape }) => shape.length > (kind === 'classes' ? 0 : 1)))
    throw new UnsupportedError(what, 'is not supported where an example has several targets');
}
