/** The calls of a model that take data: beside tensors they take arrays, and `fit` and `evaluate` weights of rows. What is made for a call ends with it. */
import type * as tfc from '@tensorflow/tfjs-core';
import type { Compiled } from './compiled.js';
import { GivenArrays } from './given-arrays.js';
import { checkWeightsOfRows, GivenWeights, withWeights } from './row-weights.js';
import type { TfModel } from './tf-model.js';

/** Those that are changed. */
export const TAKING_ARRAYS = ['fit', 'evaluate', 'predict', 'predictOnBatch', 'trainOnBatch', 'standardizeUserData'] as const;

export interface EvaluatedRows {
  /** Of the rows that `evaluate` has, while it runs. */
  weights: tfc.Tensor | undefined;
}

export function takeArrays(model: TfModel, compiled: () => Compiled, evaluated: EvaluatedRows): void {
  const [fit, evaluate, predict] = [model.fit.bind(model), model.evaluate.bind(model), model.predict.bind(model)];
  const [predictOnBatch, trainOnBatch] = [model.predictOnBatch.bind(model), model.trainOnBatch.bind(model)];
  const standardize = model.standardizeUserData.bind(model);
  model.standardizeUserData = async (x, y, weights, ...more) => {
    if (!(weights instanceof GivenWeights)) return standardize(x, y, weights, ...more);
    return withWeights(model, await standardize(x, y, null, ...more), weights);
  };
  model.fit = async (x, y, args = {}) => {
    const given = new GivenArrays(model);
    try {
      const [inputs, targets] = [given.inputs(x), given.targets(y)];
      return await fit(inputs, targets, given.fitArgs(args));
    } finally {
      given.dispose();
    }
  };
  model.evaluate = (x, y, args = {}) => {
    const given = new GivenArrays(model);
    const { sampleWeight, ...others } = args;
    try {
      const [inputs, targets] = [given.inputs(x), given.targets(y)];
      if (sampleWeight == null) return evaluate(inputs, targets, others);
      checkWeightsOfRows(model, compiled(), 'sampleWeight');
      evaluated.weights = given.weights(sampleWeight);
      return evaluate(inputs, targets, others);
    } finally {
      evaluated.weights = undefined;
      given.dispose();
    }
  };
  model.predict = (x, args) => withInputs(model, x, (inputs) => predict(inputs, args));
  model.predictOnBatch = (x) => withInputs(model, x, predictOnBatch);
  model.trainOnBatch = async (x, y) => {
    const given = new GivenArrays(model);
    try {
      const [inputs, targets] = [given.inputs(x), given.targets(y)];
      return await trainOnBatch(inputs, targets);
    } finally {
      given.dispose();
    }
  };
}

function withInputs<T>(model: TfModel, x: unknown, call: (inputs: unknown) => T): T {
  const given = new GivenArrays(model);
  try {
    return call(given.listed(x));
  } finally {
    given.dispose();
  }
}
