/** The types of docs/reference/schema.graphql as the client returns them. Times are ISO 8601 texts in UTC. */
import type { RowFormat, RunSpec } from '@paceline/spec';

export type RunStatus =
  | 'PENDING'
  | 'QUEUED'
  | 'PROVISIONING'
  | 'RUNNING'
  | 'PAUSING'
  | 'PAUSED'
  | 'RECOVERING'
  | 'SUCCEEDED'
  | 'FAILED'
  | 'CANCELLED';
export type MemberStatus = 'IDLE' | 'BUSY' | 'LOST' | 'INCOMPATIBLE';

/** Statuses that a run never leaves by itself. */
export const FINAL_STATUSES: ReadonlySet<RunStatus> = new Set(['SUCCEEDED', 'FAILED', 'CANCELLED']);

export interface ApiKey {
  readonly id: string;
  readonly name: string;
  /** The first characters of the secret, to tell keys apart. */
  readonly prefix: string;
  readonly createdAt: string;
  readonly lastUsedAt: string | null;
  readonly revokedAt: string | null;
  readonly expiresAt: string | null;
  readonly isReadOnly: boolean;
}

export interface Team {
  readonly id: string;
  readonly name: string;
  readonly createdAt: string;
  readonly apiKeys: readonly ApiKey[];
}

/** null in an answer is no limit. */
export interface TeamLimits {
  /** Runs that are not over. */
  readonly activeRuns: number | null;
  /** Places of parameter servers, standbys among them. */
  readonly serverPlaces: number | null;
  /** Workers in seats. */
  readonly workers: number | null;
  /** Parameters of all runs that are not over. */
  readonly parameters: number | null;
  /** Bytes of all datasets. */
  readonly datasetBytes: number | null;
}

export interface LimitedTeam extends Team {
  readonly limits: TeamLimits;
  readonly used: { readonly [limit in keyof TeamLimits]: number };
}

export interface Viewer {
  readonly team: Team;
  readonly apiKey: ApiKey;
  readonly isAdmin: boolean;
}

/** A name of the team for a trained model. */
export interface ModelAlias {
  readonly name: string;
  readonly runId: string;
  /** Committed rounds of a checkpoint; null for the result. */
  readonly round: number | null;
  readonly updatedAt: string;
}

export interface ClusterSpec {
  readonly id: string;
  readonly name: string;
  readonly createdAt: string;
  /** Addresses of the ps tasks, as in TF_CONFIG. */
  readonly servers: readonly string[];
  readonly workers: readonly string[];
}

/** One content of a dataset: it never changes. */
export interface DatasetVersion {
  readonly id: string;
  /** SHA-256 of the manifest. */
  readonly version: string;
  /** Of all splits. */
  readonly rows: number;
  readonly bytes: number;
  readonly columnCount: number;
  readonly source: string;
  readonly createdAt: string;
  /** The API key that made it. */
  readonly createdBy: string;
}

/** Of the release, or of the team. */
export interface Dataset {
  readonly id: string;
  readonly name: string;
  readonly isBuiltIn: boolean;
  readonly title: string;
  readonly trainExamples: number;
  readonly evalExamples: number;
  /** Of a built-in one: inputs and targets of one example. */
  readonly format: RowFormat | null;
  readonly license: string | null;
  readonly source: string;
  readonly createdAt: string | null;
  /** null for a built-in one. */
  readonly newest: DatasetVersion | null;
}

export interface DatasetColumn {
  readonly name: string;
  readonly kind: 'number' | 'category' | 'array' | 'sequence' | 'text' | 'image';
  readonly dtype: string | null;
  readonly shape: readonly number[] | null;
  readonly vocabularySize: number | null;
  /** The first 100 entries. */
  readonly vocabulary: readonly string[] | null;
  readonly statistics: Readonly<Record<string, unknown>>;
}

export interface DatasetSchema {
  /** The default target. */
  readonly label: string | null;
  /** Classes of the label that no row of the training split has. */
  readonly untrainedClasses: readonly string[];
  readonly isOrdered: boolean;
  readonly droppedRows: number;
  readonly splits: readonly { readonly name: string; readonly rows: number; readonly bytes: number; readonly shards: number }[];
  readonly columns: readonly DatasetColumn[];
}

export interface DatasetDetail extends Dataset {
  /** That was asked for; null for a built-in one, and when there is no such version. */
  readonly version: (DatasetVersion & { readonly schema: DatasetSchema }) | null;
  /** Newest first. */
  readonly versions: readonly DatasetVersion[];
  /** That use it, newest first. */
  readonly runs: readonly { readonly id: string; readonly name: string; readonly status: RunStatus; readonly createdAt: string }[];
}

export interface DatasetPreview {
  readonly columns: readonly string[];
  /** One list of values for each row, in the order of the columns. */
  readonly rows: readonly (readonly unknown[])[];
}

