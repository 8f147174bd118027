import { describe, expect, it } from 'vitest';
import type { ObservedFleet, ObservedRun } from './observed-run.js';
import { beforeStart, decide, fleet, NOW, run, RUN_ID, server, START } from './reconcile.fixture.js';
import { FEWER_AFTER_MS } from './waiting-reason.js';
import { MORE_AFTER_MS, shardWorkersFor, spareWorkersFor } from './worker-numbers.js';

const held = { shardHosts: 'workers', serversNeeded: 3, replicas: 4 } as const;
const asked = { ...held, workersWanted: 2 } as const;
const end = (message: string) => ({ kind: 'end-attempt', end: { kind: 'failed', cause: 'OTHER_WORKERS', message } });
const withWorkers = (shardWorkers: number, shardWorkersLately = shardWorkers): ObservedFleet =>
  fleet({}, { counts: { ...fleet().counts, liveWorkers: 9, shardWorkers, shardWorkersLately } });
const kinds = (observed: ObservedRun, seen = withWorkers(3)) => decide(observed, seen).map(({ kind }) => kind);
const checkpoint = { kind: 'write-control', fields: { action: '3:pause' } };

describe('another number of workers that hold the shards', () => {
  it('a run that trains is asked for a checkpoint as soon as so many are free for it, and says so', () => {
    const now = decide(run(asked), withWorkers(3));
    expect(now).toContainEqual(checkpoint);
    expect(now).toContainEqual({
      kind: 'explain',
      reason: 'finishes its round and writes a checkpoint; goes on with 2 workers',
      isWaiting: true,
    });
    // The field is one for the coordinators of runs with servers.
    expect(now).not.toContainEqual(expect.objectContaining({ fields: { workers: '3:2' } }));
    const more = run({ ...held, workersWanted: 4 });
    // Another run holds one of the four that are connected.
    for (const seen of [withWorkers(3), { ...withWorkers(4), shardWorkersFor: new Map([[RUN_ID, 3]]) }]) {
      expect(decide(more, seen)).not.toContainEqual(checkpoint);
      expect(decide(more, seen)).toContainEqual({
        kind: 'explain',
        reason: 'training goes on, and takes 4 workers when so many are free for it: 3 are',
        isWaiting: true,
      });
    }
    expect(decide(more, withWorkers(4))).toContainEqual(checkpoint);
    // What the coordinator waits for is said first.
    const waits = { ...run().coordinator!, waitingFor: 'worker 1' };
    expect(decide(run({ ...held, workersWanted: 4, coordinator: waits }), withWorkers(3))).toContainEqual(
      expect.objectContaining({ kind: 'explain', reason: 'waits for worker 1' }),
    );
  });

  it('a run that computes its result, pauses, or has as many as that is left alone', () => {
    const evaluating = { ...run().coordinator!, phase: 'evaluating' } as const;
    expect(decide(run({ ...asked, coordinator: evaluating }), withWorkers(3))).not.toContainEqual(checkpoint);
    for (const observed of [run({ ...asked, status: 'PAUSING', pauseRequestedAtMs: NOW }), run({ ...held, workersWanted: 3 })])
      expect(kinds(observed)).not.toContain('end-attempt');
    expect(kinds(run({ workersWanted: 1, status: 'PROVISIONING' }))).not.toContain('end-attempt');
  });

  it('an attempt that waits for workers ends at once, unless it would wait for more of them', () => {
    expect(decide(run({ ...beforeStart, ...asked }), withWorkers(1))).toEqual([end('goes on with 2 workers')]);
    expect(kinds(run({ ...beforeStart, ...held, workersWanted: 4 }), withWorkers(3))).not.toContain('end-attempt');
    expect(decide(run({ ...beforeStart, ...held, workersWanted: 4 }), withWorkers(4))).toEqual([end('goes on with 4 workers')]);
  });

  it('a run that has lost its attempt begins with the other number, unless it would wait for more workers', () => {
    const lost = { ...held, status: 'RECOVERING', nextAttemptAtMs: NOW, control: { action: '3:cancel' } } as const;
    const begin = { kind: 'begin-attempt', reason: 'attempt 4 begins' };
    expect(decide(run({ ...lost, workersWanted: 2 }), withWorkers(1))).toEqual([begin]);
    expect(decide(run({ ...lost, workersWanted: 4 }), withWorkers(4))).toEqual([begin]);
    expect(decide(run({ ...lost, workersWanted: 4 }), withWorkers(3))).toEqual([{ ...begin, keepsWorkers: true }]);
  });
});

