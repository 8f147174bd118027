/** Everything that models here have in place of what tf.js registers. */
import { registerActivations } from './activations.js';
import { registerAttention } from './attention.js';
import { registerConv3dTransposeGradient } from './conv3d-transpose.js';
import { registerDilated } from './dilated.js';
import { registerGlobalPooling } from './global-pooling.js';
import { registerGenericRnn } from './generic-rnn.js';
import { registerKerasOnly } from './keras-only.js';
import { registerPreprocessing } from './preprocessing.js';
import { registerRectifiers } from './rectifiers.js';
import { registerResetAfter } from './reset-after.js';
import { registerTokenEmbedding } from './token-embedding.js';

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
  registerGlobalPooling();
  registerPreprocessing();
  registerKerasOnly();
  registerConv3dTransposeGradient();
  registerAttention();
  registerTokenEmbedding();
}
