import { expect, it } from 'vitest';
import { openIncarnationOf } from './control-fields.js';
import type { DispatchAction, ObservedRun } from './observed-run.js';
import { PLACED_WITHIN_MS } from './placing.js';
import { jobsInQuestion } from './reconcile.js';
import { address, beforeStart, decide, fleet, lostEnd, NOW, run, server, task } from './reconcile.fixture.js';
import { MAX_SEAT_FAILURES, SEATED_WITHIN_MS } from './seats.js';
import { waitsForServers } from './waiting-reason.js';

const shard = (index: number, serverId: string) => {
  const own = { ...address, index, serverId };
  return { ...server, index, claim: { ...server.claim, address: own } };
};
const places = [shard(0, 'w0'), shard(1, 'w1')];
const START = JSON.stringify({ attempt: 3, servers: places.map(({ claim }) => claim.address) });
const NO_SEATS = JSON.stringify({ attempt: 3, seats: [] });
const hosting = (changes: Partial<ObservedRun> = {}) =>
  run({ shardHosts: 'workers', serversNeeded: 2, servers: places, control: { start: START, seats: NO_SEATS }, ...changes });
const alive = { silentMs: 500, hasLeft: false, isSuspected: false, isRefused: false };
const well = fleet(null, {
  servers: new Map(['w0', 'w1'].map((id) => [id, alive])),
  counts: { liveServers: 0, liveWorkers: 2, idleWorkers: 0, incompatible: [] },
});
const kinds = (actions: readonly DispatchAction[]) => actions.map(({ kind }) => kind);
const unseated: Partial<ObservedRun> = {
  heldTasks: [],
  coordinator: { phase: 'waiting', round: 0, totalRounds: 100, seats: [], waitingFor: null, atMs: NOW - 500 },
};

it('opens the seat of every shard at once, and asks no queue for it', () => {
  const waits = hosting({ status: 'PROVISIONING', ...unseated });
  expect(decide(waits, well).filter(({ kind }) => kind === 'open-seat')).toEqual([
    { kind: 'open-seat', seat: 0, heldSeats: 0 },
    { kind: 'open-seat', seat: 1, heldSeats: 0 },
  ]);
  expect(jobsInQuestion(hosting({ openTasks: [{ ...task, seat: 1 }], ...unseated }), NOW).seats).toEqual([]);
});

it('tells the worker with the shard of its seat in the control hash, until it sits there', () => {
  const open = { ...task, id: 't1', seat: 1, incarnation: 4, createdAtMs: NOW - 1_000 };
  const seats = JSON.stringify({ attempt: 3, seats: [{ seat: 1, incarnation: 4, stepTaskId: 't1' }] });
  const one = { coordinator: { ...run().coordinator!, seats: [run().coordinator!.seats[0]!] }, heldTasks: [run().heldTasks[0]!] };
  expect(decide(hosting({ ...one, openTasks: [open] }), well)).toEqual([{ kind: 'write-control', fields: { seats } }]);
  expect(decide(hosting(), well)).toEqual([]);
});

it('offers a seat again that its worker did not take in time, and none without its shard', () => {
  const late = { ...task, seat: 1, createdAtMs: NOW - SEATED_WITHIN_MS - 1 };
  const actions = decide(hosting({ ...unseated, openTasks: [late] }), well);
  expect(actions).toContainEqual({ kind: 'close-seat', task: late, why: 'its worker did not take the seat in time' });
  expect(actions).toContainEqual({ kind: 'open-seat', seat: 1, heldSeats: 0 });
  const taken = { ...places[1]!, isDropped: true };
  const standby = { ...shard(1, 'w0'), role: 'standby', term: 2 } as const;
  const after = decide(hosting({ ...unseated, servers: [places[0]!, taken, standby], standby: 1 }), well);
  expect(after.filter(({ kind }) => kind === 'open-seat')).toEqual([{ kind: 'open-seat', seat: 0, heldSeats: 0 }]);
});

it('ends the attempt when a worker cannot take its seat, though the others sit in theirs', () => {
  const failing = {
    seatFailures: MAX_SEAT_FAILURES,
    lastSeatFailureAtMs: NOW,
    lastSeatFailure: { code: 'COMPUTE_START', message: 'no engine' },
  };
  expect(decide(hosting(failing), well)).toEqual([
    { kind: 'end-attempt', end: { kind: 'failed', cause: 'NO_WORKER_FITS', message: expect.stringContaining('no engine') } },
  ]);
});

it('a worker that is lost with its shard ends the attempt, which names it', () => {
  const without = {
    ...well,
    servers: new Map([
      ['w1', alive],
      ['w0', { ...alive, silentMs: 9_000 }],
    ]),
  };
  expect(decide(hosting(), without)).toEqual(lostEnd('SERVER_LOST', expect.stringContaining('the worker with shard 0 (w0) was lost')));
});

