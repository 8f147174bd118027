/** tf.js does not export how it reads initializers and regularizers of a config: its Dense layer does it for layers of ours. */
import * as tfl from '@tensorflow/tfjs-layers';
import type { Args } from './replace-class.js';

export interface WeightParts {
  readonly kernelInitializer: never;
  readonly biasInitializer: never;
  readonly kernelRegularizer: never;
  readonly biasRegularizer: never;
}

export function weightParts(args: Args): WeightParts {
  const { kernelInitializer = 'glorotUniform', biasInitializer = 'zeros', kernelRegularizer, biasRegularizer } = args;
  const config = { units: 1, kernelInitializer, biasInitializer, kernelRegularizer, biasRegularizer };
  return tfl.layers.dense(config as never) as unknown as WeightParts;
}
