/** A shard with a standby, as the dispatcher sees it: placed with both, lost with both, and decisions of the arbiter told again. */
import { describe, expect, it } from 'vitest';
import { placementJobId } from '../contract/queues.js';
import type { DispatchAction, ObservedFleet, ObservedRun, ObservedServer, ServerHealth } from './observed-run.js';
import { jobsInQuestion, reconcile } from './reconcile.js';
import { leadOf, shardsOf } from './shards.js';

const NOW = 1_000_000;
const RUN_ID = '0190c5a5-0000-7000-8000-000000000000';
const address = (index: number, serverId: string) => ({ index, serverId, host: 'h', port: 1, unixPath: null });
const place = (index: number, role: 'primary' | 'standby', serverId: string, changes: Partial<ObservedServer> = {}): ObservedServer => ({
  index,
  role,
  term: 1,
  isDropped: false,
  incarnation: 0,
  madeAtMs: NOW - 60_000,
  claim: { address: address(index, serverId), atMs: NOW - 59_000, storage: null },
  ...changes,
});
const servers = [place(0, 'primary', 'p0'), place(0, 'standby', 's0'), place(1, 'primary', 'p1'), place(1, 'standby', 's1')];
const START = JSON.stringify({
  attempt: 1,
  servers: [address(0, 'p0'), address(1, 'p1')],
  standbys: [address(0, 's0'), address(1, 's1')],
});

const run = (changes: Partial<ObservedRun> = {}): ObservedRun => ({
  runId: RUN_ID,
  status: 'RUNNING',
  statusReason: 'training began',
  isWaiting: false,
  attempt: 1,
  storedSequence: 0,
  coordinatorTerm: 1,
  fromRound: 0,
  cancelRequestedAtMs: null,
  pauseRequestedAtMs: null,
  nextAttemptAtMs: null,
  workersWanted: null,
  serversNeeded: 4,
  standby: 1,
  replicas: 1,
  attemptStartedAtMs: NOW - 58_000,
  seatFailures: 0,
  lastSeatFailureAtMs: null,
  lastSeatFailure: null,
  servers,
  openTasks: [],
  heldTasks: [],
  coordinator: {
    phase: 'evaluating',
    round: 50,
    totalRounds: 100,
    seats: [{ seat: 0, incarnation: 0, workerId: 'w', replicas: [0] }],
    waitingFor: null,
    atMs: NOW - 500,
  },
  control: { start: START },
  ...changes,
});
const seen = { silentMs: 500, hasLeft: false, isSuspected: false, isRefused: false };
const fleet = (changes: Record<string, Partial<ServerHealth>> = {}, reliableForMs = 60_000): ObservedFleet => ({
  servers: new Map(['p0', 's0', 'p1', 's1'].map((id) => [id, { ...seen, ...changes[id] }])),
  isReliable: true,
  reliableForMs,
  counts: { liveServers: 4, liveWorkers: 1, idleWorkers: 0, incompatible: [] },
});
/** What is done about servers; seats are not looked at here. */
const decide = (observed: ObservedRun, view = fleet(), jobs = new Map()): DispatchAction[] =>
  reconcile(observed, view, jobs, NOW).filter(({ kind }) => !['hold-seat', 'close-seat', 'open-seat'].includes(kind));
const GONE = { silentMs: 1_600, isRefused: true };
const LEFT = { hasLeft: true };
const ended = (cause: string, message: string) => [
  { kind: 'end-attempt', end: { kind: 'failed', cause, message: expect.stringContaining(message) as string } },
];
const leadField = (index: number, primary: string, term: number) =>
  JSON.stringify({ attempt: 1, index, term, primary, standby: null, storedSequence: 4 });

