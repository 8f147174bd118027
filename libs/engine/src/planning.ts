/**
 * `@paceline/engine/planning`: what needs no tf.js, for processes that compute in threads and processes of their own. Loading tf.js takes half a
 * second of a processor and 60 MB.
 */
export { findAdapterInProcess } from './webgpu/adapter-in-process.js';
export { DescribeBusyError, describeModelInThread, type DescribeInThreadOptions } from './describe-thread.js';
export { outputActivations, type LossPart } from './ends.js';
export { EngineUnavailableError } from './engine-unavailable.js';
export { frozenLayers } from './frozen.js';
export { collectGarbage } from './housekeeping.js';
export { ModelError } from './model-error.js';
export { layersUnderMasks } from './masks.js';
export { planModel, type ModelPart } from './plan-model.js';
export type { Edge, PlannedLayer, PlannedModel } from './topology.js';
export { runTrialInProcess, trialExamples, trialRows, type TrialRequest, type TrialResult, type TrialRows } from './trial-request.js';
export { zooTopology } from './zoo.js';
