/**
 * Parameter servers of an attempt: every index is claimed by one server process, then all are told to begin.
 *
 *     placement job waits ─ server.claimed ─> claimed, loading ─> loaded ─ all have ─> `start` in the control hash
 *        ^      │ job gone (flush, declined)      │ server lost before the start
 *        └──────┴────────── made + 1 ─────────────┘
 *
 * A job that came twice makes two servers hold one part, and one of them is missing elsewhere: as long as a part finds no server,
 * the control hash says whose claims count, and the others let go. A claim that comes after its placement was made again does not count:
 * the control hash says which parts are open, and whoever holds one claims it once more.
 *
 * Where workers hold the shards, a worker with one is free for nothing else. So one part that nobody takes ends the attempt, and lets them all go.
 * Servers that hold parts of a run keep their memory from others, while another part waits for memory. So the attempt ends when an older run waits for
 * that memory (server-room.ts says which), and in any case before the servers give the wait up by themselves.
 *
 * After the start a lost server ends the attempt: its part of the parameters is gone. Lost is who said goodbye, who is silent,
 * and, sooner, who is silent while nobody listens at its port or a worker cannot reach it. A shard that has a standby is lost
 * with both of its servers: while one of the two lives, the arbiter settles who leads. A server that is lost with parts of several runs is
 * charged to none of them (restarts.ts): a placement of one may have taken it down.
 */
import { leadFieldName } from '../contract/control.js';
import { placementJobId } from '../contract/queues.js';
import type { AttemptEnd } from './attempt-end.js';
import { claimsField, saysLead, startField } from './control-fields.js';
import type { DispatchAction, ObservedFleet, ObservedJob, ObservedRun, ObservedServer } from './observed-run.js';
import { leadOf, shardsOf } from './shards.js';

/**
 * Workers that hold shards wait this long for the one that is missing. A worker that sits in another run yields at the end of its slice, when its
 * round is over.
 */
export const PLACED_WITHIN_MS = 120_000;
/** A run has waited so long when younger ones let go of the memory that it needs: others might have ended. */
export const IN_THE_WAY_WITHIN_MS = 30_000;
/** Heartbeats come every second. */
export const LOST_AFTER_MS = 5_000;
export const SUSPECTED_SILENCE_MS = 2_500;
export const REFUSED_SILENCE_MS = 1_500;
/** A refused connection speaks for itself; the reports must only have been read for long enough to have brought a heartbeat. */
const REFUSED_HEARING_MS = 2_500;
/** A claim is reported at once; a job that is gone for this long without a claim is made again. */
const MAKE_AGAIN_AFTER_MS = 2_000;
const MAKE_AGAIN_AT_MOST_MS = 15_000;
/** Parameters that are not loaded by then will not be: another server is tried. */
export const LOADING_AT_MOST_MS = 600_000;
/** Servers of one part that are lost before the start: a run that takes its servers down must not go through the whole fleet for ever. */
export const MAX_REPLACED = 5;
/** A coordinator reports every second, on a server that lives. */
export const COORDINATOR_SILENCE_MS = 20_000;
/** A standby that lives asks to be promoted within its heartbeat deadline; one that does not is of no use. */
export const TAKEOVER_WITHIN_MS = 20_000;

interface Lost {
  readonly server: ObservedServer;
  readonly serverId: string;
  /** Cause of the attempt's end, if this loss ends it. */
  readonly cause: 'SERVER_LOST' | 'STOPPED';
  readonly why: string;
}

export interface Placing {
  readonly actions: DispatchAction[];
  /** All servers are there and were told to begin. */
  readonly hasStarted: boolean;
}

