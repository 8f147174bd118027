/** How an attempt ends and the next begins: which rows change to what, decided from those that are read under the lock of the run. */
import { isHeldAlone, shardCount, shardHosts, type RunSpec } from '@paceline/spec';
import { afterEnd, type AfterEnd, type AttemptEnd } from '../lifecycle/attempt-end.js';
import type { RestoreDecision, RestorePoint } from '../lifecycle/lineage.js';
import { coordinatorOf, parentOf, restoreOf, waitingAt, type StoredAttempt, type StoredRun } from '../dispatch/rows.js';
import type { PlainMove, RunChange, StatusMove } from './moves.js';
import { takesMoreByItself, withOtherWorkers } from './shard-workers.js';

export interface CountedRun extends StoredRun {
  readonly restartsUsed: number;
  readonly restartsTotal: number;
  readonly bestRound: bigint | number;
}

export interface EndedAttempt {
  readonly after: AfterEnd;
  /** One after the other; none when the attempt is over already. */
  readonly moves: readonly StatusMove[];
  /** The checkpoint that the attempt was to begin with cannot be loaded: nobody begins with it again. */
  readonly invalid: RestorePoint | undefined;
}

/** @param random uniform in [0, 1): the jitter of the pause before the next attempt */
export function endedAttempt(run: CountedRun, attempt: StoredAttempt, end: AttemptEnd, now: Date, random: () => number): EndedAttempt {
  const after = afterEnd(
    {
      status: run.status,
      isCancelWanted: run.cancelRequestedAt !== null,
      otherWorkers: otherWorkersOf(run),
      restarts: (run.spec as RunSpec).restarts,
      count: { used: run.restartsUsed, total: run.restartsTotal, bestRound: Number(run.bestRound) },
      committedRounds: coordinatorOf(run)?.round ?? Number(attempt.parentRound ?? 0),
    },
    end,
    random,
  );
  if (after.to === undefined) return { after, moves: [], invalid: undefined };
  const cause = end.kind === 'failed' ? end.cause : end.kind.toUpperCase();
  const set: RunChange = {
    restartsUsed: after.count.used,
    restartsTotal: after.count.total,
    bestRound: after.count.bestRound,
    nextAttemptAt: after.restartAfterMs === null ? null : new Date(now.getTime() + after.restartAfterMs),
    pauseRequestedAt: null,
    // A cancel that came too late is over with the run, which can be extended.
    ...(after.to === 'SUCCEEDED' ? { cancelRequestedAt: null } : {}),
  };
  // The table of statuses has no way from RUNNING to PAUSED but over PAUSING.
  const first: StatusMove[] = after.to === 'PAUSED' && run.status === 'RUNNING' ? [{ to: 'PAUSING', reason: end.message }] : [];
  return {
    after,
    moves: [...first, { to: after.to, reason: after.reason, cause, set }],
    invalid: cause === 'CHECKPOINT_INVALID' ? (restoreOf(run.id, attempt) ?? undefined) : undefined,
  };
}

/** What a run says that has nothing to go on from. */
const NOTHING_LEFT =
  'the checkpoint of another run that it began with cannot be loaded any more; create the run again from another checkpoint';

export interface BegunAttempt {
  /** Number and parent of the new row; undefined where no attempt can begin. */
  readonly attempt: ({ readonly number: number } & Partial<NonNullable<ReturnType<typeof parentOf>>>) | undefined;
  readonly run: RunChange;
  readonly move: PlainMove;
}

/** Workers that hold the shards in the next attempt, of a run that trains: if it ends as paused, the pause was for another number, because a person's pause makes it PAUSING. */
function otherWorkersOf({ status, spec, workersWanted }: CountedRun): number | undefined {
  const { strategy } = spec as RunSpec;
  if (status !== 'RUNNING' || shardHosts(strategy) !== 'workers' || isHeldAlone(strategy)) return undefined;
  return workersWanted ?? shardCount(strategy);
}

/**
 * For a run without a live attempt.
 * @param run its columns as the new attempt has them
 * @param from as `nextRestore` says
 * @param keepsWorkers another number of workers that hold the shards stays wanted
 */
export function begunAttempt(
  run: Pick<StoredRun, 'id' | 'attempt' | 'spec' | 'workersWanted'>,
  from: RestoreDecision,
  reason: string,
  keepsWorkers = false,
): BegunAttempt {
  const { id, attempt } = run;
  const { strategy } = run.spec as RunSpec;
  const scaled = keepsWorkers ? undefined : withOtherWorkers(run);
  if (from.kind === 'nothing') return { attempt: undefined, run: {}, move: { to: 'FAILED', reason: NOTHING_LEFT } };
  const restore = from.kind === 'checkpoint' ? from.restore : null;
  const number = attempt + 1;
  const round = restore?.round ?? 0;
  return {
    attempt: { number, ...parentOf(id, restore) },
    run: {
      attempt: number,
      coordinator: waitingAt(number, round),
      coordinatorAt: null,
      nextAttemptAt: null,
      pauseRequestedAt: null,
      finishedAt: null,
      ...(scaled ? { spec: scaled } : {}),
      // What it wanted by itself it wants anew, when it has come to the point again.
      ...(shardHosts(strategy) === 'workers' && (!keepsWorkers || takesMoreByItself(strategy)) ? { workersWanted: null } : {}),
    },
    move: { to: 'QUEUED', reason: `${reason} ${restore ? `from the checkpoint of round ${round}` : 'from round 0'}` },
  };
}