it('workers that another run holds are not free', () => {
  const claimedBy = (runId: string, workers: readonly string[], more: Partial<ObservedRun> = {}) =>
    run({
      ...held,
      runId,
      servers: workers.map((serverId, index) => ({
        ...server,
        index,
        claim: { ...server.claim, address: { ...server.claim.address, serverId } },
      })),
      ...more,
    });
  const runs = [
    claimedBy('a', ['w0', 'w1', 'w1']), // w1 has a standby too
    claimedBy('b', ['w2', 'w3', 'w4']),
    claimedBy('c', []),
    claimedBy('d', ['w5'], { status: 'RECOVERING' }),
    claimedBy('on servers', ['s0'], { shardHosts: 'servers' }),
  ];
  expect([...shardWorkersFor(runs, 7)]).toEqual([
    ['a', 4],
    ['b', 5],
    ['c', 2],
    ['d', 2],
  ]);
});

describe('a run with minWorkers', () => {
  const waits = (waitedMs: number, more: Partial<ObservedRun> = {}): ObservedRun =>
    run({
      ...beforeStart,
      ...held,
      minWorkers: 2,
      servers: [0, 1, 2].map((index) => ({ ...server, index, claim: null, madeAtMs: NOW - waitedMs })),
      ...more,
    });

  it('goes on with fewer when the others have not been there for a while', () => {
    const change = { kind: 'change-workers', workers: 2, why: 'only 2 are connected (minWorkers 2)' };
    expect(decide(waits(FEWER_AFTER_MS), withWorkers(2))).toContainEqual(change);
    // One that died just before its placement came is waited for by the others, which hold theirs.
    const [, ...open] = waits(FEWER_AFTER_MS).servers;
    expect(decide(waits(FEWER_AFTER_MS, { servers: [server, ...open] }), withWorkers(2))).toContainEqual(change);
    for (const [observed, seen] of [
      [waits(FEWER_AFTER_MS - 1), withWorkers(2)],
      [waits(FEWER_AFTER_MS), withWorkers(1)],
      [waits(FEWER_AFTER_MS), withWorkers(3)],
      // It was there a moment ago.
      [waits(FEWER_AFTER_MS), withWorkers(2, 3)],
      // Nobody was heard for long enough to know who is there.
      [waits(FEWER_AFTER_MS), { ...withWorkers(2), reliableForMs: FEWER_AFTER_MS - 1 }],
      [waits(FEWER_AFTER_MS, { minWorkers: undefined }), withWorkers(2)],
    ] as const)
      expect(kinds(observed, seen)).not.toContain('change-workers');
    // A person has asked for another number meanwhile.
    expect(kinds(waits(FEWER_AFTER_MS, { workersWanted: 1 }), withWorkers(2))).toEqual(['end-attempt']);
  });
});