export function place(run: ObservedRun, fleet: ObservedFleet, jobs: ReadonlyMap<string, ObservedJob>, now: number): Placing {
  const lost = lostServer(run, fleet, now);
  if (lost) {
    const isReplaced = run.attemptStartedAtMs === null && lost.server.incarnation < MAX_REPLACED;
    const action: DispatchAction = isReplaced ? replace(lost) : { kind: 'end-attempt', end: lostEnd(run, fleet, lost) };
    return { actions: [action], hasStarted: false };
  }
  const claims = run.servers.flatMap(({ claim }) => (claim && !claim.isLoading ? [claim] : []));
  const stray = run.attemptStartedAtMs === null ? strayStandby(run) : undefined;
  if (stray) return { actions: [stray], hasStarted: false };
  if (claims.length < run.serversNeeded) {
    const missing = missingTooLong(run, now) ?? withoutMemoryTooLong(run, fleet, now);
    return { actions: missing ? [missing] : [...tellClaims(run, now), ...remake(run, jobs, now)], hasStarted: false };
  }
  const storages = [...new Set(claims.flatMap(({ storage }) => (storage === null ? [] : [storage])))];
  if (storages.length > 1 && run.attemptStartedAtMs === null) {
    const message = `its ${run.shardHosts ?? 'servers'} would write checkpoints to different places (${storages.slice(0, 4).join(', ')}), so no checkpoint could be complete: give all of them one shared folder or bucket, or ask for one (strategy.${run.shardHosts ?? 'servers'}: 1)`;
    return { actions: [{ kind: 'end-attempt', end: { kind: 'failed', cause: 'STORAGE_NOT_SHARED', message } }], hasStarted: false };
  }
  const silent = silentCoordinator(run, fleet, now);
  if (silent) return { actions: [silent], hasStarted: false };
  const actions: DispatchAction[] = lostLeads(run);
  const start = startOf(run);
  if (run.attemptStartedAtMs === null) actions.push({ kind: 'mark-started' });
  if (run.control.start !== start) actions.push({ kind: 'write-control', fields: { start } });
  return { actions, hasStarted: true };
}

/** Placement jobs whose state decides something now. */
export function placementsInQuestion(run: ObservedRun, now: number): string[] {
  return run.servers
    .filter((server) => hasJob(run, server) && isOverdue(server, now))
    .map(({ index, incarnation, role }) => placementJobId(run.runId, run.attempt, index, incarnation, role));
}

/** What the servers began with: a takeover changes nothing of it, they ask the arbiter. */
function startOf({ attempt, servers }: ObservedRun): string {
  const of = (role: ObservedServer['role']) =>
    servers.flatMap((server) => (server.claim && server.role === role ? server.claim.address : []));
  return startField(attempt, of('primary'), of('standby'));
}

/** Decisions of the arbiter that Redis has lost, or that never came there. */
function lostLeads({ servers, attempt, control }: ObservedRun): DispatchAction[] {
  const missing = shardsOf(servers).filter((shard) => {
    const lead = leadOf(shard, ({ claim }) => claim?.address.serverId ?? '');
    return shard.isDecided && !saysLead(control[leadFieldName(shard.index)], attempt, lead);
  });
  return missing.map(({ index }) => ({ kind: 'tell-lead', index }));
}

const isOverdue = ({ claim, incarnation, madeAtMs }: ObservedServer, now: number): boolean =>
  claim === null && now - madeAtMs >= Math.min(MAKE_AGAIN_AFTER_MS * 2 ** Math.min(incarnation, 4), MAKE_AGAIN_AT_MOST_MS);

/** A worker that holds a shard takes the standby of the next shard by itself. */
const hasJob = ({ shardHosts }: ObservedRun, { role }: ObservedServer): boolean => shardHosts !== 'workers' || role === 'primary';

function tellClaims({ servers, attempt, control }: ObservedRun, now: number): DispatchAction[] {
  const open = servers.flatMap(({ index, role, incarnation, claim }) =>
    claim === null && incarnation > 0 ? [{ index, role, incarnation }] : [],
  );
  if (open.length === 0 && !servers.some((server) => isOverdue(server, now))) return [];
  const claims = claimsField(
    attempt,
    servers.flatMap(({ index, role, incarnation, claim }) =>
      claim ? [{ index, role, incarnation, serverId: claim.address.serverId }] : [],
    ),
    open,
  );
  return control.claims === claims ? [] : [{ kind: 'write-control', fields: { claims } }];
}

