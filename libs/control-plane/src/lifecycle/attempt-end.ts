/**
 * What follows from the end of an attempt, as a table. Everything that can end one comes through `afterEnd`: the last word of
 * its coordinator, a server that is gone or could not load its checkpoint, a coordinator that fell silent, seats that nobody
 * can hold. The row says what happens; the simulator counts which rows it saw.
 *
 *     its coordinator's word ──┐                       ┌─> SUCCEEDED, FAILED, CANCELLED, PAUSED
 *     a server is lost ────────┼──> afterEnd(run, end) ┤
 *     a server's complaint ────┘                       └─> RECOVERING ── pause ──> the next attempt
 */
import type { FailureCause } from '@paceline/protocol';
import { FAILURE_CAUSES } from '../contract/reports.js';
import { chargeRestart, excuseRestart, restartPauseMs, restartsLeft, type RestartCount } from './restarts.js';
import { hasLiveAttempt, type RunStatus } from './run-status.js';

/** Causes that the control plane sees by itself, beside those that coordinators name. */
const OWN_CAUSES = {
  CHECKPOINT_INVALID: { isRecoverable: true, meaning: 'the checkpoint that the attempt was to begin with cannot be loaded' },
  CHECKPOINT_TOO_LARGE: { isRecoverable: false, meaning: 'a server would have to write more into a checkpoint than it may' },
  CONFIG_CHANGED: { isRecoverable: false, meaning: 'the checkpoint was trained with another config' },
  COORDINATOR_SILENT: { isRecoverable: true, meaning: 'the coordinator of the attempt no longer reports' },
  INITIAL_WEIGHTS_INVALID: { isRecoverable: false, meaning: 'the weights that the run begins with are missing or do not fit' },
  NOT_PLACED: { isRecoverable: true, meaning: 'a part of the attempt was taken by no worker, or its seat by none, in time' },
  NO_MEMORY: { isRecoverable: true, meaning: 'it held some of its servers, and for another part no server had the memory' },
  NO_WORKER_FITS: { isRecoverable: false, meaning: 'every worker that took a seat had to give it up' },
  OTHER_WORKERS: { isRecoverable: true, meaning: 'the workers that hold the shards of the run are to be more or fewer' },
  RESULT_UNREADABLE: { isRecoverable: false, meaning: 'the result of the coordinator does not fit its schema' },
  STORE_AWAY: { isRecoverable: true, meaning: 'a server could not begin, because the checkpoint store does not answer' },
  STRATEGY_PICKED: { isRecoverable: true, meaning: 'strategy auto has picked another strategy than the attempt has measured' },
  STORAGE_NOT_SHARED: { isRecoverable: false, meaning: 'the servers of the attempt write their checkpoints to different places' },
} as const;

export const ATTEMPT_END_CAUSES = { ...FAILURE_CAUSES, ...OWN_CAUSES } as const;
export type AttemptEndCause = keyof typeof ATTEMPT_END_CAUSES;

/** Whoever waits for the memory that is free again comes first: servers look at what waits every few seconds at most. */
const WITHOUT_MEMORY_PAUSE_MS = 5_000;

export type AttemptEnd =
  | { readonly kind: 'finished'; readonly message: string }
  | { readonly kind: 'paused'; readonly message: string }
  | { readonly kind: 'cancelled'; readonly message: string }
  | {
      readonly kind: 'failed';
      readonly cause: AttemptEndCause;
      readonly message: string;
      /** A server was lost that held parts of other runs too. */
      readonly isShared?: boolean;
    };

export interface EndingRun {
  readonly status: RunStatus;
  readonly isCancelWanted: boolean;
  /**
   * Workers that hold the shards in the next attempt. Set for a RUNNING run of such a kind: if it ends as paused, the pause was for another number, because
   * a person's pause makes it PAUSING.
   */
  readonly otherWorkers?: number | undefined;
  /** `spec.restarts`. */
  readonly restarts: number;
  readonly count: RestartCount;
  /** Rounds that the attempt is known to have committed. */
  readonly committedRounds: number;
}