describe('a run with maxWorkers', () => {
  const { coordinator } = run();
  const seats = [0, 1, 2].map((seat) => ({ seat, incarnation: 0, workerId: `w${seat}`, replicas: [seat] }));
  const training = { ...coordinator!, seats };
  const trains = (more: Partial<ObservedRun> = {}): ObservedRun =>
    run({
      ...held,
      minWorkers: 2,
      maxWorkers: 4,
      attempt: 1,
      fromRound: 0,
      coordinator: training,
      control: { start: START },
      attemptStartedAtMs: NOW - MORE_AFTER_MS,
      ...more,
    });
  const spare = (workers: number, more: Partial<ObservedFleet> = {}): ObservedFleet => ({
    ...withWorkers(9),
    spareWorkersFor: new Map([[RUN_ID, workers]]),
    ...more,
  });
  const now = { idle: 1, connected: 9, now: NOW };
  /** Those that have not come to the point. */
  const notYet: ObservedRun[] = [
    trains({ maxWorkers: undefined }),
    trains({ maxWorkers: 3 }),
    trains({ shardHosts: 'servers' }),
    trains({ status: 'PAUSING', pauseRequestedAtMs: NOW }),
    trains({ attemptStartedAtMs: NOW - MORE_AFTER_MS + 1 }),
    trains({ attempt: 3, attemptStartedAtMs: NOW - 3 * MORE_AFTER_MS + 1 }),
    trains({ coordinator: { ...training, phase: 'evaluating' } }),
    trains({ coordinator: { ...training, waitingFor: 'worker 2' } }),
    trains({ coordinator: { ...training, seats: seats.slice(1) } }), // a standby leads
    trains({ fromRound: 36 }), // its rounds are long
    trains({ coordinator: { ...training, totalRounds: 99 } }), // it is over in less than a minute
    trains({ coordinator: null }),
  ];

  it('takes workers that nobody needs, up to so many, once it has trained for a minute, and in attempt 3 for three', () => {
    const change = { kind: 'change-workers', workers: 4, why: '1 more has nothing to do (maxWorkers 4)' };
    for (const workers of [4, 7]) expect(decide(trains(), spare(workers))).toContainEqual(change);
    const other = { kind: 'change-workers', workers: 5, why: '2 more have nothing to do (maxWorkers 6)' };
    expect(decide(trains({ maxWorkers: 6 }), spare(5))).toContainEqual(other);
    expect(decide(trains({ maxWorkers: 6 }), spare(9, { seatRoom: new Map([[RUN_ID, 5]]) }))).toContainEqual(other); // the limit of its team
    const third = trains({ attempt: 3, control: {}, attemptStartedAtMs: NOW - 3 * MORE_AFTER_MS });
    expect(decide(third, spare(4))).toContainEqual(change);
  });

  it('stays as it is while nobody is spare, or it has not come to the point', () => {
    for (const observed of notYet) {
      expect(kinds(observed, spare(4))).not.toContain('change-workers');
      expect([...spareWorkersFor([observed], now)]).toEqual([]);
    }
    for (const seen of [
      spare(3),
      withWorkers(9),
      spare(4, { reliableForMs: FEWER_AFTER_MS - 1 }),
      spare(4, { seatRoom: new Map([[RUN_ID, 3]]) }),
    ])
      expect(kinds(trains(), seen)).not.toContain('change-workers');
  });

  it('shares no worker with another: one run at a time takes more, and none while another waits', () => {
    const [a, b] = ['a', 'b'].map((runId) => trains({ runId })) as [ObservedRun, ObservedRun];
    expect([...spareWorkersFor([...notYet, a, b], now)]).toEqual([['a', 4]]);
    const wants = trains({ runId: 'b', workersWanted: 4 });
    expect([...spareWorkersFor([a, wants], now)]).toEqual([['b', 4]]);
    expect([...spareWorkersFor([trains({ runId: 'a', workersWanted: 4 }), wants], now)]).toEqual([]);
    for (const status of ['QUEUED', 'PROVISIONING', 'RECOVERING'] as const)
      for (const shardHosts of ['workers', 'servers'] as const)
        expect([...spareWorkersFor([a, run({ status, shardHosts })], now)]).toEqual([]);
  });

  it('is not kept from it by one that cannot grow, or waits for what it cannot get', () => {
    const b = trains({ runId: 'b' });
    const full = trains({ runId: 'full' });
    expect([...spareWorkersFor([full, b], { ...now, seatRoom: new Map([['full', 3]]) })]).toEqual([['b', 4]]);
    const tooMany = run({ ...held, runId: 'x', status: 'QUEUED', serversNeeded: 10 });
    const asksTooMany = run({ ...held, runId: 'y', workersWanted: 10 });
    expect([...spareWorkersFor([tooMany, asksTooMany, b], now)]).toEqual([['b', 4]]);
    const limited = run({ ...held, runId: 'z', status: 'QUEUED' });
    const wait = { ahead: 0, places: 9, held: 0, heldByOwnTeam: 3, most: 4 };
    expect([...spareWorkersFor([limited, b], { ...now, waiting: new Map([['z', { ...wait, why: 'limit' }]]) })]).toEqual([['b', 4]]);
    expect([...spareWorkersFor([limited, b], { ...now, waiting: new Map([['z', { ...wait, why: 'places' }]]) })]).toEqual([]);
  });

  it('asks for the checkpoint while the workers are there, and calls it off when they are not', () => {
    const wants = trains({ workersWanted: 4 });
    expect(decide(wants, spare(4))).toContainEqual({ kind: 'write-control', fields: { action: '1:pause' } });
    const off = { kind: 'change-workers', workers: 3, why: 'the others are not there any more, or needed' };
    for (const seen of [spare(3), withWorkers(9)]) {
      expect(decide(wants, seen)).toContainEqual(off);
      expect(decide(wants, seen)).not.toContainEqual({ kind: 'write-control', fields: { action: '1:pause' } });
    }
    // The coordinator has been asked: the attempt ends.
    expect(kinds(trains({ workersWanted: 4, control: { action: '1:pause', start: START } }), spare(3))).not.toContain('change-workers');
  });

  it('gives back what others hold when it begins anew', () => {
    const waits = run({
      ...beforeStart,
      ...held,
      minWorkers: 2,
      maxWorkers: 4,
      servers: [0, 1, 2].map((index) => ({ ...server, index, claim: null, madeAtMs: NOW - FEWER_AFTER_MS })),
    });
    const seen = { ...withWorkers(3), shardWorkersFor: new Map([[RUN_ID, 2]]) };
    expect(decide(waits, seen)).toContainEqual({ kind: 'change-workers', workers: 2, why: 'only 2 are free for it (minWorkers 2)' });
    expect(kinds({ ...waits, maxWorkers: undefined }, seen)).not.toContain('change-workers');
    // It wanted more when its attempt was lost.
    expect(decide({ ...waits, workersWanted: 4 }, seen)).toContainEqual(expect.objectContaining({ kind: 'change-workers', workers: 2 }));
    // One of three was there a moment ago.
    expect(kinds(waits, { ...withWorkers(2, 3), shardWorkersFor: new Map([[RUN_ID, 2]]) })).not.toContain('change-workers');
    const wait = { ahead: 0, places: 9, held: 0, heldByOwnTeam: 2, why: 'limit', most: 4 } as const;
    expect(decide(waits, { ...withWorkers(9), waiting: new Map([[RUN_ID, wait]]) })).toContainEqual(
      expect.objectContaining({ kind: 'change-workers', workers: 2 }),
    );
  });
});