function remake(run: ObservedRun, jobs: ReadonlyMap<string, ObservedJob>, now: number): DispatchAction[] {
  return run.servers
    .filter((server) => hasJob(run, server) && isOverdue(server, now))
    .flatMap(({ index, incarnation, role }) => {
      const state = jobs.get(placementJobId(run.runId, run.attempt, index, incarnation, role))?.state;
      if (state !== 'missing' && state !== 'over') return [];
      return [{ kind: 'make-placement-again', index, role, incarnation, serverId: null, why: `its job was ${state}` } as const];
    });
}

/** Nothing else ends this wait: the workers that have claimed their parts hold them until they hear of a start, or of the end. */
function missingTooLong(run: ObservedRun, now: number): DispatchAction | undefined {
  const claimed = run.servers.flatMap(({ claim }) => (claim ? [claim.atMs] : []));
  if (run.shardHosts !== 'workers' || run.attemptStartedAtMs !== null || claimed.length === 0) return undefined;
  const missing = run.servers.filter(({ claim }) => claim === null);
  if (missing.length === 0 || now - Math.max(...claimed) <= PLACED_WITHIN_MS) return undefined;
  const parts = missing.map(({ index, role }) => `${role === 'standby' ? 'the standby of shard' : 'shard'} ${index}`).join(', ');
  const message = `no worker has taken ${parts} within ${PLACED_WITHIN_MS / 60_000} minutes; the others are free again`;
  return { kind: 'end-attempt', end: { kind: 'failed', cause: 'NOT_PLACED', message } };
}

/** Nothing of the attempt has begun, so its end costs nothing: the next one waits in line behind the run that it was in the way of. */
function withoutMemoryTooLong(run: ObservedRun, { memory }: ObservedFleet, now: number): DispatchAction | undefined {
  const claimed = run.servers.flatMap(({ claim }) => (claim ? [claim.atMs] : []));
  const wait = memory?.get(run.runId);
  if (!wait || run.attemptStartedAtMs !== null || claimed.length === 0) return undefined;
  const end = (why: string): DispatchAction => ({
    kind: 'end-attempt',
    end: { kind: 'failed', cause: 'NO_MEMORY', message: `${why}; its other servers are free again` },
  });
  if (wait.olderWaitsSinceMs !== undefined && now - wait.olderWaitsSinceMs > IN_THE_WAY_WITHIN_MS)
    return end('it waited for memory, and an older run waits for that of its servers');
  if (now - Math.min(...claimed) > LOADING_AT_MOST_MS)
    return end(`no server had the memory for each of its parts within ${LOADING_AT_MOST_MS / 60_000} minutes`);
  return undefined;
}

/** The worker with shard i has the standby of shard i + 1. One that holds the standby alone has lost its shard to another worker. */
function strayStandby({ shardHosts, servers }: ObservedRun): DispatchAction | undefined {
  if (shardHosts !== 'workers') return undefined;
  const primaries = servers.filter(({ role }) => role === 'primary');
  for (const server of servers) {
    const { index, role, incarnation, claim } = server;
    if (role !== 'standby' || !claim) continue;
    const before = primaries.find((primary) => primary.index === (index + primaries.length - 1) % primaries.length);
    const { serverId } = claim.address;
    if (!before?.claim || before.claim.address.serverId === serverId) continue;
    const why = `${serverId} has the standby of shard ${index}, and not shard ${before.index}`;
    if (incarnation < MAX_REPLACED) return { kind: 'make-placement-again', index, role, incarnation, serverId, why };
    return { kind: 'end-attempt', end: { kind: 'failed', cause: 'NOT_PLACED', message: `${why}, as ${incarnation} times before` } };
  }
  return undefined;
}

