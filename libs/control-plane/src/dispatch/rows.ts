/**
 * What is stored of a run, as far as the dispatcher reads it, and what follows from that alone. The api selects these rows from
 * PostgreSQL, the simulator keeps them in memory; both make the same observation, the same places and the same jobs of them.
 */
import { shardCount, shardHosts, type ModelDescription, type RunData, type RunSpec } from '@paceline/spec';
import { placementJobId, type PlacementJob, type ServerAddress, type StepTaskJob } from '../contract/queues.js';
import type { ControlFields } from '../contract/control.js';
import type { CoordinatorState, MeasuresRecord, ValidationRecord } from '../contract/reports.js';
import type { SeatFailure } from '../lifecycle/attempt-end.js';
import type { AttemptOrigin, RestorePoint } from '../lifecycle/lineage.js';
import type { ObservedRun, ObservedServer, ObservedTask } from '../lifecycle/observed-run.js';
import type { RunStatus } from '../lifecycle/run-status.js';
import { shardsOf } from '../lifecycle/shards.js';
import type { NeededServers } from '../lifecycle/waiting-reason.js';

export interface StoredRun {
  readonly id: string;
  readonly status: RunStatus;
  readonly statusReason: string | null;
  readonly isWaiting: boolean;
  readonly attempt: number;
  /** A `RunSpec`. */
  readonly spec: unknown;
  readonly cancelRequestedAt: Date | null;
  readonly pauseRequestedAt: Date | null;
  readonly nextAttemptAt: Date | null;
  readonly workersWanted: number | null;
  /** A `StoredCoordinator`. */
  readonly coordinator: unknown;
  readonly coordinatorAt: Date | null;
}

export interface StoredAttempt {
  readonly number: number;
  readonly parentRunId: string | null;
  readonly parentNumber: number | null;
  readonly parentRound: bigint | number | null;
  readonly startedAt: Date | null;
  readonly storedSequence: bigint | number;
  readonly coordinatorTerm: number;
  readonly seatFailures: number;
  readonly lastFailureAt: Date | null;
  readonly endCause?: string | null;
}

export interface StoredServer {
  readonly attempt: number;
  readonly index: number;
  readonly role: 'primary' | 'standby';
  readonly term: number;
  readonly incarnation: number;
  readonly madeAt: Date;
  readonly serverId: string | null;
  readonly host: string | null;
  readonly port: number | null;
  readonly unixPath: string | null;
  readonly storage: string | null;
  readonly claimedAt: Date | null;
  /** The claim counts from the start; the server says again when it has loaded what it begins with. */
  readonly isLoading?: boolean;
  readonly droppedAt: Date | null;
}

export interface StoredTask {
  readonly id: string;
  readonly attempt: number;
  readonly seat: number;
  readonly incarnation: number;
  readonly state: 'OPEN' | 'HELD' | 'CLOSED';
  readonly heldSeats: number;
  readonly workerId: string | null;
  readonly replicas: readonly number[];
  readonly createdAt: Date;
  readonly heldAt: Date | null;
}

/** The newest metric, with the newest validation. */
export interface LatestMetric {
  readonly epoch: number;
  readonly values: MeasuresRecord;
  readonly validation: ValidationRecord | null;
  readonly examplesPerSecond: number;
}

/** `StoredRun.coordinator`: the newest state, which report it came in, and the newest metric. */
export interface StoredCoordinator extends CoordinatorState {
  readonly attempt: number;
  readonly streamId: string;
  readonly latest: LatestMetric | null;
}

/** A run with its newest attempt, its places and the step tasks that are not closed. */
export interface StoredRunRows extends StoredRun {
  readonly attempts: readonly StoredAttempt[];
  readonly servers: readonly StoredServer[];
  readonly stepTasks: readonly StoredTask[];
}

const specOf = (row: Pick<StoredRun, 'spec'>): RunSpec => row.spec as RunSpec;

/** The coordinator of the present attempt; reports of an older attempt say nothing about it. */
export function coordinatorOf(row: Pick<StoredRun, 'coordinator' | 'attempt'>): StoredCoordinator | null {
  const stored = row.coordinator as StoredCoordinator | null;
  return stored?.attempt === row.attempt ? stored : null;
}

