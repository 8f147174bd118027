/**
 * What every transaction on a run asks first, when it holds the lock of the run's row: whether what was decided before still holds; and
 * what a move of the status changes. The api does this over PostgreSQL, the simulator over rows in memory.
 */
import type { DispatchAction, ObservedRun } from '../lifecycle/observed-run.js';
import { hasLiveAttempt, isOver, mayMove, type RunStatus } from '../lifecycle/run-status.js';
import type { StoredRun } from '../dispatch/rows.js';

/** What is read of the row that is locked. */
export type RunHead = Pick<StoredRun, 'status' | 'attempt'>;

/** Columns of the run that change together with its status, or beside it. */
export interface RunChange {
  readonly attempt?: number;
  readonly spec?: unknown;
  readonly serverCount?: number;
  readonly totalRounds?: number;
  readonly coordinator?: unknown;
  readonly coordinatorAt?: Date | null;
  readonly cancelRequestedAt?: Date | null;
  readonly pauseRequestedAt?: Date | null;
  readonly nextAttemptAt?: Date | null;
  readonly finishedAt?: Date | null;
  readonly statusReason?: string;
  readonly isWaiting?: boolean;
  readonly workersWanted?: number | null;
  readonly restartsUsed?: number;
  readonly restartsTotal?: number;
  readonly bestRound?: number;
}

export interface StatusMove<Change = RunChange> {
  readonly to: RunStatus;
  readonly reason: string;
  /** The cause that the history of the attempt gets; the new status by default. */
  readonly cause?: string;
  readonly set?: Change;
}

/** One that changes nothing beside the status. */
export type PlainMove = Omit<StatusMove, 'set'>;

/** An action of the dispatcher is due as long as the run is in what it was decided for: another api, a report or a person may have been quicker. */
export function isDue(run: RunHead | undefined, decidedFor: Pick<ObservedRun, 'attempt' | 'status'>, { kind }: DispatchAction): boolean {
  if (run?.attempt !== decidedFor.attempt) return false;
  switch (kind) {
    case 'explain':
    case 'move':
    case 'change-workers':
    case 'end-attempt': // one that was decided for what the run has left behind would cost a restart
      return run.status === decidedFor.status;
    case 'begin-attempt':
      return run.status === 'RECOVERING';
    case 'close-seat':
    case 'write-control':
    case 'tell-lead':
      return true;
    default:
      return hasLiveAttempt(run.status); // an end closes seats and takes jobs back, and none of it comes again afterwards
  }
}

const MAX_REASON_CHARACTERS = 2000;

/** A row of what people read of a run; the store gives it its place and its time. */
export interface StoredEvent {
  readonly attempt: number;
  readonly type: string;
  readonly message: string;
  readonly data: Record<string, unknown>;
}

export interface Moved {
  readonly run: Pick<StoredRun, 'status' | 'isWaiting'> & {
    readonly statusReason: string;
    readonly statusChangedAt: Date;
    readonly finishedAt?: Date;
  };
  readonly event: StoredEvent;
  /** The present attempt is over: jobs that were not sent go, its seats are closed with `why`. */
  readonly ends: { readonly endedAt: Date; readonly endCause: string; readonly endReason: string; readonly why: string } | undefined;
}

/** Undefined where the status does not allow the move. */
export function movedTo({ status, attempt }: RunHead, { to, reason, cause }: StatusMove<unknown>, now: Date): Moved | undefined {
  if (!mayMove(status, to)) return undefined;
  const statusReason = reason.slice(0, MAX_REASON_CHARACTERS);
  return {
    run: { status: to, statusReason, isWaiting: false, statusChangedAt: now, ...(isOver(to) ? { finishedAt: now } : {}) },
    event: {
      attempt,
      type: 'status.changed',
      message: `${status} → ${to}: ${statusReason}`,
      data: { from: status, to, reason: statusReason },
    },
    ends:
      hasLiveAttempt(status) && !hasLiveAttempt(to)
        ? { endedAt: now, endCause: cause ?? to, endReason: statusReason, why: `the run is ${to}` }
        : undefined,
  };
}