/** An import that the api carries out. */
export interface DatasetImport {
  readonly id: string;
  readonly name: string;
  readonly state: 'PENDING' | 'IMPORTING' | 'READY' | 'FAILED';
  readonly reason: string | null;
  readonly rows: number;
  readonly bytes: number;
  readonly totalBytes: number | null;
  readonly version: string | null;
  readonly createdAt: string;
  readonly finishedAt: string | null;
}

export type RunPhase = 'waiting' | 'training' | 'pausing' | 'evaluating' | 'finished' | 'paused' | 'cancelled' | 'failed';

export type MeasuresByName = Readonly<Record<string, number | null>>;

/** What was measured on the evaluation split with the COMMIT of a round. */
export interface Validation {
  readonly round: number;
  readonly examples: number;
  readonly values: MeasuresByName;
}

export interface RunProgress {
  readonly phase: RunPhase;
  readonly round: number;
  readonly totalRounds: number;
  readonly epoch: number;
  readonly totalEpochs: number;
  readonly loss: number | null;
  readonly accuracy: number | null;
  /** Loss and metrics in training, by name. */
  readonly values: MeasuresByName;
  /** The newest; null before the first, and of runs that do not validate while they train. */
  readonly validation: Validation | null;
  readonly examplesPerSecond: number | null;
  readonly etaSeconds: number | null;
  readonly workers: number;
  readonly replicas: number;
  readonly waitingFor: string | null;
}

/** Committed rounds, and what was measured on the evaluation split then. */
export interface MeasuredRound {
  readonly round: number;
  readonly values: MeasuresByName;
}

/** What the validations of a run have come to. */
export interface RunCourse {
  /** By which metric they are compared: val_ and its name. */
  readonly metric: string;
  readonly better: 'higher' | 'lower';
  readonly best: MeasuredRound;
  readonly last: MeasuredRound;
  /** Where reduceLROnPlateau has lowered the rate: factors of the schedule before and after so many committed rounds. */
  readonly reductions: readonly { readonly round: number; readonly was: number; readonly factor: number }[];
}

export interface RunLedger {
  readonly committedRounds: number;
  readonly committedExamples: number;
  /** Of committed rounds, but in no update. */
  readonly droppedExamples: number;
  readonly expectedExamples: number;
  readonly refusedFrames: number;
  readonly refusedConnections: number;
}

export interface RunResult {
  readonly rounds: number;
  readonly loss: number | null;
  readonly accuracy: number | null;
  /** Of runs that measure them. */
  readonly meanAbsoluteError: number | null;
  readonly meanSquaredError: number | null;
  /** Loss and metrics on the evaluation split, by name. */
  readonly values: MeasuresByName;
  /** Rounds in the weights: fewer than `rounds` where early stopping has restored the best ones. */
  readonly weightsRound: number;
  readonly examplesPerSecond: number;
  readonly trainedExamples: number;
  readonly trainingMs: number;
  readonly weightsSha256: string;
  readonly weightsUrl: string | null;
}

export interface RunStatusChange {
  readonly from: RunStatus | null;
  readonly to: RunStatus;
  readonly reason: string;
  readonly attempt: number;
  readonly at: string;
}

export interface FleetMember {
  readonly id: string;
  readonly name: string;
  readonly status: MemberStatus;
  readonly host: string;
  readonly pid: number;
  readonly version: string;
  readonly protocolVersion: number;
  readonly rssBytes: number;
  readonly lastSeenAt: string;
  readonly startedAt: string;
  readonly runId: string | null;
}
export interface Worker extends FleetMember {
  /** Engine fingerprint, null until the engine is loaded. */
  readonly engine: string | null;
  readonly engines: readonly WorkerEngine[];
  readonly devices: readonly { readonly name: string; readonly type: string; readonly memoryBytes: number }[];
}
export interface WorkerEngine {
  readonly name: string;
  readonly fingerprint: string | null;
  /** Of the model that the worker measured last. */
  readonly examplesPerSecond: number | null;
  readonly isChosen: boolean;
}
export type Server = FleetMember;

export interface StepTask {
  readonly id: string;
  readonly seat: number;
  readonly n: number;
  readonly state: 'OPEN' | 'HELD' | 'CLOSED';
  readonly worker: { readonly id: string; readonly name: string } | null;
  readonly replicas: readonly number[];
  readonly createdAt: string;
}

export interface RunServer {
  readonly index: number;
  /** STANDBY only in a shard that has two servers. */
  readonly role: 'PRIMARY' | 'STANDBY';
  /** Raised by each takeover of a standby inside the attempt; 1 at the start. */
  readonly term: number;
  readonly serverId: string;
  readonly address: string;
  readonly state: 'CLAIMED' | 'STARTED' | 'LOST';
}

/** One uninterrupted life of a run. */
export interface RunAttempt {
  readonly number: number;
  readonly createdAt: string;
  /** When its servers were told to begin. */
  readonly startedAt: string | null;
  readonly endedAt: string | null;
  /** Why it ended, in one word, for example SERVER_LOST. */
  readonly endCause: string | null;
  readonly endReason: string | null;
  readonly endRound: number | null;
  /** Committed rounds of the checkpoint that it began with; 0 without one. */
  readonly fromRound: number;
  /** The attempt that wrote this checkpoint. */
  readonly parentNumber: number | null;
  /** The run of this checkpoint, when it is another one. */
  readonly parentRunId: string | null;
}