const replace = ({ server: { index, incarnation, role }, serverId, why }: Lost): DispatchAction => ({
  kind: 'make-placement-again',
  index,
  role,
  incarnation,
  serverId,
  why: `server ${serverId} ${why} before the start`,
});

/** When several runs lose a server, nobody can say which of them caused it, so none is charged. A run that keeps losing servers before it begins is. */
function lostEnd(run: ObservedRun, { runsOn }: ObservedFleet, { server, serverId, cause, why }: Lost): AttemptEnd {
  const isShared = run.attemptStartedAtMs !== null && (runsOn?.get(serverId) ?? 1) > 1;
  const round = run.coordinator?.round ?? run.fromRound;
  const when = run.attemptStartedAtMs === null ? `before the start, as ${server.incarnation} before it` : `in round ${round}`;
  const message = `${nameOf(run, server.index)} (${serverId}) ${why} ${when}`;
  return { kind: 'failed', cause, message, ...(isShared ? { isShared } : {}) };
}

/** For people. */
const nameOf = ({ shardHosts }: ObservedRun, index: number): string =>
  shardHosts === 'workers' ? `the worker with shard ${index}` : `parameter server ${index}`;

/** Before the start, any server that is lost; after it, the primary of a shard that nobody takes over. */
function lostServer(run: ObservedRun, fleet: ObservedFleet, now: number): Lost | undefined {
  const lost = (server: ObservedServer) => isLost(server, fleet, now);
  if (run.attemptStartedAtMs === null) return run.servers.map(lost).find((found) => found !== undefined);
  for (const { primary, standby } of shardsOf(run.servers)) {
    const found = lost(primary);
    if (!found) continue;
    const silentMs = fleet.servers.get(found.serverId)?.silentMs ?? 0;
    if (!standby || Math.min(silentMs, fleet.reliableForMs) > TAKEOVER_WITHIN_MS) return found;
    if (lost(standby)) return { ...found, why: `${found.why}, and its standby ${standby.claim!.address.serverId} too,` };
  }
  return undefined;
}

function isLost(server: ObservedServer, fleet: ObservedFleet, now: number): Lost | undefined {
  if (!server.claim) return undefined;
  const { serverId } = server.claim.address;
  const seen = fleet.servers.get(serverId);
  const lost = { server, serverId, cause: 'SERVER_LOST', why: 'was lost' } as const;
  if (server.claim.isLoading && now - server.claim.atMs > LOADING_AT_MOST_MS)
    return { ...lost, why: `had not loaded its part within ${LOADING_AT_MOST_MS / 60_000} minutes` };
  if (seen?.hasLeft) return { ...lost, cause: 'STOPPED', why: 'was stopped' };
  if (seen?.isRefused && seen.silentMs > REFUSED_SILENCE_MS && fleet.reliableForMs >= REFUSED_HEARING_MS) return lost;
  if (!fleet.isReliable) return undefined;
  if (!seen) return now - server.claim.atMs > 2 * LOST_AFTER_MS ? lost : undefined;
  return seen.silentMs > (seen.isSuspected ? SUSPECTED_SILENCE_MS : LOST_AFTER_MS) ? lost : undefined;
}

/** Its process lives, but nobody there speaks of the attempt: nobody owns the run. */
function silentCoordinator(run: ObservedRun, fleet: ObservedFleet, now: number): DispatchAction | undefined {
  if (run.attemptStartedAtMs === null || !fleet.isReliable || fleet.reliableForMs < COORDINATOR_SILENCE_MS) return undefined;
  const heardAtMs = Math.max(run.attemptStartedAtMs, run.coordinator?.atMs ?? 0);
  if (now - heardAtMs <= COORDINATOR_SILENCE_MS) return undefined;
  const message = `the coordinator (${nameOf(run, 0)}) has not reported for ${Math.round((now - heardAtMs) / 1000)} s`;
  return { kind: 'end-attempt', end: { kind: 'failed', cause: 'COORDINATOR_SILENT', message } };
}