/** Undefined when the row of its attempt is not there yet (another api is about to write it). */
export function observedRunOf(row: StoredRunRows, control: ControlFields, lastSeatFailure: SeatFailure | null): ObservedRun | undefined {
  const attempt = row.attempts.find(({ number }) => number === row.attempt);
  if (!attempt) return undefined;
  const spec = specOf(row);
  const tasks = row.stepTasks.filter((task) => task.attempt === row.attempt);
  const coordinator = row.coordinatorAt === null ? null : coordinatorOf(row);
  return {
    runId: row.id,
    status: row.status,
    statusReason: row.statusReason,
    isWaiting: row.isWaiting,
    attempt: row.attempt,
    cancelRequestedAtMs: msOf(row.cancelRequestedAt),
    pauseRequestedAtMs: msOf(row.pauseRequestedAt),
    nextAttemptAtMs: msOf(row.nextAttemptAt),
    ...neededOf(spec),
    minWorkers: 'minWorkers' in spec.strategy ? spec.strategy.minWorkers : undefined,
    maxWorkers: 'maxWorkers' in spec.strategy ? spec.strategy.maxWorkers : undefined,
    replicas: spec.replicas,
    workersWanted: row.workersWanted,
    fromRound: Number(attempt.parentRound ?? 0),
    attemptStartedAtMs: msOf(attempt.startedAt),
    hasOlderResult: row.status === 'SUCCEEDED' && attempt.endCause !== 'FINISHED',
    storedSequence: Number(attempt.storedSequence),
    coordinatorTerm: attempt.coordinatorTerm,
    seatFailures: attempt.seatFailures,
    lastSeatFailureAtMs: msOf(attempt.lastFailureAt),
    lastSeatFailure,
    servers: row.servers
      .filter((server) => server.attempt === row.attempt)
      .map((server) => ({
        ...placeOf(server),
        incarnation: server.incarnation,
        madeAtMs: server.madeAt.getTime(),
        claim: claimOf(server),
      })),
    openTasks: tasks.filter(({ state }) => state === 'OPEN').map(toTask),
    heldTasks: tasks.filter(({ state }) => state === 'HELD').map(toTask),
    coordinator: coordinator && { ...coordinator, atMs: row.coordinatorAt!.getTime() },
    control,
  };
}

/** As `shardsOf` reads it. */
export const placeOf = ({ index, role, term, droppedAt }: Pick<StoredServer, 'index' | 'role' | 'term' | 'droppedAt'>) => ({
  index,
  role,
  term,
  isDropped: droppedAt !== null,
});

const msOf = (date: Date | null): number | null => date?.getTime() ?? null;

function claimOf(server: StoredServer): ObservedServer['claim'] {
  const address = addressOf(server);
  return address && { address, atMs: server.claimedAt!.getTime(), storage: server.storage, isLoading: server.isLoading ?? false };
}

/** Where a claimed part is served; null before its claim. */
export function addressOf({ index, serverId, host, port, unixPath, claimedAt }: StoredServer): ServerAddress | null {
  return claimedAt && serverId && host && port ? { index, serverId, host, port, unixPath } : null;
}

const toTask = ({ id, seat, incarnation, workerId, replicas, heldSeats, createdAt, heldAt }: StoredTask): ObservedTask => ({
  id,
  seat,
  incarnation,
  workerId,
  replicas,
  heldSeats,
  createdAtMs: createdAt.getTime(),
  heldAtMs: msOf(heldAt),
});

/** As `lineageOf` reads it. */
export const originOf = ({
  number,
  parentRunId,
  parentNumber,
  parentRound,
}: Pick<StoredAttempt, 'number' | 'parentRunId' | 'parentNumber' | 'parentRound'>): AttemptOrigin => ({
  number,
  parentRunId,
  parentNumber,
  parentRound: parentRound === null ? null : Number(parentRound),
});

/** Places of an attempt: one for each shard, and one more for each standby. */
const placeCount = ({ strategy }: Pick<RunSpec, 'strategy'>): number => shardCount(strategy) * (1 + strategy.standby);

/** What a run asks of the processes that are to hold its shards. */
export const neededOf = (spec: Pick<RunSpec, 'strategy'>): Required<NeededServers> => ({
  serversNeeded: placeCount(spec),
  standby: spec.strategy.standby,
  shardHosts: shardHosts(spec.strategy),
});

/** Parameter servers that a run needs: one for each place. None where its workers hold the shards. */
export const serverProcesses = (spec: Pick<RunSpec, 'strategy'>): number =>
  shardHosts(spec.strategy) === 'workers' ? 0 : placeCount(spec);

/** Workers that a run needs to begin. */
export const workersNeeded = ({ strategy }: Pick<RunSpec, 'strategy'>): number =>
  shardHosts(strategy) === 'workers' ? shardCount(strategy) : 1;

// ---- what an attempt begins with ----

export interface NewPlace {
  readonly index: number;
  readonly role: 'primary' | 'standby';
  readonly jobId: string;
}