export const ATTEMPT_END_ROWS = {
  late: { event: 'the attempt is over already', does: 'nothing', next: '–' },
  finished: { event: 'finished', does: 'stores the result', next: 'SUCCEEDED' },
  cancelled: { event: 'cancelled, or ended in any way while a cancel is wanted', does: 'nothing is left to do', next: 'CANCELLED' },
  paused: { event: 'paused', does: 'keeps that checkpoint', next: 'PAUSED' },
  pausedWithout: {
    event: 'ended while it was pausing',
    does: 'is paused at its last checkpoint; rounds after it will be redone',
    next: 'PAUSED',
  },
  fatal: { event: 'failed with a cause that another attempt would meet too', does: 'says why', next: 'FAILED' },
  otherCheckpoint: {
    event: 'its checkpoint cannot be loaded',
    does: 'marks it; the next attempt takes the one before. Not charged: there are only so many',
    next: 'RECOVERING',
  },
  otherStrategy: {
    event: 'strategy auto has picked another strategy',
    does: 'the next attempt has it. Not charged: a run picks once',
    next: 'RECOVERING',
  },
  otherWorkers: {
    event:
      'more or fewer workers are to hold its shards: its coordinator has written a checkpoint and ended, or it was still waiting for workers',
    does: 'the next attempt has that number. Not charged: nothing went wrong',
    next: 'RECOVERING',
  },
  workersLeft: {
    event: 'its last worker left in order, and rounds were won (with EF21, whose estimates go with the worker)',
    does: 'the next attempt goes on from the newest checkpoint when a worker comes. Not charged: nothing went wrong',
    next: 'RECOVERING',
  },
  noMemory: {
    event: 'some of its servers waited for one with memory: too long, or in the way of an older run',
    does: 'lets them go and waits in line. Not charged: nothing has begun',
    next: 'RECOVERING',
  },
  restart: { event: 'failed, and the restart budget lasts', does: 'charges the budget and waits, longer each time', next: 'RECOVERING' },
  sharedLoss: {
    event: 'lost a server that held parts of other runs too, and the run may restart',
    does: 'charges no restart budget, because any of them may have taken it down; the loss counts in the cap for the run’s whole life; waits',
    next: 'RECOVERING',
  },
  storeAway: {
    event: 'a server could not begin, because the checkpoint store does not answer',
    does: 'charges no restart budget; it counts in the cap for the run’s whole life; waits half a minute at most',
    next: 'RECOVERING',
  },
  budgetSpent: { event: 'failed, and the restart budget is used up', does: 'says why, and how often it was tried', next: 'FAILED' },
} as const;
export type AttemptEndRow = keyof typeof ATTEMPT_END_ROWS;

export interface AfterEnd {
  readonly row: AttemptEndRow;
  /** Undefined when nothing changes. */
  readonly to?: RunStatus;
  readonly reason: string;
  readonly count: RestartCount;
  /** How long after now the next attempt begins; null when none is to begin by itself. */
  readonly restartAfterMs: number | null;
}

export const goesOnWith = (workers: number): string => `goes on with ${workers} ${workers === 1 ? 'worker' : 'workers'}`;

/** @param random uniform in [0, 1): the jitter of the pause */
export function afterEnd(run: EndingRun, end: AttemptEnd, random: () => number): AfterEnd {
  const { count, status } = run;
  const over = (row: AttemptEndRow, to: RunStatus, reason = end.message): AfterEnd => ({ row, to, reason, count, restartAfterMs: null });
  if (!hasLiveAttempt(status)) return { row: 'late', reason: end.message, count, restartAfterMs: null };
  if (end.kind === 'finished') return over('finished', 'SUCCEEDED');
  if (run.isCancelWanted) return over('cancelled', 'CANCELLED');
  const otherWorkers = (reason: string): AfterEnd => ({ row: 'otherWorkers', to: 'RECOVERING', reason, count, restartAfterMs: 0 });
  if (end.kind === 'paused' && run.otherWorkers !== undefined) return otherWorkers(`${end.message}; ${goesOnWith(run.otherWorkers)}`);
  if (end.kind === 'paused') return over('paused', 'PAUSED');
  if (end.kind === 'failed' && !ATTEMPT_END_CAUSES[end.cause].isRecoverable) return over('fatal', 'FAILED');
  if (status === 'PAUSING')
    return over('pausedWithout', 'PAUSED', `${end.message}; it is paused at its last checkpoint, and rounds after that will be redone`);
  if (end.kind === 'failed' && end.cause === 'CHECKPOINT_INVALID')
    return { row: 'otherCheckpoint', to: 'RECOVERING', reason: end.message, count, restartAfterMs: 0 };
  if (end.kind === 'failed' && end.cause === 'OTHER_WORKERS') return otherWorkers(end.message);
  if (end.kind === 'failed' && end.cause === 'STRATEGY_PICKED')
    return { row: 'otherStrategy', to: 'RECOVERING', reason: end.message, count, restartAfterMs: 0 };
  if (end.kind === 'failed' && end.cause === 'WORKERS_LEFT' && run.committedRounds > count.bestRound)
    return {
      row: 'workersLeft',
      to: 'RECOVERING',
      reason: end.message,
      count: { used: 0, total: count.total, bestRound: run.committedRounds },
      restartAfterMs: 0,
    };
  if (end.kind === 'failed' && end.cause === 'NO_MEMORY')
    return { row: 'noMemory', to: 'RECOVERING', reason: end.message, count, restartAfterMs: WITHOUT_MEMORY_PAUSE_MS };
  const isShared = end.kind === 'failed' && end.isShared === true;
  const isStoreAway = end.kind === 'failed' && end.cause === 'STORE_AWAY';
  const charge = (isShared || isStoreAway ? excuseRestart : chargeRestart)(count, run.restarts, run.committedRounds);
  if (!charge.isGranted)
    return { row: 'budgetSpent', to: 'FAILED', reason: spent(end.message, run), count: charge.count, restartAfterMs: null };
  if (isStoreAway)
    return {
      row: 'storeAway',
      to: 'RECOVERING',
      reason: `${end.message}; the checkpoint store does not answer: it is tried again, and no restart is charged`,
      count: charge.count,
      restartAfterMs: restartPauseMs(Infinity, random),
    };
  return {
    row: isShared ? 'sharedLoss' : 'restart',
    to: 'RECOVERING',
    reason: `${end.message}; ${isShared ? 'other runs lost it too, so this is not charged: ' : ''}${restartsLeft(charge.count, run.restarts)} of ${run.restarts} restarts are left`,
    count: charge.count,
    restartAfterMs: restartPauseMs(charge.count.used + (isShared ? 1 : 0), random),
  };
}