describe('placing', () => {
  const waiting = { status: 'QUEUED', attemptStartedAtMs: null, coordinator: null, control: {} } as const;

  it('begins when both servers of every shard have claimed their parts', () => {
    const open = servers.map((server) =>
      server.role === 'standby' && server.index === 1 ? { ...server, claim: null, madeAtMs: NOW } : server,
    );
    expect(decide(run({ ...waiting, servers: open }))).toEqual([
      { kind: 'explain', reason: 'waits for 2 parameter servers with a standby each to get ready: 3 of 4 are', isWaiting: true },
    ]);
    expect(decide(run(waiting))).toEqual([
      { kind: 'mark-started' },
      { kind: 'write-control', fields: { start: START } },
      expect.objectContaining({ kind: 'move', to: 'PROVISIONING' }),
    ]);
  });

  it('makes the placement of a standby again, under its own job id', () => {
    const open = servers.map((server) => (server.role === 'standby' && server.index === 1 ? { ...server, claim: null } : server));
    const observed = run({ ...waiting, servers: open });
    const id = placementJobId(RUN_ID, 1, 1, 0, 'standby');
    expect(jobsInQuestion(observed, NOW).placements).toEqual([id]);
    const jobs = new Map([[id, { state: 'over', notWaitingSinceMs: NOW }]]);
    expect(decide(observed, fleet(), jobs)).toContainEqual(
      expect.objectContaining({ kind: 'make-placement-again', index: 1, role: 'standby', incarnation: 0 }),
    );
  });

  it('replaces a standby that is lost before the start', () => {
    expect(decide(run(waiting), fleet({ s1: GONE }))).toContainEqual(
      expect.objectContaining({ kind: 'make-placement-again', index: 1, role: 'standby', serverId: 's1' }),
    );
  });
});

describe('after the start', () => {
  it.each([
    ['a primary that is gone', { p1: GONE }],
    ['the coordinator, said goodbye', { p0: LEFT }],
    ['a primary that is silent', { p1: { silentMs: 6_000 } }],
    ['a standby', { s0: GONE }],
    ['one server of each shard', { p0: GONE, s1: GONE }],
  ])('the attempt goes on without %s', (_, changes) => {
    expect(decide(run(), fleet(changes))).toEqual([]);
  });

  it('ends with both servers of a shard, and with a primary that nobody takes over from', () => {
    expect(decide(run(), fleet({ p1: GONE, s1: GONE }))).toEqual(
      ended('SERVER_LOST', 'parameter server 1 (p1) was lost, and its standby s1 too,'),
    );
    expect(decide(run(), fleet({ p1: { ...GONE, silentMs: 20_001 } }))).toEqual(ended('SERVER_LOST', 'parameter server 1 (p1)'));
    // Nobody could hear for most of the time: the standby may have asked in vain.
    expect(decide(run(), fleet({ p1: { ...GONE, silentMs: 20_001 } }, 3_000))).toEqual([]);
  });

  it('a standby that was promoted stands alone; who was replaced is nobody', () => {
    const promoted = [place(0, 'primary', 'p0', { isDropped: true }), place(0, 'standby', 's0', { term: 2 }), ...servers.slice(2)];
    const control = { start: START, lead0: leadField(0, 's0', 2) };
    expect(decide(run({ servers: promoted, control }), fleet({ p0: GONE }))).toEqual([]);
    expect(decide(run({ servers: promoted, control }), fleet({ s0: LEFT }))).toEqual(ended('STOPPED', 'parameter server 0 (s0)'));
    const dropped = [place(0, 'primary', 'p0'), place(0, 'standby', 's0', { isDropped: true }), ...servers.slice(2)];
    const alone = { start: START, lead0: leadField(0, 'p0', 1) };
    expect(decide(run({ servers: dropped, control: alone }), fleet({ p0: GONE }))).toEqual(ended('SERVER_LOST', 'parameter server 0 (p0)'));
  });

  it('what the arbiter has decided is told again when Redis has lost it, and the start stays what it was', () => {
    const promoted = [...servers.slice(0, 2), place(1, 'primary', 'p1', { isDropped: true }), place(1, 'standby', 's1', { term: 2 })];
    const tell = { kind: 'tell-lead', index: 1 };
    expect(decide(run({ servers: promoted, control: {} }))).toEqual([tell, { kind: 'write-control', fields: { start: START } }]);
    expect(decide(run({ servers: promoted, control: { start: START, lead1: leadField(1, 's1', 2) } }))).toEqual([]);
    for (const lead1 of [leadField(1, 'p1', 1), '{', leadField(1, 's1', 2).replace('"attempt":1', '"attempt":2')])
      expect(decide(run({ servers: promoted, control: { start: START, lead1 } }))).toEqual([tell]);
  });
});

it('reads who leads from the places', () => {
  const shards = shardsOf([...servers.slice(0, 2), place(1, 'primary', 'p1', { isDropped: true }), place(1, 'standby', 's1', { term: 2 })]);
  expect(shards.map((shard) => leadOf(shard, ({ claim }) => claim!.address.serverId))).toEqual([
    { index: 0, term: 1, primary: 'p0', standby: 's0' },
    { index: 1, term: 2, primary: 's1', standby: null },
  ]);
});
