/**
 * The dispatcher's mind: compares what should be with what is for one run and says what to do next. It needs no memory of its
 * own, so any api can take over, and repairs what Redis lost. The api calls it a few times a second for every run that is not
 * over, or was ended lately: whoever still holds a part of it, or waits to begin, is told so. The simulator calls the same function.
 *
 *     stored rows, control hash, fleet, time ──> reconcile ──> actions (dispatch/executor.ts of the api carries them out)
 */
import { ackFieldName } from '../contract/control.js';
import { ackFields, cancelField, pauseField, workersField } from './control-fields.js';
import { isDataAway } from './attempt-end.js';
import type { DispatchAction, ObservedFleet, ObservedJob, ObservedRun } from './observed-run.js';
import { seatMembers } from './member-seating.js';
import { place, placementsInQuestion } from './placing.js';
import { hasLiveAttempt, isOver } from './run-status.js';
import { seat, seatLimit, seatsInQuestion } from './seating.js';
import { queuedReason, waitsForWorker } from './waiting-reason.js';
import { fewerByItself, keepsWorkers, moreByItself, towardsOtherWorkers } from './worker-numbers.js';

/** A coordinator that does not answer to a cancel for this long is not waited for: the run is over within 10 s. */
export const CANCEL_DEADLINE_MS = 9_000;
/** Within this a RUNNING run is PAUSED, with a checkpoint of this round or with its last one. */
export const PAUSE_DEADLINE_MS = 9_000;
/** A worker that could take the seat has this long before the reason says that none does. */
const SEAT_EXPECTED_WITHIN_MS = 20_000;
/** Everybody who is there was heard since reports are read: a heartbeat comes every second, a connection comes back within two. */
const HEARD_WITHIN_MS = 3_500;

/** The jobs whose states `reconcile` has to be told; all others do not matter now. */
export function jobsInQuestion(run: ObservedRun, now: number): { placements: string[]; seats: string[] } {
  if (!hasLiveAttempt(run.status) || run.cancelRequestedAtMs !== null) return { placements: [], seats: [] };
  return { placements: placementsInQuestion(run, now), seats: run.shardHosts === 'workers' ? [] : seatsInQuestion(run) };
}

export function reconcile(run: ObservedRun, fleet: ObservedFleet, jobs: ReadonlyMap<string, ObservedJob>, now: number): DispatchAction[] {
  if (run.status === 'PENDING' || (run.status === 'SUCCEEDED' && !run.hasOlderResult)) return [];
  if (isOver(run.status)) return letGo(run);
  if (!hasLiveAttempt(run.status)) return [...letGo(run), ...restart(run, fleet, now)];
  if (run.cancelRequestedAtMs !== null) return cancel(run, run.cancelRequestedAtMs, now);
  const other = towardsOtherWorkers(run, fleet, now);
  if (other.end) return [{ kind: 'end-attempt', end: other.end }];
  const { actions, hasStarted } = place(run, fleet, jobs, now);
  if (actions.some(({ kind }) => kind === 'end-attempt')) return actions;
  if (!run.control[ackFieldName(run.attempt)] && run.storedSequence > 0)
    actions.push({ kind: 'write-control', fields: ackFields(run.attempt, run.coordinatorTerm, { sequence: run.storedSequence }) });
  if (run.status === 'PAUSING') actions.push(...pause(run, now));
  else if (other.asksForCheckpoint) actions.push(...askForCheckpoint(run));
  const isHosting = run.shardHosts === 'workers';
  const workers = workersField(run.attempt, seatLimit(run));
  if (!isHosting && run.workersWanted !== null && run.control.workers !== workers)
    actions.push({ kind: 'write-control', fields: { workers } });
  if (hasStarted) actions.push(...(isHosting ? seatMembers(run, now) : seat(run, jobs, now, fleet.seatRoom?.get(run.runId))));
  if (actions.some(({ kind }) => kind === 'end-attempt')) return actions;
  return [
    ...actions,
    ...fewerByItself(run, fleet, now),
    ...moreByItself(run, fleet, now),
    ...status(run, fleet, hasStarted, now, other.reason),
  ];
}

/** The attempt is over here; whoever still holds a part of it is told so. */
function letGo({ attempt, control }: ObservedRun): DispatchAction[] {
  const action = cancelField(attempt);
  return control.action === action ? [] : [{ kind: 'write-control', fields: { action } }];
}

function restart(run: ObservedRun, fleet: ObservedFleet, now: number): DispatchAction[] {
  if (run.status !== 'RECOVERING' || now < (run.nextAttemptAtMs ?? 0)) return [];
  return [
    { kind: 'begin-attempt', reason: `attempt ${run.attempt + 1} begins`, ...(keepsWorkers(run, fleet) ? { keepsWorkers: true } : {}) },
  ];
}