/** The places of an attempt, and the ids of the placement jobs that offer them. */
export function placesOf(runId: string, attempt: number, { strategy }: Pick<RunSpec, 'strategy'>): NewPlace[] {
  const roles = strategy.standby > 0 ? (['primary', 'standby'] as const) : (['primary'] as const);
  return Array.from({ length: shardCount(strategy) }, (_, index) =>
    roles.map((role) => ({ index, role, jobId: placementJobId(runId, attempt, index, 0, role) })),
  ).flat();
}

/** What is shown of an attempt before its coordinator speaks: the round that it begins with. */
export const waitingAt = (attempt: number, round: number): StoredCoordinator => ({
  attempt,
  streamId: '0-0',
  latest: null,
  phase: 'waiting',
  round,
  totalRounds: 0,
  view: 0,
  seats: [],
  refusedFrames: 0,
  refusedConnections: 0,
  waitingFor: null,
});

/** The row of an attempt that begins with a checkpoint, of this run or of another. */
export const parentOf = (runId: string, restore: RestorePoint | null) =>
  restore && {
    parentNumber: restore.attempt,
    parentRound: restore.round,
    parentRunId: restore.runId === runId ? null : restore.runId,
  };

/** The checkpoint that an attempt begins with, of this run or of another; null at round 0. */
export const restoreOf = (
  runId: string,
  { parentRunId, parentNumber, parentRound }: Pick<StoredAttempt, 'parentRunId' | 'parentNumber' | 'parentRound'>,
): RestorePoint | null =>
  parentNumber === null ? null : { runId: parentRunId ?? runId, attempt: parentNumber, round: Number(parentRound ?? 0) };

// ---- jobs ----

/** The row of a run, as its jobs tell of it. */
export interface JobRun {
  readonly id: string;
  readonly spec: unknown;
  readonly model: unknown;
  readonly data: unknown;
}

export function placementJobOf(
  run: JobRun,
  attempt: Pick<StoredAttempt, 'number' | 'parentRunId' | 'parentNumber' | 'parentRound'>,
  { index, role }: { readonly index: number; readonly role: 'primary' | 'standby' },
  token: string,
  { succeededIn, fingerprint, codec, pins }: Pick<PlacementJob, 'succeededIn' | 'fingerprint' | 'codec' | 'pins'> = {},
  member?: PlacementJob['member'],
): PlacementJob {
  const spec = specOf(run);
  return {
    kind: 'placement',
    runId: run.id,
    attempt: attempt.number,
    index,
    servers: shardCount(spec.strategy),
    role,
    spec,
    model: run.model as ModelDescription,
    data: run.data as RunData,
    restore: restoreOf(run.id, attempt),
    ...(succeededIn === undefined ? {} : { succeededIn }),
    ...(fingerprint ? { fingerprint } : {}),
    ...(codec ? { codec } : {}),
    ...(pins ? { pins } : {}),
    token,
    ...(member ? { member } : {}),
  };
}

/** A worker looks this often whether it should give its seat to another run. */
const SLICE_MS = 3_000;

/** @param places of the attempt, claimed; undefined when the seat is not wanted any more, or nobody could be reached */
export function stepTaskJobOf(
  run: JobRun,
  task: StoredTask | null,
  places: readonly StoredServer[],
  token: string,
  fingerprint?: string,
): StepTaskJob | undefined {
  // The control hash offers it to the worker that holds the shard.
  if (shardHosts(specOf(run).strategy) === 'workers') return undefined;
  const shards = shardsOf(places.map((row) => ({ ...placeOf(row), address: addressOf(row) })));
  const servers = shards.flatMap(({ primary }) => primary.address ?? []);
  const standbys = shards.flatMap(({ standby }) => standby?.address ?? []);
  if (task?.state !== 'OPEN' || servers.length === 0) return undefined;
  return {
    kind: 'step-task',
    stepTaskId: task.id,
    runId: run.id,
    attempt: task.attempt,
    seat: task.seat,
    incarnation: task.incarnation,
    spec: specOf(run),
    model: run.model as ModelDescription,
    data: run.data as RunData,
    servers,
    ...(standbys.length > 0 ? { standbys } : {}),
    sliceMs: SLICE_MS,
    heldSeats: task.heldSeats,
    ...(fingerprint ? { fingerprint } : {}),
    token,
  };
}

const MOST_SEATS = 1024;
/**
 * Runs with fewer seats come first, and among those runs of teams with fewer. BullMQ's highest priority is 1, its lowest 2^21.
 * @param ofTeam seats that all runs of the team hold
 */
export const priorityOf = (heldSeats: number, ofTeam: number): number =>
  1 + Math.min(heldSeats, MOST_SEATS) * MOST_SEATS + Math.min(ofTeam, MOST_SEATS - 1);
