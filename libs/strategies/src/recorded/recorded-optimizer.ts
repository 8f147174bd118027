/** An optimizer of Keras as one of tf.js, where both take the same steps; else as one of the library's own. */
import type { OptimizerSpec } from '@paceline/spec';
import * as tfc from '@tensorflow/tfjs-core';
import { optimizers } from '../optimizers.js';
import { isOfTfjs, optimizerReason } from './optimizer-reason.js';

/** @throws Error for one that `optimizerReason` refuses */
export function optimizerOf(optimizer: OptimizerSpec): tfc.Optimizer {
  const reason = optimizerReason(optimizer);
  if (reason !== undefined) throw new Error(reason);
  const { learningRate } = optimizer;
  if (!isOfTfjs(optimizer)) return ownOf(optimizer);
  switch (optimizer.name) {
    case 'sgd':
      return tfc.train.sgd(learningRate);
    case 'momentum':
      return tfc.train.momentum(learningRate, optimizer.momentum, optimizer.nesterov);
    case 'adam':
      return tfc.train.adam(learningRate, optimizer.beta1, optimizer.beta2, optimizer.epsilon);
    case 'adamax':
      return tfc.train.adamax(learningRate, optimizer.beta1, optimizer.beta2, optimizer.epsilon);
    case 'adagrad':
      return tfc.train.adagrad(learningRate, optimizer.initialAccumulator);
    case 'rmsprop':
      return tfc.train.rmsprop(learningRate, optimizer.rho, optimizer.momentum, optimizer.epsilon);
    default:
      throw new Error(`tf.js has no ${optimizer.name}`);
  }
}

function ownOf({ name, ...fields }: OptimizerSpec): tfc.Optimizer {
  const make = (optimizers as Readonly<Record<string, (options: object) => tfc.Optimizer>>)[name];
  if (!make) throw new Error(`the library has no ${name}`);
  return make(fields);
}

/** Adam of tf.js adds epsilon to the corrected root of the second moment, Keras to the one that is not corrected: so much in step t, from 1. */
export function epsilonOfStep(optimizer: OptimizerSpec, step: number): number | undefined {
  return optimizer.name === 'adam' && isOfTfjs(optimizer) ? optimizer.epsilon / Math.sqrt(1 - optimizer.beta2 ** step) : undefined;
}
