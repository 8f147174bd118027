/**
 * When another number of workers comes to hold the shards of a run: as a person has asked, or by itself. By itself it goes on with fewer, where the spec has
 * `minWorkers` and fewer workers than the run needs have been connected for 15 s; and with more, where it has `maxWorkers`. Each change costs a checkpoint and
 * an attempt, so a worker that is started again within seconds costs none.
 */
import { goesOnWith, type AttemptEnd } from './attempt-end.js';
import type { DispatchAction, ObservedFleet, ObservedRun } from './observed-run.js';
import { hasLiveAttempt } from './run-status.js';
import { FEWER_AFTER_MS } from './waiting-reason.js';

/** So long an attempt trains before it takes more workers by itself. */
export const MORE_AFTER_MS = 60_000;
/** On average: the checkpoint of a pause is that of the present round where this is shorter. */
const LONGEST_ROUND_MS = 4_000;

/** The result is computed: a checkpoint would change nothing any more. */
const AFTER_TRAINING: readonly string[] = ['evaluating', 'finished', 'cancelled', 'failed'];

const presentWorkers = ({ serversNeeded, standby }: ObservedRun): number => serversNeeded / (1 + standby);

/** Workers that may hold a shard of this run: connected, and not held by another run. */
const workersFor = ({ runId }: ObservedRun, { counts, shardWorkersFor }: ObservedFleet): number =>
  shardWorkersFor?.get(runId) ?? counts.shardWorkers ?? counts.liveWorkers;

/** `ObservedFleet.shardWorkersFor` of runs that are not over at the same time: a worker holds a shard of one run. */
export function shardWorkersFor(runs: readonly ObservedRun[], connected: number): ReadonlyMap<string, number> {
  const hosting = runs.filter(({ shardHosts }) => shardHosts === 'workers');
  const holdersOf = ({ servers, status }: ObservedRun): readonly string[] =>
    hasLiveAttempt(status) ? servers.flatMap(({ claim }) => (claim ? [claim.address.serverId] : [])) : [];
  const held = hosting.map((run) => new Set(holdersOf(run)).size);
  const heldByAll = held.reduce((sum, workers) => sum + workers, 0);
  return new Map(hosting.map(({ runId }, i) => [runId, Math.max(0, connected - heldByAll + held[i]!)]));
}

/** `ObservedFleet.spareWorkersFor` of the same runs. @param idle workers that may hold a shard, and have had no work for `FEWER_AFTER_MS` */
export function spareWorkersFor(runs: readonly ObservedRun[], idle: number): ReadonlyMap<string, number> {
  const hosting = runs.filter(({ shardHosts }) => shardHosts === 'workers');
  // A run that begins, or begins anew, has not got all of its workers yet.
  const waiting = hosting.filter(({ status }) => ['QUEUED', 'PROVISIONING', 'RECOVERING'].includes(status));
  const wanting = hosting.filter(({ status, workersWanted }) => status === 'RUNNING' && workersWanted !== null);
  const awaited = [...waiting, ...wanting].reduce((sum, run) => sum + Math.max(presentWorkers(run), run.workersWanted ?? 0), 0);
  return new Map(hosting.map((run) => [run.runId, presentWorkers(run) + Math.max(0, idle - awaited)]));
}

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
  const free = workersFor(run, fleet);
  if (run.status === 'RUNNING') {
    if (free < workers) return { reason: `training goes on, and takes ${workers} workers when so many are free for it: ${free} are` };
    return { asksForCheckpoint: true, reason: `finishes its round and writes a checkpoint; ${goesOnWith(workers)}` };
  }
  const isDue = free >= workers || (run.status === 'QUEUED' && workers < presentWorkers(run));
  return isDue ? { end: { kind: 'failed', cause: 'OTHER_WORKERS', message: goesOnWith(workers) } } : {};
}

/** Whether the next attempt keeps its number of workers: more are wanted, and they are not there. */
export const keepsWorkers = (run: ObservedRun, fleet: ObservedFleet): boolean => {
  const workers = otherWorkers(run);
  return workers !== undefined && workers > presentWorkers(run) && workersFor(run, fleet) < workers;
};

/** Where its spec allows it, a run that waits for workers goes on with fewer. */
export function fewerByItself(run: ObservedRun, { counts, reliableForMs }: ObservedFleet, now: number): DispatchAction[] {
  const { minWorkers, servers, status, workersWanted } = run;
  if (minWorkers === undefined || workersWanted !== null || status !== 'QUEUED') return [];
  const waitedMs = Math.min(reliableForMs, ...servers.map(({ madeAtMs }) => now - madeAtMs));
  const there = Math.max(counts.shardWorkersLately ?? 0, counts.shardWorkers ?? counts.liveWorkers);
  if (waitedMs < FEWER_AFTER_MS || there < minWorkers || there >= presentWorkers(run)) return [];
  return [
    { kind: 'change-workers', workers: there, why: `only ${there} ${there === 1 ? 'is' : 'are'} connected (minWorkers ${minWorkers})` },
  ];
}

/**
 * Where its spec allows it, a run takes workers that are there for nobody else. It has trained for a while, so that changes are a minute apart at least, and
 * its rounds are so short that the checkpoint of the present one is waited for: nothing is trained again.
 */
export function moreByItself(run: ObservedRun, { spareWorkersFor: spare, reliableForMs }: ObservedFleet, now: number): DispatchAction[] {
  const { maxWorkers, status, workersWanted, coordinator, attemptStartedAtMs, fromRound } = run;
  if (maxWorkers === undefined || workersWanted !== null || status !== 'RUNNING' || !coordinator || attemptStartedAtMs === null) return [];
  const trainedMs = now - attemptStartedAtMs;
  const hasShortRounds = (coordinator.round - fromRound) * LONGEST_ROUND_MS >= trainedMs;
  if (AFTER_TRAINING.includes(coordinator.phase) || trainedMs < MORE_AFTER_MS || !hasShortRounds || reliableForMs < FEWER_AFTER_MS)
    return [];
  const present = presentWorkers(run);
  const workers = Math.min(maxWorkers, spare?.get(run.runId) ?? present);
  if (workers <= present) return [];
  const more = workers - present;
  return [{ kind: 'change-workers', workers, why: `${more} more ${more === 1 ? 'is' : 'are'} free for it (maxWorkers ${maxWorkers})` }];
}
