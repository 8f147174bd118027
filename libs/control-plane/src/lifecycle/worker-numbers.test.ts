import { describe, expect, it } from 'vitest';
import type { ObservedRun } from './observed-run.js';
import { beforeStart, decide, fleet, NOW, run, server } from './reconcile.fixture.js';
import { FEWER_AFTER_MS, MORE_AFTER_MS } from './worker-numbers.js';

const held = { shardHosts: 'workers', serversNeeded: 3, replicas: 4 } as const;
const asked = { ...held, workersWanted: 2 } as const;
const end = (message: string) => ({ kind: 'end-attempt', end: { kind: 'failed', cause: 'OTHER_WORKERS', message } });
const withWorkers = (shardWorkers: number, idleShardWorkers = 0) =>
  fleet({}, { counts: { ...fleet().counts, liveWorkers: 9, shardWorkers, idleShardWorkers } });
const kinds = (observed: ObservedRun, seen = withWorkers(3)) => decide(observed, seen).map(({ kind }) => kind);
const checkpoint = { kind: 'write-control', fields: { action: '3:pause' } };

describe('another number of workers that hold the shards', () => {
  it('a run that trains is asked for a checkpoint as soon as so many are connected, and says so', () => {
    const now = decide(run(asked), withWorkers(3));
    expect(now).toContainEqual(checkpoint);
    expect(now).toContainEqual({
      kind: 'explain',
      reason: 'finishes its round and writes a checkpoint; goes on with 2 workers',
      isWaiting: true,
    });
    // The field is one for the coordinators of runs with servers.
    expect(now).not.toContainEqual(expect.objectContaining({ fields: { workers: '3:2' } }));
    const more = decide(run({ ...held, workersWanted: 4 }), withWorkers(3));
    expect(more).not.toContainEqual(checkpoint);
    expect(more).toContainEqual({
      kind: 'explain',
      reason: 'training goes on, and takes 4 workers when so many are connected: 3 are',
      isWaiting: true,
    });
    expect(decide(run({ ...held, workersWanted: 4 }), withWorkers(4))).toContainEqual(checkpoint);
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
});

describe('a run with bounds', () => {
  const bounded = { ...held, elastic: { minWorkers: 2, maxWorkers: 4 }, workersWanted: null } as const;
  const waits = (waitedMs: number): ObservedRun =>
    run({ ...beforeStart, ...bounded, servers: [0, 1, 2].map((index) => ({ ...server, index, claim: null, madeAtMs: NOW - waitedMs })) });

  it('goes on with fewer when the others have not been there for a while', () => {
    expect(decide(waits(FEWER_AFTER_MS), withWorkers(2))).toContainEqual({
      kind: 'change-workers',
      workers: 2,
      why: 'only 2 are connected (minWorkers 2)',
    });
    expect(kinds(waits(FEWER_AFTER_MS - 1), withWorkers(2))).not.toContain('change-workers');
    for (const there of [1, 3]) expect(kinds(waits(FEWER_AFTER_MS), withWorkers(there))).not.toContain('change-workers');
    // Nobody was heard for long enough to know who is there.
    expect(kinds(waits(FEWER_AFTER_MS), { ...withWorkers(2), reliableForMs: FEWER_AFTER_MS - 1 })).not.toContain('change-workers');
    // One that died just before its placement came is waited for by the others, which hold theirs.
    const claimed = { ...waits(FEWER_AFTER_MS), servers: [server, ...waits(FEWER_AFTER_MS).servers.slice(1)] };
    expect(kinds(claimed, withWorkers(2))).toContain('change-workers');
  });

  it('takes more that are idle, when its attempt is not young and no run waits for them', () => {
    const trains = run({ ...bounded, attemptStartedAtMs: NOW - MORE_AFTER_MS });
    const change = { kind: 'change-workers', workers: 4, why: '2 more are idle (maxWorkers 4)' };
    expect(decide(trains, withWorkers(5, 2))).toContainEqual(change);
    for (const [observed, seen] of [
      [run({ ...bounded, attemptStartedAtMs: NOW - MORE_AFTER_MS + 1 }), withWorkers(5, 2)],
      [trains, withWorkers(5, 0)],
      [trains, { ...withWorkers(5, 2), waiting: new Map([['other', {} as never]]) }],
      [run({ ...bounded, serversNeeded: 4, attemptStartedAtMs: NOW - MORE_AFTER_MS }), withWorkers(5, 2)],
      [run({ ...bounded, workersWanted: 2, attemptStartedAtMs: NOW - MORE_AFTER_MS }), withWorkers(5, 2)],
    ] as const)
      expect(kinds(observed, seen)).not.toContain('change-workers');
  });
});
