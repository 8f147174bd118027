/**
 * `@paceline/engine/planning`: what needs no tf.js, for processes that compute in threads and processes of their own. Loading tf.js takes half a
 * second of a processor and 60 MB.
 */
export { findAdapterInProcess } from './backends/webgpu/adapter-in-process.js';
export { DescribeBusyError, describeModelInThread } from './describe/describe-thread.js';
export { outputActivations } from './model/ends.js';
export { frozenLayers } from './topology/frozen-layers.js';
export { collectGarbage } from './training/garbage.js';
export { ModelError } from './errors/model-error.js';
export { layersUnderMasks } from './topology/masks.js';
export { planModel } from './topology/plan-model.js';
export { EVERY_LAYER, LAYER_SETTINGS } from './topology/settings/layer-settings.js';
export type { Settings } from './topology/settings/setting.js';
export type { PlannedLayer, PlannedModel } from './topology/planned-model.js';
export {
  runTrialInProcess,
  trialExamples,
  trialRows,
  type TrialRequest,
  type TrialResult,
  type TrialRows,
} from './availability/trial-request.js';
export { zooTopology } from './model-zoo/zoo-topology.js';
