/** The types of docs/reference/schema.graphql as the client returns them. Times are ISO 8601 texts in UTC. */
import type { RunSpec } from '@paceline/spec';

export type RunStatus =
  'PENDING' | 'QUEUED' | 'PROVISIONING' | 'RUNNING' | 'PAUSING' | 'PAUSED' | 'RECOVERING' | 'SUCCEEDED' | 'FAILED' | 'CANCELLED';
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

export interface ClusterSpec {
  readonly id: string;
  readonly name: string;
  readonly createdAt: string;
  /** Addresses of the ps tasks, as in TF_CONFIG. */
  readonly servers: readonly string[];
  readonly workers: readonly string[];
}

export interface Dataset {
  readonly id: string;
  readonly name: string;
  readonly title: string;
  readonly trainExamples: number;
  readonly evalExamples: number;
  readonly inputShape: readonly number[];
  readonly classes: number;
  readonly license: string;
  readonly source: string;
}

export interface RunProgress {
  readonly phase: string;
  readonly round: number;
  readonly totalRounds: number;
  readonly epoch: number;
  readonly totalEpochs: number;
  readonly loss: number | null;
  readonly accuracy: number | null;
  readonly examplesPerSecond: number | null;
  readonly etaSeconds: number | null;
  readonly workers: number;
  readonly replicas: number;
  readonly waitingFor: string | null;
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
  readonly state: string;
  readonly worker: { readonly id: string; readonly name: string } | null;
  readonly replicas: readonly number[];
  readonly createdAt: string;
}

export interface RunServer {
  readonly index: number;
  /** PRIMARY, or STANDBY of a shard that has two servers. */
  readonly role: string;
  /** Raised by each takeover of a standby inside the attempt; 1 at the start. */
  readonly term: number;
  readonly serverId: string;
  readonly address: string;
  readonly state: string;
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
  /** cadence, pause, final or shutdown. */
  readonly reason: string;
  /** USABLE; VOID: a restore went back before it; INVALID: a server could not load it. */
  readonly state: string;
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

export interface Page<T> {
  readonly nodes: readonly T[];
  readonly totalCount: number;
  /** Give as `after` for the next page; null on the last. */
  readonly nextCursor: string | null;
}
