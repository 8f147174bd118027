export type { BackendOptions, EngineDevice } from './backend.js';
export { EngineMemoryError } from './engine-memory-error.js';
export { EngineUnavailableError } from './engine-unavailable.js';
export { describeModel, type DescribeOptions, type ExampleShape, type ModelPart } from './describe.js';
export { DescribeBusyError, describeModelInThread, type DescribeInThreadOptions } from './describe-thread.js';
export { collectGarbage } from './housekeeping.js';
export { LeakDetector, type Growth, type LeakLimits, type LeakMeasure, type LeakSample } from './leaks/leak-detector.js';
export type { Kept } from './leaks/leak-trace.js';
export { ModelError } from './model-error.js';
export { createEngine, type Batch, type Engine, type EngineOptions, type StepRequest, type Sums } from './engine.js';
export {
  agreesWithWasm,
  runTrial,
  runTrialInProcess,
  trialExamples,
  trialRows,
  type TrialRequest,
  type TrialResult,
  type TrialRows,
} from './trial.js';
export { findAdapterInProcess } from './webgpu/adapter-in-process.js';