function spent(message: string, { restarts, count }: EndingRun): string {
  if (restarts === 0) return `${message}; the run has no restarts (restarts: 0)`;
  return `${message}; the restart budget (restarts: ${restarts}) is used up: restarted ${count.total} times`;
}

/** What a server's or worker's complaint about an attempt means, by its code; other codes are INTERNAL. */
const COMPLAINTS: Readonly<Record<string, AttemptEndCause>> = {
  SERVER_UNREACHABLE: 'SERVER_LOST',
  COORDINATOR_LOST: 'SERVER_LOST',
  NOT_STARTED: 'SERVER_LOST',
  CHECKPOINT_INVALID: 'CHECKPOINT_INVALID',
  CHECKPOINT_ELSEWHERE: 'STORAGE_NOT_SHARED',
  CHECKPOINT_TOO_LARGE: 'CHECKPOINT_TOO_LARGE',
  CONFIG_CHANGED: 'CONFIG_CHANGED',
  INITIAL_WEIGHTS_INVALID: 'INITIAL_WEIGHTS_INVALID',
  SAFETENSORS_INVALID: 'INITIAL_WEIGHTS_INVALID',
  STORE_UNAVAILABLE: 'STORE_AWAY',
};
export const causeOfComplaint = (code: string): AttemptEndCause => (Object.hasOwn(COMPLAINTS, code) ? COMPLAINTS[code]! : 'INTERNAL');

/** Why a worker gave its seat up: its code, and what the history says of it. */
export interface SeatFailure {
  readonly code: string;
  readonly message: string;
}

export const seatFailureOf = (report: { workerId: string; seat: number; code: string; message: string }): SeatFailure => ({
  code: report.code,
  message: `worker ${report.workerId} could not take or keep seat ${report.seat} (${report.code}): ${report.message}`,
});

/** Codes that speak of the servers, not of the worker: it would fit, and they are gone or cannot be reached. */
const CODES_OF_SERVERS: readonly string[] = ['RUN_UNKNOWN', 'SERVER_UNREACHABLE', 'NOT_PRIMARY'];

/** The worker would fit, and cannot read its data now: its seat is offered until it can. */
export const isDataAway = (failure: SeatFailure | null): failure is SeatFailure => failure?.code === 'DATASET_AWAY';

/** What ends an attempt whose seats nobody could hold, `failures` in a row. */
export function endOfSeats(failures: number, last: SeatFailure | null): AttemptEnd {
  const cause = last && CODES_OF_SERVERS.includes(last.code) ? 'SERVER_LOST' : 'NO_WORKER_FITS';
  return {
    kind: 'failed',
    cause,
    message: `no worker can take a seat: ${failures} failed in a row; the last one: ${last?.message ?? 'unknown'}`,
  };
}

/** The cause that a coordinator names in `run.failed`; one that is not known is fatal no more than INTERNAL is. */
export const causeOfFailure = (cause: unknown): FailureCause =>
  typeof cause === 'string' && Object.hasOwn(FAILURE_CAUSES, cause) ? (cause as FailureCause) : 'INTERNAL';
