/** A run in the middle of its training with a fleet that is well, and changes of both. */
import { expect } from 'vitest';
import type { DispatchAction, ObservedFleet, ObservedJob, ObservedRun, ServerHealth } from './observed-run.js';
import { reconcile } from './reconcile.js';

export const NOW = 1_000_000;
export const RUN_ID = '0190c5a5-0000-7000-8000-000000000000';
export const address = { index: 0, serverId: 'ps-a', host: 'h', port: 1, unixPath: null };
export const server = {
  ...({ index: 0, role: 'primary', term: 1, isDropped: false } as const),
  incarnation: 0,
  madeAtMs: NOW - 60_000,
  claim: { address, atMs: NOW - 59_000, storage: null },
};
export const START = JSON.stringify({ attempt: 3, servers: [address] });
export const task = {
  id: 't',
  seat: 0,
  incarnation: 0,
  workerId: null,
  replicas: [],
  heldSeats: 0,
  createdAtMs: NOW - 50_000,
  heldAtMs: null,
};
export const JOB = `step-${RUN_ID}-a3-s0-n0`;

export const run = (changes: Partial<ObservedRun> = {}): ObservedRun => ({
  runId: RUN_ID,
  status: 'RUNNING',
  statusReason: 'training began',
  isWaiting: false,
  attempt: 3,
  cancelRequestedAtMs: null,
  pauseRequestedAtMs: null,
  nextAttemptAtMs: null,
  serversNeeded: 1,
  standby: 0,
  replicas: 2,
  workersWanted: null,
  fromRound: 40,
  attemptStartedAtMs: NOW - 58_000,
  storedSequence: 0,
  coordinatorTerm: 1,
  seatFailures: 0,
  lastSeatFailureAtMs: null,
  lastSeatFailure: null,
  servers: [server],
  openTasks: [],
  heldTasks: [0, 1].map((seat) => ({ ...task, id: `t${seat}`, seat, workerId: `w${seat}`, replicas: [seat], heldAtMs: NOW - 40_000 })),
  coordinator: {
    phase: 'training',
    round: 50,
    totalRounds: 10_000,
    seats: [0, 1].map((seat) => ({ seat, incarnation: 0, workerId: `w${seat}`, replicas: [seat] })),
    waitingFor: null,
    atMs: NOW - 500,
  },
  control: { start: START },
  ...changes,
});
export const fleet = (sighting: Partial<ServerHealth> | null = {}, changes: Partial<ObservedFleet> = {}): ObservedFleet => ({
  servers: new Map(sighting ? [['ps-a', { silentMs: 500, hasLeft: false, isSuspected: false, isRefused: false, ...sighting }]] : []),
  isReliable: true,
  reliableForMs: 60_000,
  counts: { liveServers: 1, liveWorkers: 2, idleWorkers: 0, incompatible: [] },
  ...changes,
});
export const decide = (observed: ObservedRun, seen = fleet(), jobs = new Map<string, ObservedJob>()): DispatchAction[] =>
  reconcile(observed, seen, jobs, NOW);
export const lostEnd = (cause = 'SERVER_LOST', message: unknown = expect.stringContaining('parameter server 0 (ps-a)')) => [
  { kind: 'end-attempt', end: { kind: 'failed', cause, message } },
];
export const unclaimed = { ...server, claim: null };
export const beforeStart = { status: 'QUEUED', attemptStartedAtMs: null, coordinator: null, heldTasks: [], control: {} } as const;
