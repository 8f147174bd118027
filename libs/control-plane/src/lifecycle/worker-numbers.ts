/**
 * When another number of workers comes to hold the shards of a run: as a person has asked, or by itself. By itself it goes on with fewer, where the spec has
 * `minWorkers` and fewer workers than the run needs have been connected for 15 s; and with more, where it has `maxWorkers`. Each change costs a checkpoint and
 * an attempt, so a worker that is started again within seconds costs none.
 */
import { pauseField } from './control-fields.js';
import { goesOnWith, type AttemptEnd } from './attempt-end.js';
import type { DispatchAction, ObservedFleet, ObservedRun } from './observed-run.js';
import { hasLiveAttempt } from './run-status.js';
import { FEWER_AFTER_MS } from './waiting-reason.js';

/** So long the first attempt trains before it takes more workers by itself, and so long a run must have to go. */
export const MORE_AFTER_MS = 60_000;
/** On average. A pause waits a little longer for the checkpoint of the present round. */
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
    hasLiveAttempt(status) ? servers.flatMap(({ claim, isDropped }) => (claim && !isDropped ? [claim.address.serverId] : [])) : [];
  const held = hosting.map((run) => new Set(holdersOf(run)).size);
  const heldByAll = held.reduce((sum, workers) => sum + workers, 0);
  return new Map(hosting.map(({ runId }, i) => [runId, Math.max(0, connected - heldByAll + held[i]!)]));
}

/** What `spareWorkersFor` looks at beside the runs. */
export interface SpareWorkers {
  /** Workers that may hold a shard, and have had no work for `FEWER_AFTER_MS`. */
  readonly idle: number;
  /** All that may hold a shard. */
  readonly connected: number;
  readonly now: number;
  readonly seatRoom?: ObservedFleet['seatRoom'];
  readonly waiting?: ObservedFleet['waiting'];
}

/**
 * `ObservedFleet.spareWorkersFor`: what one of these runs may have, so that two do not take the same worker. None takes more while another run waits for
 * something that it can get.
 */
export function spareWorkersFor(
  runs: readonly ObservedRun[],
  { idle, connected, now, seatRoom, waiting }: SpareWorkers,
): ReadonlyMap<string, number> {
  const isHosting = ({ shardHosts }: ObservedRun): boolean => shardHosts === 'workers';
  const waits = (run: ObservedRun): boolean =>
    (run.status === 'QUEUED' || run.status === 'PROVISIONING' || run.status === 'RECOVERING') &&
    waiting?.get(run.runId)?.why !== 'limit' &&
    !(isHosting(run) && presentWorkers(run) > connected);
  const isAskedFor = (run: ObservedRun): boolean =>
    isHosting(run) && run.status === 'RUNNING' && run.workersWanted !== null && run.workersWanted <= connected;
  const asked = runs.filter(isAskedFor);
  if (runs.some(waits) || asked.length > 1) return new Map();
  const mayHave = (run: ObservedRun): number => Math.min(run.maxWorkers ?? 0, seatRoom?.get(run.runId) ?? Infinity);
  const [growing] =
    asked.length > 0
      ? asked
      : runs.filter((run) => run.workersWanted === null && mayTakeMore(run, now) && mayHave(run) > presentWorkers(run));
  return new Map(growing ? [[growing.runId, presentWorkers(growing) + idle]] : []);
}

/**
 * Whether a run that may take more has reached the point for it. In attempt n it has trained for n minutes, so that workers which come and go cost ever less.
 * Its rounds are short on average: then the checkpoint of the present one is waited for, as a rule. It has a minute before it at least. Nobody is missing.
 */
function mayTakeMore(run: ObservedRun, now: number): boolean {
  const { maxWorkers, shardHosts, status, coordinator, attemptStartedAtMs, fromRound, attempt } = run;
  const present = presentWorkers(run);
  if (shardHosts !== 'workers' || maxWorkers === undefined || maxWorkers <= present || status !== 'RUNNING') return false;
  if (!coordinator || coordinator.phase !== 'training' || coordinator.waitingFor !== null || attemptStartedAtMs === null) return false;
  if (run.pauseRequestedAtMs !== null || coordinator.seats.length !== present) return false;
  const trainedMs = now - attemptStartedAtMs;
  const roundMs = trainedMs / Math.max(1, coordinator.round - fromRound);
  const isLongEnough = roundMs * (coordinator.totalRounds - coordinator.round) >= MORE_AFTER_MS;
  return trainedMs >= attempt * MORE_AFTER_MS && roundMs <= LONGEST_ROUND_MS && isLongEnough;
}

