import { describe, expect, it } from 'vitest';
import {
  afterEnd,
  ATTEMPT_END_ROWS,
  causeOfComplaint,
  causeOfFailure,
  type AttemptEnd,
  type AttemptEndRow,
  type EndingRun,
} from './attempt-end.js';
import { mayMove, RUN_STATUSES, type RunStatus } from './run-status.js';

const RUN: EndingRun = {
  status: 'RUNNING',
  isCancelWanted: false,
  restarts: 2,
  count: { used: 0, total: 0, bestRound: 0 },
  committedRounds: 10,
};
const picked: AttemptEnd = { kind: 'failed', cause: 'STRATEGY_PICKED', message: 'strategy auto has picked another' };
const deserted: AttemptEnd = { kind: 'failed', cause: 'WORKERS_LEFT', message: 'the last worker leaves' };
const noMemory: AttemptEnd = { kind: 'failed', cause: 'NO_MEMORY', message: 'an older run waits for its memory' };
const storeAway: AttemptEnd = { kind: 'failed', cause: causeOfComplaint('STORE_UNAVAILABLE'), message: 'the store is away' };
const lost: AttemptEnd = { kind: 'failed', cause: 'SERVER_LOST', message: 'server 1 is gone' };
const poison: AttemptEnd = { kind: 'failed', cause: 'POISON_ROUND', message: 'poison' };
const torn: AttemptEnd = { kind: 'failed', cause: 'CHECKPOINT_INVALID', message: 'torn' };
const scaled: AttemptEnd = { kind: 'failed', cause: 'OTHER_WORKERS', message: 'goes on with 3 workers' };
const done: AttemptEnd = { kind: 'finished', message: 'done' };
const paused: AttemptEnd = { kind: 'paused', message: 'paused in round 10' };
const cancelled: AttemptEnd = { kind: 'cancelled', message: 'cancelled' };
const spent = { used: 2, total: 2, bestRound: 10 };

