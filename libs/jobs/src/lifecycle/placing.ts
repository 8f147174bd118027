/**
 * Parameter servers of an attempt: every index is claimed by one server process, then all are told to begin.
 *
 *     placement job waits ─ server.claimed ─> claimed ─ all claimed ─> `start` in the control hash
 *        ^      │ job gone (flush, declined)      │ server lost before the start
 *        └──────┴────────── made + 1 ─────────────┘
 *
 * After the start a lost server ends the attempt: its part of the parameters is gone. Lost is who said goodbye, who is silent,
 * and, sooner, who is silent while nobody listens at its port or a worker cannot reach it.
 */
import { placementJobId } from '../contract.js';
import { startField } from './control-fields.js';
import type { DispatchAction, FleetPicture, JobSighting, RunPicture, ServerPicture } from './picture.js';

/** Heartbeats come every second. */
export const LOST_AFTER_MS = 5_000;
export const SUSPECTED_SILENCE_MS = 2_500;
export const REFUSED_SILENCE_MS = 1_500;
/** A refused connection speaks for itself; the reports must only have been read for long enough to have brought a heartbeat. */
const REFUSED_HEARING_MS = 2_500;
/** A claim is reported at once; a job that is gone for this long without a claim is made again. */
const MAKE_AGAIN_AFTER_MS = 2_000;
const MAKE_AGAIN_AT_MOST_MS = 15_000;
/** A coordinator reports every second, on a server that lives. */
export const COORDINATOR_SILENCE_MS = 20_000;

interface Lost {
  readonly server: ServerPicture;
  readonly serverId: string;
  readonly why: string;
}

export interface Placing {
  readonly actions: DispatchAction[];
  /** All servers are there and were told to begin. */
  readonly hasStarted: boolean;
}

export function place(run: RunPicture, fleet: FleetPicture, jobs: ReadonlyMap<string, JobSighting>, now: number): Placing {
  const lost = lostServer(run, fleet, now);
  if (lost) {
    const action: DispatchAction = run.attemptStartedAtMs === null ? replace(lost) : { kind: 'end-attempt', end: lostEnd(run, lost) };
    return { actions: [action], hasStarted: false };
  }
  const claims = run.servers.flatMap(({ claim }) => (claim ? [claim] : []));
  if (claims.length < run.serversNeeded) return { actions: remake(run, jobs, now), hasStarted: false };
  const storages = [...new Set(claims.flatMap(({ storage }) => (storage === null ? [] : [storage])))];
  if (storages.length > 1 && run.attemptStartedAtMs === null) {
    const message = `its servers would write checkpoints to different places (${storages.slice(0, 4).join(', ')}), so none could be whole: give all servers one shared folder or bucket, or ask for one server (strategy.servers: 1)`;
    return { actions: [{ kind: 'end-attempt', end: { kind: 'failed', cause: 'STORAGE_NOT_SHARED', message } }], hasStarted: false };
  }
  const silent = silentCoordinator(run, fleet, now);
  if (silent) return { actions: [silent], hasStarted: false };
  const start = startField(
    run.attempt,
    claims.map(({ address }) => address),
  );
  const actions: DispatchAction[] = [];
  if (run.attemptStartedAtMs === null) actions.push({ kind: 'mark-started' });
  if (run.control.start !== start) actions.push({ kind: 'write-control', fields: { start } });
  return { actions, hasStarted: true };
}

/** Placement jobs whose state decides something now. */
export function placementsInQuestion(run: RunPicture, now: number): string[] {
  return run.servers
    .filter((server) => isOverdue(server, now))
    .map(({ index, made }) => placementJobId(run.runId, run.attempt, index, made));
}

const isOverdue = ({ claim, made, madeAtMs }: ServerPicture, now: number): boolean =>
  claim === null && now - madeAtMs >= Math.min(MAKE_AGAIN_AFTER_MS * 2 ** Math.min(made, 4), MAKE_AGAIN_AT_MOST_MS);

function remake(run: RunPicture, jobs: ReadonlyMap<string, JobSighting>, now: number): DispatchAction[] {
  return run.servers
    .filter((server) => isOverdue(server, now))
    .flatMap(({ index, made }) => {
      const state = jobs.get(placementJobId(run.runId, run.attempt, index, made))?.state;
      if (state !== 'missing' && state !== 'over') return [];
      return [{ kind: 'make-placement-again', index, made, serverId: null, why: `its job was ${state}` } as const];
    });
}

const replace = ({ server: { index, made }, serverId }: Lost): DispatchAction => ({
  kind: 'make-placement-again',
  index,
  made,
  serverId,
  why: `server ${serverId} was lost before the start`,
});

function lostEnd(run: RunPicture, { server, serverId, why }: Lost) {
  const round = run.coordinator?.round ?? run.fromRound;
  const cause = why === 'was stopped' ? 'STOPPED' : 'SERVER_LOST';
  return { kind: 'failed', cause, message: `parameter server ${server.index} (${serverId}) ${why} in round ${round}` } as const;
}

function lostServer(run: RunPicture, fleet: FleetPicture, now: number): Lost | undefined {
  for (const server of run.servers) {
    if (!server.claim) continue;
    const { serverId } = server.claim.address;
    const seen = fleet.servers.get(serverId);
    if (seen?.hasLeft) return { server, serverId, why: 'was stopped' };
    if (seen?.isRefused && seen.silentMs > REFUSED_SILENCE_MS && fleet.hearingForMs >= REFUSED_HEARING_MS)
      return { server, serverId, why: 'was lost' };
    if (!fleet.canJudge) continue;
    if (!seen) {
      if (now - server.claim.atMs > 2 * LOST_AFTER_MS) return { server, serverId, why: 'was lost' };
      continue;
    }
    if (seen.silentMs > (seen.isSuspected ? SUSPECTED_SILENCE_MS : LOST_AFTER_MS)) return { server, serverId, why: 'was lost' };
  }
  return undefined;
}

/** Its process lives, but nobody there speaks of the attempt: nobody owns the run. */
function silentCoordinator(run: RunPicture, fleet: FleetPicture, now: number): DispatchAction | undefined {
  if (run.attemptStartedAtMs === null || !fleet.canJudge || fleet.hearingForMs < COORDINATOR_SILENCE_MS) return undefined;
  const heardAtMs = Math.max(run.attemptStartedAtMs, run.coordinator?.atMs ?? 0);
  if (now - heardAtMs <= COORDINATOR_SILENCE_MS) return undefined;
  const message = `the coordinator (parameter server 0) has not reported for ${Math.round((now - heardAtMs) / 1000)} s`;
  return { kind: 'end-attempt', end: { kind: 'failed', cause: 'COORDINATOR_SILENT', message } };
}
