/** Everything that models here have in place of what tf.js registers. */
import { registerConv3dTransposeGradient } from './conv3d-transpose.js';
import { registerGenericRnn } from './generic-rnn.js';
import { registerPreprocessing } from './preprocessing.js';
import { registerResetAfter } from './reset-after.js';

let isRegistered = false;

/** Once per thread, before models are built. */
export function registerLayers(): void {
  if (isRegistered) return;
  isRegistered = true;
  registerResetAfter();
  registerGenericRnn();
  registerPreprocessing();
  registerConv3dTransposeGradient();
}