describe('after the end of an attempt', () => {
  it.each<[Partial<EndingRun>, AttemptEnd, AttemptEndRow, RunStatus | undefined]>([
    [{}, done, 'finished', 'SUCCEEDED'],
    [{ isCancelWanted: true }, done, 'finished', 'SUCCEEDED'],
    [{ status: 'PAUSING' }, done, 'finished', 'SUCCEEDED'],
    [{ isCancelWanted: true }, cancelled, 'cancelled', 'CANCELLED'],
    [{ isCancelWanted: true }, lost, 'cancelled', 'CANCELLED'],
    [{ isCancelWanted: true }, poison, 'cancelled', 'CANCELLED'],
    [{ status: 'PAUSING' }, paused, 'paused', 'PAUSED'],
    [{}, paused, 'paused', 'PAUSED'],
    [{ status: 'PAUSING' }, lost, 'pausedWithout', 'PAUSED'],
    [{ status: 'PAUSING', restarts: 0 }, lost, 'pausedWithout', 'PAUSED'],
    [{ status: 'PAUSING' }, poison, 'fatal', 'FAILED'],
    [{}, poison, 'fatal', 'FAILED'],
    [{}, lost, 'restart', 'RECOVERING'],
    [{ status: 'QUEUED' }, lost, 'restart', 'RECOVERING'],
    [{ status: 'PROVISIONING' }, lost, 'restart', 'RECOVERING'],
    [{}, cancelled, 'restart', 'RECOVERING'],
    [{}, { ...lost, isShared: true }, 'sharedLoss', 'RECOVERING'],
    [{ count: spent }, { ...lost, isShared: true }, 'sharedLoss', 'RECOVERING'],
    [{ count: { used: 0, total: 20, bestRound: 0 } }, { ...lost, isShared: true }, 'budgetSpent', 'FAILED'],
    [{ restarts: 0 }, { ...lost, isShared: true }, 'sharedLoss', 'RECOVERING'],
    [{ restarts: 0, count: { used: 0, total: 10, bestRound: 0 } }, { ...lost, isShared: true }, 'budgetSpent', 'FAILED'],
    [{ restarts: 0 }, lost, 'budgetSpent', 'FAILED'],
    [{ count: spent }, lost, 'budgetSpent', 'FAILED'],
    [{ count: spent, committedRounds: 11 }, lost, 'restart', 'RECOVERING'],
    [{ count: spent }, torn, 'otherCheckpoint', 'RECOVERING'],
    [{ restarts: 0 }, torn, 'otherCheckpoint', 'RECOVERING'],
    [{ restarts: 0 }, picked, 'otherStrategy', 'RECOVERING'],
    [{ restarts: 0, otherWorkers: 3 }, paused, 'otherWorkers', 'RECOVERING'],
    [{ restarts: 0, status: 'QUEUED' }, scaled, 'otherWorkers', 'RECOVERING'],
    [{ restarts: 0, status: 'PROVISIONING' }, scaled, 'otherWorkers', 'RECOVERING'],
    [{ isCancelWanted: true, otherWorkers: 3 }, paused, 'cancelled', 'CANCELLED'],
    [{ otherWorkers: 3 }, lost, 'restart', 'RECOVERING'],
    [{ restarts: 0 }, deserted, 'workersLeft', 'RECOVERING'],
    // Without a round more than before it would go round for ever.
    [{ count: { used: 0, total: 0, bestRound: 10 } }, deserted, 'restart', 'RECOVERING'],
    [{ count: spent }, deserted, 'budgetSpent', 'FAILED'],
    [{ restarts: 0 }, noMemory, 'noMemory', 'RECOVERING'],
    [{ count: { used: 2, total: 20, bestRound: 10 } }, noMemory, 'noMemory', 'RECOVERING'],
    [{ isCancelWanted: true }, noMemory, 'cancelled', 'CANCELLED'],
    [{ isCancelWanted: true }, picked, 'cancelled', 'CANCELLED'],
    [{ status: 'RECOVERING' }, lost, 'late', undefined],
    [{ status: 'PAUSED' }, cancelled, 'late', undefined],
    [{ status: 'SUCCEEDED' }, lost, 'late', undefined],
    [{ status: 'FAILED' }, done, 'late', undefined],
  ])('%j, %j: %s', (changes, end, row, to) => {
    const after = afterEnd({ ...RUN, ...changes }, end, () => 0);
    expect([after.row, after.to]).toEqual([row, to]);
    expect(after.restartAfterMs !== null).toBe(to === 'RECOVERING');
  });

  it('every move is one that the status table allows, and every row is taken', () => {
    const taken = new Set<AttemptEndRow>();
    for (const status of RUN_STATUSES)
      for (const isCancelWanted of [false, true])
        for (const restarts of [0, 2])
          for (const end of [
            lost,
            { ...lost, isShared: true },
            poison,
            torn,
            picked,
            deserted,
            noMemory,
            storeAway,
            scaled,
            done,
            paused,
            cancelled,
          ]) {
            const after = afterEnd({ ...RUN, status, isCancelWanted, restarts }, end, () => 0.5);
            taken.add(after.row);
            if (after.to === undefined) continue;
            // What is paused or finished without having run moves through the statuses between.
            const isBetween = (after.to === 'PAUSED' && status === 'RUNNING') || after.to === 'SUCCEEDED';
            expect(isBetween || mayMove(status, after.to), `${status} → ${after.to}`).toBe(true);
          }
    expect([...taken].sort()).toEqual(Object.keys(ATTEMPT_END_ROWS).sort());
  });

  it('no restart is charged to a run whose checkpoint store does not answer, and it does not go round for ever', () => {
    const after = afterEnd({ ...RUN, restarts: 0 }, storeAway, () => 0.5);
    expect(after).toMatchObject({ row: 'storeAway', to: 'RECOVERING', restartAfterMs: 22_500, count: { used: 0, total: 1 } });
    expect(after.reason).toContain('the checkpoint store does not answer');
    expect(afterEnd({ ...RUN, count: { used: 0, total: 20, bestRound: 0 } }, storeAway, () => 0.5).row).toBe('budgetSpent');
  });

  it('no restart is charged to a run that lets its servers go', () => {
    expect(afterEnd({ ...RUN, count: spent }, noMemory, () => 0).count).toEqual(spent);
  });

  it('says what is left and what was spent', () => {
    expect(afterEnd(RUN, lost, () => 0).reason).toBe('server 1 is gone; 1 of 2 restarts are left');
    expect(afterEnd({ ...RUN, count: spent }, lost, () => 0).reason).toMatch(/\(restarts: 2\) is used up: restarted 2 times/);
    expect(afterEnd({ ...RUN, restarts: 0 }, lost, () => 0).reason).toMatch(/no restarts \(restarts: 0\)/);
  });
});

it('codes and causes of strangers are INTERNAL, which another attempt may get past', () => {
  expect(causeOfComplaint('COORDINATOR_LOST')).toBe('SERVER_LOST');
  expect(causeOfComplaint('RangeError')).toBe('INTERNAL');
  expect(causeOfComplaint('toString')).toBe('INTERNAL');
  expect(causeOfFailure('POISON_ROUND')).toBe('POISON_ROUND');
  expect([undefined, 7, 'constructor'].map(causeOfFailure)).toEqual(['INTERNAL', 'INTERNAL', 'INTERNAL']);
});