it('waits for workers, never for servers, and asks for no standby by a job', () => {
  const unclaimed = places.map((place) => ({ ...place, claim: null, madeAtMs: NOW - 60_000 }));
  const standbys = unclaimed.map((place) => ({ ...place, role: 'standby' as const }));
  const queued = hosting({ ...beforeStart, shardHosts: 'workers', serversNeeded: 4, standby: 1, servers: [...unclaimed, ...standbys] });
  expect(jobsInQuestion(queued, NOW).placements.filter((id) => id.includes('standby'))).toEqual([]);
  const reason = (liveWorkers: number): unknown => {
    const [said] = decide(queued, { ...well, counts: { ...well.counts, liveWorkers } }).filter(({ kind }) => kind === 'explain');
    return said && 'reason' in said && said.reason;
  };
  expect(reason(0)).toContain('waits for 2 workers that hold the parameters: none is connected; start one with `paceline up`');
  expect(reason(1)).toContain('only one is connected; start more, or go on with fewer (paceline scale)');
  expect(kinds(decide(queued, well))).not.toContain('make-placement-again');
});

it.each([
  [1, 'the only one that is connected has no folder for checkpoints; give it one (PACELINE_DATA_DIR)'],
  [3, '3 are connected, and none has a folder for checkpoints; give one of them one (PACELINE_DATA_DIR)'],
])('a run on one worker says what %i without a folder need, and nothing of fewer workers', (liveWorkers, why) => {
  const counts = { liveServers: 0, liveWorkers, shardWorkers: 0 };
  const asked = { serversNeeded: 1, standby: 0, shardHosts: 'workers' } as const;
  expect(waitsForServers(counts, asked, 0)).toBe(`waits for 1 worker that holds the parameters: ${why}`);
});

it('ends the attempt when a seat was offered three times in vain and nobody sits', () => {
  const late = { ...task, seat: 1, incarnation: 2, createdAtMs: NOW - SEATED_WITHIN_MS - 1 };
  expect(decide(hosting({ ...unseated, openTasks: [late] }), well)).toEqual(
    lostEnd('NOT_PLACED', expect.stringContaining('the worker with shard 1 has not taken its seat within 90 s, 3 times')),
  );
  expect(kinds(decide(hosting({ openTasks: [late] }), well))).not.toContain('end-attempt');
});

it('lets the workers go that wait for one that does not come', () => {
  const waits = (atMs: number, claim = { ...places[0]!.claim, atMs }) =>
    hosting({
      ...beforeStart,
      shardHosts: 'workers',
      servers: [
        { ...places[0]!, claim },
        { ...places[1]!, claim: null, madeAtMs: NOW },
      ],
    });
  expect(kinds(decide(waits(NOW - PLACED_WITHIN_MS), well))).not.toContain('end-attempt');
  expect(decide(waits(NOW - PLACED_WITHIN_MS - 1), well)).toEqual(
    lostEnd('NOT_PLACED', 'no worker has taken shard 1 within 2 minutes; the others are free again'),
  );
  const onServers = { ...waits(NOW - PLACED_WITHIN_MS - 1), shardHosts: 'servers' as const };
  expect(kinds(decide(onServers, well))).not.toContain('end-attempt');
  const nobody = hosting({ ...beforeStart, shardHosts: 'workers', servers: places.map((place) => ({ ...place, claim: null })) });
  expect(kinds(decide(nobody, well))).not.toContain('end-attempt');
});

it('says which parts were made again, so that who holds one claims it anew', () => {
  const servers = [places[0]!, { ...places[1]!, claim: null, incarnation: 1, madeAtMs: NOW }];
  const [said] = decide(hosting({ ...beforeStart, shardHosts: 'workers', servers }), well).filter(({ kind }) => kind === 'write-control');
  const { claims } = (said as { fields: { claims: string } }).fields;
  expect(JSON.parse(claims)).toMatchObject({ open: [{ index: 1, role: 'primary', incarnation: 1 }] });
  const part = { attempt: 3, index: 1, role: 'primary', incarnation: 0 } as const;
  expect(openIncarnationOf(claims, part)).toBe(1);
  for (const other of [{ incarnation: 1 }, { index: 0 }, { role: 'standby' as const }, { attempt: 2 }])
    expect(openIncarnationOf(claims, { ...part, ...other })).toBeUndefined();
});

it('takes a standby back from a worker that has lost its shard', () => {
  const standby = (index: number, serverId: string) => ({ ...shard(index, serverId), role: 'standby' as const });
  const placed = (...standbys: readonly string[]) =>
    hosting({
      ...beforeStart,
      shardHosts: 'workers',
      serversNeeded: 4,
      standby: 1,
      servers: [...places, ...standbys.map((serverId, index) => standby(index, serverId))],
    });
  expect(kinds(decide(placed('w1', 'w0'), well))).toContain('mark-started');
  expect(decide(placed('w1', 'w1'), well)).toContainEqual(
    expect.objectContaining({ kind: 'make-placement-again', index: 1, role: 'standby', serverId: 'w1' }),
  );
});
