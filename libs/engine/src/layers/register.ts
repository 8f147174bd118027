/** Everything that models here have in place of what tf.js registers. */
import { registerActivations } from './activations.js';
import { registerConv3dTransposeGradient } from './conv3d-transpose.js';
import { registerDilated } from './dilated.js';
import { registerGenericRnn } from './generic-rnn.js';
import { registerPreprocessing } from './preprocessing.js';
import { registerRectifiers } from './rectifiers.js';
import { registerResetAfter } from './reset-after.js';

let isRegistered = false;

/** Once per thread, before models are built. */
export function registerLayers(): void {
  if (isRegistered) return;
  isRegistered = true;
  registerActivations();
  registerRectifiers();
  registerDilated();
  registerResetAfter();
  registerGenericRnn();
  registerPreprocessing();
  registerConv3dTransposeGradient();
}
