/** The spec of a run: its schema with defaults, what does not go together in it, and what follows from it for servers, workers and their memory. */
export { LIMITS } from './limits.js';
export { AVERAGE_SLOT, ESTIMATE_SLOT, optimizerSlots, type AppliedOptimizer } from './optimizer-slots.js';
export { isLayerwise, optimizerSchema, type OptimizerSpec, type OptimizerSpecInput } from './optimizer-spec.js';
export {
  augmentationSchema,
  type BackendName,
  BACKENDS,
  BUILT_IN_DATASETS,
  MODEL_ZOO,
  modelSchema,
  parseRunSpec,
  parseStoredSpec,
  roundPlan,
  type RunSpec,
  type RunSpecInput,
  runSpecSchema,
} from './run-spec.js';
export {
  CLASSIFYING,
  CROSSENTROPIES,
  defaultLoss,
  defaultModel,
  HINGES,
  LOSSES,
  type LossName,
  lossName,
  lossOfOutput,
  type LossOptions,
  measuredOf,
  metricName,
  type OutputLoss,
} from './losses.js';
export { unusedAtOutputs } from './unused-options.js';
export { measureParts, METRIC_FORMS } from './metric-forms.js';
export { MEASURED_NAMES, type MeasuredName, measuredName, METRIC_ALIASES } from './metric-names.js';
export { learningRateSchema } from './learning-rate.js';
export { isRateOver, pinDecay, rateFactor, type RateFactor, unpinDecay } from './rate-factor.js';
export { isHeldAlone, shardCount, shardHosts } from './shard-holders.js';
export { backupReplicasOf, isThreaded, MODES, stageCutsOf, stagesOf, startWorkersOf, threadsOf, type StrategySpec } from './strategy.js';
export { allowedLocalUpdates, withLocalRounds } from './auto-local-updates.js';
export {
  onlyStrategy,
  pickLocalUpdates,
  pickStrategy,
  picksStrategy,
  type MeasuredExchange,
  type PickedStrategy,
  type PresentFleet,
} from './auto-strategy.js';
export {
  appliedByServers,
  fragmentsOf,
  movingRate,
  roundExamples,
  roundsOf,
  stepsBefore,
  stepsOfRound,
  syncSteps,
} from './local-update.js';
export { type GridRound, type RoundGrid, roundGrid, type RoundGridOptions } from './round-grid.js';
export {
  EMBEDDING_KINDS,
  type EmbeddingsSpec,
  EVALUATION_EXAMPLES,
  heldRows,
  workerElements,
  isSparse,
  MOST_ROW_BYTES,
  MOST_TABLE_ROWS,
  restsWithoutGradient,
} from './embeddings.js';
export { camelCase, type ConfigField, fieldsOf } from './config-keys.js';
export {
  ALLOWED_CELLS,
  ALLOWED_LAYERS,
  type FoundLayer,
  isMaskOperation,
  isModelClass,
  layersOf,
  type LayerTopology,
  LEFT_OUT,
  type ModelTopology,
} from './model-topology.js';
export type { ModelDescription, ModelEnd, Section, VariableSpec } from './model-description.js';
export { describeSurface, specFromSurface, specJsonSchema, type SurfaceField } from './surface.js';
export { comparableConfig, configDifferences } from './comparable-config.js';
export {
  type HeldOutData,
  holdOut,
  validates,
  validationExamples,
  validationRounds,
  watchedMetric,
  watchIssues,
} from './validation-rules.js';
export {
  CODECS,
  DEFAULT_DENSITY,
  DEFAULT_PARAMETER_DENSITY,
  DEFAULT_MOMENTUM,
  DEFAULT_RANK,
  dgcDensity,
  encodedBits,
  encodedParameterBits,
  isEncoded,
  FEEDBACK_RULES,
  keepsEstimate,
  keepsRest,
  picksCodec,
  PARAMETER_CODECS,
  VALUE_KINDS,
  sendsDeltas,
  sendsEncodedParameters,
  type CodecSpec,
  type ValueKind,
} from './codec-spec.js';
export {
  localModelIssue,
  GRADIENT_ARENA_BYTES,
  GRADIENT_ARENA_SLACK_BYTES,
  GRADIENT_ARENA_VECTORS,
  gradientVectors,
  gradientWindowBytes,
  MOST_RESIDUAL_BYTES,
  MOST_RESIDUAL_TENSORS,
  residualVectors,
  serverBytes,
  serverPartBytes,
  waitingCopies,
  workerBytes,
} from './worker-memory.js';
export { batchTooLarge, exampleBytes } from './batch-memory.js';
export { closest } from './closest.js';
export { plainIssues, type SpecIssue } from './plain-issues.js';
export { matchesPatterns } from './variable-patterns.js';
export { inheritedLength, inheritSpec, optimizerIssues, variableIssues } from './inherited-spec.js';
export { type KerasOptimizer, optimizerOfKeras } from './keras-optimizer.js';
export {
  CLASS_WEIGHTS_MAX,
  DATASET_NAME,
  datasetReferenceSchema,
  type Feature,
  type Features,
  featuresSchema,
  MODEL_ALIAS,
  parseDatasetReference,
  type Target,
} from './datasets/features.js';
export {
  type Column,
  DATASET_LIMITS,
  type DatasetManifest,
  datasetManifestKey,
  datasetManifestSchema,
  givenManifestSchema,
  type DatasetShard,
  datasetShardKey,
  type HeldOut,
  isStorable,
  type NumberStatistics,
  type Dialect,
  type SplitName,
  SPLITS,
} from './datasets/manifest.js';
export { fieldLength, fieldsOfEnds, type InputField, type RowFormat, type TargetField } from './datasets/row-format.js';
export { type RunData, runDataSchema } from './datasets/run-data.js';
export {
  type Encoder,
  type EncoderOf,
  type FeaturePlan,
  featurePlanSchema,
  type PlannedField,
  type RowsOfExample,
  sortedVocabulary,
} from './datasets/feature-plan.js';