function cancel(run: ObservedRun, requestedAtMs: number, now: number): DispatchAction[] {
  const action = cancelField(run.attempt);
  const actions: DispatchAction[] = run.control.action === action ? [] : [{ kind: 'write-control', fields: { action } }];
  const hasCoordinator = run.attemptStartedAtMs !== null;
  if (hasCoordinator && now - requestedAtMs < CANCEL_DEADLINE_MS) return actions;
  const reason = hasCoordinator
    ? `cancelled; its coordinator did not confirm within ${CANCEL_DEADLINE_MS / 1000} s`
    : 'cancelled before it began';
  return [...actions, { kind: 'move', to: 'CANCELLED', reason }];
}

function pause(run: ObservedRun, now: number): DispatchAction[] {
  if (now - (run.pauseRequestedAtMs ?? now) >= PAUSE_DEADLINE_MS) {
    const message = `its coordinator did not confirm the pause within ${PAUSE_DEADLINE_MS / 1000} s`;
    return [{ kind: 'end-attempt', end: { kind: 'failed', cause: 'COORDINATOR_SILENT', message } }];
  }
  return askForCheckpoint(run);
}

/** Its coordinator writes one and ends the attempt, within a few seconds; one that is silent is noticed by itself. */
function askForCheckpoint({ attempt, control }: ObservedRun): DispatchAction[] {
  const action = pauseField(attempt);
  return control.action === action ? [] : [{ kind: 'write-control', fields: { action } }];
}

/** @param other where other workers are to hold the shards: what becomes of it */
function status(run: ObservedRun, fleet: ObservedFleet, hasStarted: boolean, now: number, other?: string): DispatchAction[] {
  const explain = (reason: string, isWaiting = true): DispatchAction[] =>
    reason === run.statusReason ? [] : [{ kind: 'explain', reason, isWaiting }];
  const noWorker = waitsForWorker(fleet.counts);
  // Just after a start or an outage nobody was heard yet, which does not mean that nobody is there.
  if (
    run.status !== 'RUNNING' &&
    fleet.reliableForMs < HEARD_WITHIN_MS &&
    (noWorker || (fleet.counts.liveServers === 0 && run.shardHosts !== 'workers'))
  )
    return [];
  if (run.status === 'QUEUED') {
    if (hasStarted && !noWorker)
      return [{ kind: 'move', to: 'PROVISIONING', reason: run.shardHosts === 'workers' ? MEMBERS_START : ABOUT_TO }];
    const claimed = run.servers.filter(({ claim }) => claim !== null).length;
    const loading = run.servers.filter(({ claim }) => claim?.isLoading).map(({ index }) => index);
    const waits = { wait: fleet.waiting?.get(run.runId), memory: fleet.memory?.get(run.runId) };
    return explain(queuedReason(fleet.counts, run, claimed, loading, waits) + lineageNote(run));
  }
  const nobodySits = (run.coordinator?.seats.length ?? 0) === 0;
  if (!noWorker && nobodySits && (run.status === 'PROVISIONING' || run.status === 'RUNNING') && isDataAway(run.lastSeatFailure))
    return explain(`waits for the data store: ${run.lastSeatFailure.message}`);
  if (run.status === 'PROVISIONING') return explain(noWorker ?? provisioningReason(run, fleet, now));
  if (run.status !== 'RUNNING' || !run.coordinator) return [];
  const { waitingFor } = run.coordinator;
  if (waitingFor !== null) return explain(noWorker ?? `waits for ${waitingFor}`);
  if (other !== undefined) return explain(other);
  return run.isWaiting ? explain('training goes on', false) : [];
}

const MEMBERS_START = 'its workers hold their shards and start their engines';
const ABOUT_TO = 'its servers are set up; a worker is about to take the first seat';

const lineageNote = ({ attempt, fromRound }: ObservedRun): string =>
  attempt === 1 && fromRound === 0 ? '' : ` (attempt ${attempt}, from round ${fromRound})`;

function provisioningReason(run: ObservedRun, { counts, seatRoom }: ObservedFleet, now: number): string {
  if ((run.coordinator?.seats.length ?? 0) > 0) {
    const waitingFor = run.coordinator?.waitingFor;
    return waitingFor ? `waits for ${waitingFor}` : 'a worker has its seat and loads parameters and data';
  }
  if (run.shardHosts === 'workers') return MEMBERS_START;
  if (seatRoom?.get(run.runId) === 0) return 'waits for a worker: other runs of the team hold all that its limit allows (workers)';
  if (counts.idleWorkers === 0) return 'waits for a worker: all are busy with other runs';
  const waitedMs = now - (run.attemptStartedAtMs ?? now);
  if (waitedMs < SEAT_EXPECTED_WITHIN_MS) return ABOUT_TO;
  const last = run.lastSeatFailure === null ? '' : `; the last failure: ${run.lastSeatFailure.message}`;
  return `waits for a worker: ${counts.idleWorkers} idle, but none has taken the first seat${last}`;
}
