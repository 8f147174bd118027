import { describe, expect, it } from 'vitest';
import type { ObservedFleet, ObservedRun } from './observed-run.js';
import { beforeStart, decide, fleet, NOW, run, RUN_ID, server } from './reconcile.fixture.js';
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

it('workers are spare that have no work and that no other run waits for', () => {
  const runs = [
    run({ ...held, runId: 'a' }),
    run({ ...held, runId: 'b', serversNeeded: 4, standby: 1 }),
    run({ ...held, runId: 'paused', status: 'PAUSED' }),
    run({ runId: 'on servers' }),
  ];
  expect([...spareWorkersFor(runs, 2)]).toEqual([
    ['a', 5],
    ['b', 4],
    ['paused', 5],
  ]);
  for (const [waiting, a] of [
    [{ status: 'QUEUED', serversNeeded: 1 }, 4],
    [{ status: 'RECOVERING', serversNeeded: 2 }, 3],
    [{ status: 'PROVISIONING', serversNeeded: 3 }, 3],
    [{ serversNeeded: 1, workersWanted: 2 }, 3],
  ] as const)
    expect(spareWorkersFor([...runs, run({ ...held, runId: 'waits', ...waiting })], 2).get('a')).toBe(a);
});

describe('a run with maxWorkers', () => {
  const trains = (more: Partial<ObservedRun> = {}): ObservedRun =>
    run({ ...held, minWorkers: 2, maxWorkers: 4, attemptStartedAtMs: NOW - MORE_AFTER_MS, fromRound: 0, ...more });
  const spare = (workers: number, more: Partial<ObservedFleet> = {}): ObservedFleet => ({
    ...withWorkers(9),
    spareWorkersFor: new Map([[RUN_ID, workers]]),
    ...more,
  });

  it('takes workers that are spare, up to so many, once it has trained for a minute', () => {
    const change = { kind: 'change-workers', workers: 4, why: '1 more is free for it (maxWorkers 4)' };
    for (const workers of [4, 7]) expect(decide(trains(), spare(workers))).toContainEqual(change);
    const other = { kind: 'change-workers', workers: 5, why: '2 more are free for it (maxWorkers 6)' };
    expect(decide(trains({ maxWorkers: 6 }), spare(5))).toContainEqual(other);
  });

  it('stays as it is while nobody is spare, it is asked for something, or has not trained for long or in short rounds', () => {
    const { coordinator } = run();
    for (const [observed, seen] of [
      [trains(), spare(3)],
      [trains(), withWorkers(9)],
      [trains({ maxWorkers: undefined }), spare(4)],
      [trains({ maxWorkers: 3 }), spare(4)],
      [trains({ workersWanted: 3 }), spare(4)],
      [trains({ status: 'PAUSING', pauseRequestedAtMs: NOW }), spare(4)],
      [trains({ attemptStartedAtMs: NOW - MORE_AFTER_MS + 1 }), spare(4)],
      [trains({ coordinator: { ...coordinator!, phase: 'evaluating' } }), spare(4)],
      // A round lasts so long that its checkpoint is not waited for.
      [trains({ fromRound: 36 }), spare(4)],
      [trains(), spare(4, { reliableForMs: FEWER_AFTER_MS - 1 })],
    ] as const)
      expect(kinds(observed, seen)).not.toContain('change-workers');
  });
});
