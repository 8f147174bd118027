/** What the client returns: the fragments of operations.graphql, and parts of them, by name. Times are ISO 8601 texts in UTC. */
import type {
  datasetPreviewResult,
  datasetResult,
  LimitedTeam,
  rateLimitResult,
  Run,
  RunPredictions as AnsweredPredictions,
  RunStatus,
  RunSummary,
  viewerResult,
  Worker,
} from './generated/operations.js';

export type {
  ApiKey,
  ClusterSpec,
  Dataset,
  DatasetImport,
  DatasetSchema,
  DatasetVersion,
  LimitedTeam,
  MetricSeries,
  ModelAlias,
  Run,
  RunCheckpoint,
  RunEvent,
  RunMetric,
  RunPhase,
  RunStatus,
  RunSummary,
  Server,
  Team,
  Worker,
} from './generated/operations.js';

/** Statuses that a run never leaves by itself. */
export const FINAL_STATUSES: ReadonlySet<RunStatus> = new Set(['SUCCEEDED', 'FAILED', 'CANCELLED']);

export type Viewer = viewerResult['viewer'];
export type RateLimit = rateLimitResult['rateLimit'];
/** null is no limit. */
export type TeamLimits = NonNullable<LimitedTeam['limits']>;
export type WorkerEngine = Worker['engines'][number];
export type RunProgress = RunSummary['progress'];
export type RunResult = NonNullable<RunSummary['result']>;
/** Loss and metrics by name. */
export type MeasuresByName = RunProgress['values'];
/** What was measured on the evaluation split with the commit of a round. */
export type Validation = NonNullable<RunProgress['validation']>;
export type RunCourse = NonNullable<Run['course']>;
export type RunLedger = Run['ledger'];
export type RunStatusChange = Run['statusHistory'][number];
export type StepTask = Run['stepTasks'][number];
export type RunServer = Run['servers'][number];
export type RunAttempt = Run['attempts'][number];
/** Predictions of a run's result for its evaluation split. */
export type RunPredictions = { readonly [field in keyof AnsweredPredictions]: NonNullable<AnsweredPredictions[field]> };
/** For each output of the model; for each number by itself where an output has a few. */
export type PredictedOutput = RunPredictions['outputs'][number];
export type PredictedClasses = Extract<PredictedOutput, { readonly kind: 'classes' }>;
export type PredictedValues = Extract<PredictedOutput, { readonly kind: 'values' }>;
export type DatasetDetail = NonNullable<datasetResult['dataset']>;
export type DatasetColumn = NonNullable<DatasetDetail['version']>['schema']['columns'][number];
export type DatasetPreview = NonNullable<NonNullable<datasetPreviewResult['dataset']>['version']>['preview'];

export interface Page<T> {
  readonly nodes: readonly T[];
  readonly totalCount: number;
  /** Give as `after` for the next page; null on the last. */
  readonly nextCursor: string | null;
}