/** The number that a run may have by itself now: the present one at least. */
function ownRoom(run: ObservedRun, { spareWorkersFor: spare, seatRoom }: ObservedFleet, now: number): number {
  const present = presentWorkers(run);
  if (run.maxWorkers === undefined || !mayTakeMore(run, now)) return present;
  return Math.max(present, Math.min(run.maxWorkers, spare?.get(run.runId) ?? present, seatRoom?.get(run.runId) ?? Infinity));
}

/** Whether a run wants more by itself: a person who asks for a number ends that (changes/shard-workers.ts). */
const wantsMoreByItself = (run: ObservedRun): boolean =>
  run.maxWorkers !== undefined && run.workersWanted !== null && run.workersWanted > presentWorkers(run);

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
  now: number,
): { readonly asksForCheckpoint?: true; readonly end?: AttemptEnd; readonly reason?: string } {
  const workers = otherWorkers(run);
  if (workers === undefined || (run.coordinator && AFTER_TRAINING.includes(run.coordinator.phase))) return {};
  const free = wantsMoreByItself(run) && run.control.action !== pauseField(run.attempt) ? ownRoom(run, fleet, now) : workersFor(run, fleet);
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
export function fewerByItself(run: ObservedRun, fleet: ObservedFleet, now: number): DispatchAction[] {
  const { counts, reliableForMs } = fleet;
  const { minWorkers, maxWorkers, servers, status, workersWanted } = run;
  if (minWorkers === undefined || status !== 'QUEUED' || (workersWanted !== null && !wantsMoreByItself(run))) return [];
  const waitedMs = Math.min(reliableForMs, ...servers.map(({ madeAtMs }) => now - madeAtMs));
  const connected = Math.max(counts.shardWorkersLately ?? 0, counts.shardWorkers ?? counts.liveWorkers);
  // What it has taken by itself it gives back when others hold it, or its team may not have so many. A worker that was there lately counts.
  const gone = connected - (counts.shardWorkers ?? counts.liveWorkers);
  const wait = fleet.waiting?.get(run.runId);
  const inTeam = wait?.why === 'limit' ? wait.most - wait.heldByOwnTeam : Infinity;
  const there = maxWorkers === undefined ? connected : Math.min(connected, workersFor(run, fleet) + gone, inTeam);
  if (waitedMs < FEWER_AFTER_MS || there < minWorkers || there >= presentWorkers(run)) return [];
  return [
    {
      kind: 'change-workers',
      workers: there,
      why: `only ${there} ${there === 1 ? 'is' : 'are'} ${there < connected ? 'free for it' : 'connected'} (minWorkers ${minWorkers})`,
    },
  ];
}

/** Where its spec allows it, a run takes workers that nobody needs; what it wanted is called off when they are needed, or gone, before the checkpoint is asked for. */
export function moreByItself(run: ObservedRun, fleet: ObservedFleet, now: number): DispatchAction[] {
  const { maxWorkers, workersWanted, attempt, control } = run;
  if (maxWorkers === undefined || run.status !== 'RUNNING' || fleet.reliableForMs < FEWER_AFTER_MS) return [];
  const present = presentWorkers(run);
  const workers = ownRoom(run, fleet, now);
  if (workersWanted === null) {
    if (workers === present) return [];
    const more = workers - present;
    return [
      { kind: 'change-workers', workers, why: `${more} more ${more === 1 ? 'has' : 'have'} nothing to do (maxWorkers ${maxWorkers})` },
    ];
  }
  if (workersWanted <= present || workers >= workersWanted || control.action === pauseField(attempt)) return [];
  return [{ kind: 'change-workers', workers: present, why: 'the others are not there any more, or needed' }];
}
