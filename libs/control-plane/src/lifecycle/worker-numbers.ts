/**
 * When another number of workers comes to hold the shards of a run. Each change costs a checkpoint and an attempt, so none is made that a worker who is
 * started again within seconds would make needless:
 *
 * | by itself, within its bounds | when |
 * |---|---|
 * | fewer | it is QUEUED, and for 15 s fewer workers have been connected than it needs |
 * | more | its attempt is older than a minute, workers have been idle for 20 s, and no run waits for them |
 */
import { goesOnWith, type AttemptEnd } from './attempt-end.js';
import type { DispatchAction, ObservedFleet, ObservedRun } from './observed-run.js';

/** So long a run waits for workers that are not connected, where it may go on with fewer. */
export const FEWER_AFTER_MS = 15_000;
/** An attempt is this old before it takes more workers. */
export const MORE_AFTER_MS = 60_000;
/** The result is computed: a checkpoint would change nothing any more. */
const AFTER_TRAINING: readonly string[] = ['evaluating', 'finished', 'cancelled', 'failed'];

const presentWorkers = ({ serversNeeded, standby }: ObservedRun): number => serversNeeded / (1 + standby);
const connected = ({ counts }: ObservedFleet): number => counts.shardWorkers ?? counts.liveWorkers;

/** The number that the next attempt is to have; undefined where nobody wants another. */
function otherWorkers(run: ObservedRun): number | undefined {
  const { workersWanted, shardHosts, status } = run;
  if (shardHosts !== 'workers' || workersWanted === null || status === 'PAUSING') return undefined;
  return workersWanted === presentWorkers(run) ? undefined : workersWanted;
}

/** What a live attempt does to go on with other workers: it asks for a checkpoint, ends, or waits for those that are missing. */
export function towardsOtherWorkers(
  run: ObservedRun,
  fleet: ObservedFleet,
): { readonly asksForCheckpoint?: true; readonly end?: AttemptEnd; readonly reason?: string } {
  const workers = otherWorkers(run);
  if (workers === undefined || (run.coordinator && AFTER_TRAINING.includes(run.coordinator.phase))) return {};
  const isThere = connected(fleet) >= workers;
  if (run.status === 'RUNNING') {
    if (!isThere) return { reason: `training goes on, and takes ${workers} workers when so many are connected: ${connected(fleet)} are` };
    return { asksForCheckpoint: true, reason: `finishes its round and writes a checkpoint; ${goesOnWith(workers)}` };
  }
  const isDue = isThere || (run.status === 'QUEUED' && workers < presentWorkers(run));
  return isDue ? { end: { kind: 'failed', cause: 'OTHER_WORKERS', message: goesOnWith(workers) } } : {};
}

/** Within the bounds of its spec a run goes on with the workers that are there. */
export function fitToFleet(run: ObservedRun, fleet: ObservedFleet, now: number): DispatchAction[] {
  const { elastic, servers, status, attemptStartedAtMs, workersWanted } = run;
  if (!elastic || workersWanted !== null) return [];
  const [workers, there] = [presentWorkers(run), connected(fleet)];
  if (status === 'QUEUED') {
    const sinceMs = Math.min(fleet.reliableForMs, ...servers.map(({ madeAtMs }) => now - madeAtMs));
    const isWithin = there >= elastic.minWorkers && there < workers;
    if (!isWithin || sinceMs < FEWER_AFTER_MS) return [];
    const why = `only ${there} ${there === 1 ? 'is' : 'are'} connected (minWorkers ${elastic.minWorkers})`;
    return [{ kind: 'change-workers', workers: there, why }];
  }
  const idle = fleet.counts.idleShardWorkers ?? 0;
  const isSettled = status === 'RUNNING' && run.coordinator?.phase === 'training' && now - (attemptStartedAtMs ?? now) >= MORE_AFTER_MS;
  if (!isSettled || idle === 0 || workers >= elastic.maxWorkers || (fleet.waiting?.size ?? 0) > 0) return [];
  const why = `${idle} more ${idle === 1 ? 'is' : 'are'} idle (maxWorkers ${elastic.maxWorkers})`;
  return [{ kind: 'change-workers', workers: Math.min(elastic.maxWorkers, workers + idle), why }];
}
