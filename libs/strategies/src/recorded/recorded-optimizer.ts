/** An optimizer of Keras as one of tf.js, where both take the same steps. */
import type { OptimizerSpec } from '@paceline/spec';
import * as tfc from '@tensorflow/tfjs-core';
import { optimizerReason } from './optimizer-reason.js';

/** @throws Error for one that `optimizerReason` refuses */
export function optimizerOf(optimizer: OptimizerSpec): tfc.Optimizer {
  const reason = optimizerReason(optimizer);
  if (reason !== undefined) throw new Error(reason);
  const { learningRate } = optimizer;
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

/** Adam of tf.js adds epsilon to the corrected root of the second moment, Keras to the one that is not corrected: so much in step t, from 1. */
export function epsilonOfStep(optimizer: OptimizerSpec, step: number): number | undefined {
  return optimizer.name === 'adam' ? optimizer.epsilon / Math.sqrt(1 - optimizer.beta2 ** step) : undefined;
}
