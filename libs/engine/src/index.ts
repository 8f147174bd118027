export { EngineMemoryError, type BackendOptions, type EngineDevice } from './backend.js';
export { EngineUnavailableError } from './engine-unavailable.js';
export { describeModel, type DescribeOptions, type ExampleShape, type ModelPart } from './describe.js';
export { DescribeBusyError, describeModelInThread, type DescribeInThreadOptions } from './describe-thread.js';
export { ModelError } from './model-error.js';
export { createEngine, type Batch, type Engine, type EngineOptions, type StepRequest, type Sums } from './engine.js';
export { runTrial, runTrialInProcess, type TrialRequest, type TrialResult } from './trial.js';