export interface RunCheckpoint {
  readonly attempt: number;
  /** Committed rounds in it. */
  readonly round: number;
  readonly totalRounds: number;
  readonly bytes: number;
  readonly sha256: string;
  readonly loss: number | null;
  readonly reason: 'cadence' | 'pause' | 'final' | 'shutdown';
  /** VOID: a restore went back before it; INVALID: a server could not load it. */
  readonly state: 'USABLE' | 'VOID' | 'INVALID';
  readonly createdAt: string;
}

/** What lists show. */
export interface RunSummary {
  readonly id: string;
  readonly name: string;
  readonly status: RunStatus;
  readonly statusReason: string | null;
  readonly statusChangedAt: string;
  readonly attempt: number;
  /** Attempts that may still be started after failures without progress. */
  readonly restartsLeft: number;
  /** Workers that may hold a seat at the same time. */
  readonly workersWanted: number;
  readonly createdAt: string;
  readonly startedAt: string | null;
  readonly finishedAt: string | null;
  readonly parameterCount: number;
  readonly progress: RunProgress;
  readonly result: RunResult | null;
}

export interface Run extends RunSummary {
  readonly spec: RunSpec;
  readonly clusterSpec: ClusterSpec | null;
  readonly ledger: RunLedger;
  /** Modes async and ssp: updates by their staleness 0, 1, 2, …, the last place for all beyond. Empty in mode sync. */
  readonly staleness: readonly number[];
  /** Null before the first validation, and of a run that does not validate while it trains. */
  readonly course: RunCourse | null;
  readonly statusHistory: readonly RunStatusChange[];
  readonly stepTasks: readonly StepTask[];
  readonly servers: readonly RunServer[];
  /** Newest first. */
  readonly attempts: readonly RunAttempt[];
}

export interface RunEvent {
  readonly seq: number;
  readonly type: string;
  readonly message: string;
  readonly data: unknown;
  readonly at: string;
  readonly attempt: number;
}

export interface RunMetric {
  readonly seq: number;
  readonly round: number;
  readonly rounds: number;
  readonly epoch: number;
  readonly loss: number | null;
  readonly accuracy: number | null;
  readonly values: MeasuresByName;
  readonly validation: Validation | null;
  readonly examplesPerSecond: number;
  readonly roundMs: number;
}

export interface MetricSeries {
  readonly name: string;
  readonly points: readonly {
    readonly round: number;
    readonly rounds: number;
    readonly value: number;
    readonly min: number;
    readonly max: number;
    readonly atMs: number;
  }[];
}

/** What the result of a run says of its evaluation split. */
export interface RunPredictions {
  readonly examples: number;
  /** Those of them that were looked at: all, or evenly spread ones. */
  readonly measured: number;
  readonly split: string;
  /** For each output of the model; for each number by itself where an output has a few. */
  readonly outputs: readonly (PredictedClasses | PredictedValues | UnpicturedOutput)[];
}

export interface PredictedClasses {
  readonly kind: 'classes';
  readonly name: string;
  readonly count: number;
  readonly accuracy: number;
  readonly classes: number;
  readonly labels: readonly string[];
  /** matrix[t][p]: how many of class t were taken for class p. Null with many classes. */
  readonly matrix: readonly (readonly number[])[] | null;
  readonly confusions: readonly { readonly truth: string; readonly prediction: string; readonly count: number }[];
  readonly scores: readonly {
    readonly label: string;
    readonly count: number;
    readonly predicted: number;
    readonly precision: number | null;
    readonly recall: number | null;
    readonly f1: number | null;
  }[];
  readonly wrongCount: number;
  readonly columns: readonly string[];
  readonly wrong: readonly {
    readonly example: number;
    readonly step: number | null;
    readonly truth: string;
    readonly prediction: string;
    readonly probability: number | null;
    /** A PNG as a data address. */
    readonly image: string | null;
    readonly cells: readonly unknown[];
  }[];
}

export interface PredictedValues {
  readonly kind: 'values';
  readonly name: string;
  readonly count: number;
  /** In the units of the data. */
  readonly meanAbsoluteError: number | null;
  readonly rootMeanSquaredError: number | null;
  readonly rSquared: number | null;
  /** Pairs of true value and prediction. */
  readonly points: readonly (readonly [truth: number, prediction: number])[];
  readonly columns: readonly string[];
  readonly worst: readonly {
    readonly example: number;
    readonly truth: number;
    readonly prediction: number;
    readonly image: string | null;
    readonly cells: readonly unknown[];
  }[];
}

/** An output of which no picture can be made. */
export interface UnpicturedOutput {
  readonly kind: 'none';
  readonly name: string;
  readonly reason: string;
}

export interface Page<T> {
  readonly nodes: readonly T[];
  readonly totalCount: number;
  /** Give as `after` for the next page; null on the last. */
  readonly nextCursor: string | null;
}
