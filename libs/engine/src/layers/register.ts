/** Everything that models here have in place of what tf.js registers. */
import { registerActivations } from './activations/activations.js';
import { registerAxes } from './axes.js';
import { registerAttention } from './attention/attention.js';
import { registerConv3dTransposeGradient } from './convolution/conv3d-transpose.js';
import { registerDilated } from './convolution/dilated.js';
import { registerGlobalPooling } from './pooling/global-pooling.js';
import { registerGenericRnn } from './recurrent/generic-rnn.js';
import { registerKerasOnly } from './keras-only.js';
import { registerMasking } from './masking.js';
import { registerPreprocessing } from './preprocessing/preprocessing.js';
import { registerRectifiers } from './activations/rectifiers.js';
import { registerResetAfter } from './recurrent/reset-after.js';
import { registerTokenEmbedding } from './embedding/token-embedding.js';

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
  registerMasking();
  registerAxes();
  registerPreprocessing();
  registerKerasOnly();
  registerConv3dTransposeGradient();
  registerAttention();
  registerTokenEmbedding();
}
