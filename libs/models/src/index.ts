export { uncutReason } from '@paceline/engine';
export { unzip, zip, type ExportFile } from './archive.js';
export { builtInPreprocessing, planPreprocessing } from './preprocessing-of.js';
export { StreamCutter, type Bytes } from './byte-stream.js';
export { ExportError, type ExportErrorCode } from './export-error.js';
export { describedOutputs, EXPORT_FORMATS, exportModel, type ExportFormat, type TrainedModel } from './export-model.js';
export { cardMarkdown, modelCardSchema, type CardFacts, type ModelCard } from './model-card.js';
export { preprocessingSchema, type PreparedInput, type PreparedOutput, type Preprocessing } from './preprocessing.js';
export { leftoversOf, unpack, type UnpackedFile } from './unpack.js';
export type { Evaluation, OutputMeasures } from './evaluate.js';
export type * from './predictions/report.js';
export { runPredictions, type EvaluatedRows } from './predictions/run-predictions.js';
export { evaluateModel, type EvaluationData, type RowsOfFile } from './evaluate-columns.js';
export { generate, type GenerateOptions } from './generate.js';
export { predictRows } from './predict-rows.js';
export { importModel, readTopology, type ImportedModel } from './import/read-model.js';
export { ModelError, rowsOfDataset, summarizeModel, type ModelSummary } from './model-summary.js';
export { openModelFolder, type ModelFolder } from './model-folder.js';
export {
  encoderFor,
  inputColumns,
  plannedColumns,
  predictionsCsv,
  predictionsOf,
  type InputRow,
  type Prediction,
  type RowEncoder,
} from './rows.js';
export type { ShardSource } from '@paceline/data';
export { variablesInKerasOrder } from './keras-weights.js';
export {
  readRecording,
  RecordingError,
  type RecordedCase,
  type RecordedTensor,
  type Recording,
  type TrainingRecording,
  type UpdatesRecording,
} from './recording.js';
export { recordedProgram, type RecordedProgram } from './recorded-program.js';
export { safetensorsFile, safetensorsTensors, type NamedTensor } from './tensor-file.js';
