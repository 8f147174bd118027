import { expect, test } from 'vitest';
import type { FleetPicture, RunPicture } from '../lifecycle/picture.js';
import { DispatchLockLostError } from './dispatch-lock.js';
import { Reconciler } from './reconciler.js';

const NOBODY: FleetPicture = {
  servers: new Map(),
  canJudge: false,
  hearingForMs: 0,
  counts: { liveServers: 0, liveWorkers: 0, idleWorkers: 0, incompatible: [] },
};

/** It has ended, and whoever still holds a part of it is to be told: one action. */
const ended = (runId: string): RunPicture => ({
  ...{
    runId,
    status: 'FAILED',
    statusReason: null,
    attempt: 1,
    cancelRequestedAtMs: null,
    pauseRequestedAtMs: null,
    nextAttemptAtMs: null,
  },
  ...{ serversNeeded: 1, standby: 0, replicas: 1, workersWanted: null, fromRound: 0, attemptStartedAtMs: null, storedN: 0 },
  ...{ seatFailures: 0, lastSeatFailureAtMs: null, lastSeatFailure: null, servers: [], openTasks: [], heldTasks: [] },
  ...{ coordinator: null, control: {} },
});

function reconciler(failing?: string) {
  const done: string[] = [];
  const removed: string[] = [];
  const made = new Reconciler({
    now: () => 0,
    readRuns: () => Promise.resolve([ended('a'), ended('b'), ended('c')]),
    fleet: () => Promise.resolve(NOBODY),
    jobs: () => Promise.resolve(new Map()),
    carryOut: ({ runId }, { kind }) => {
      if (runId === failing) throw new Error('a fault of this run');
      done.push(`${runId} ${kind}`);
      return Promise.resolve();
    },
    waitingIds: () => Promise.resolve(['forged']),
    isWanted: () => Promise.resolve(false),
    remove: (_, jobId) => Promise.resolve(void removed.push(jobId)),
    isOutage: () => false,
  });
  return { made, done, removed };
}

test('an api that has lost the lock in the middle of a tick does nothing more, of no run', async () => {
  const { made, done, removed } = reconciler();
  // Two jobs that nobody wants, then the runs in their order.
  let asked = 0;
  const confirm = (): Promise<void> => (++asked > 3 ? Promise.reject(new DispatchLockLostError()) : Promise.resolve());
  await expect(made.tick(confirm)).rejects.toThrow(DispatchLockLostError);
  expect([done, removed]).toEqual([['a write-control'], ['forged', 'forged']]);
});

test('a run that cannot be looked at does not keep the others from it', async () => {
  const { made, done } = reconciler('b');
  const failed = await made.tick(() => Promise.resolve());
  expect(failed).toMatchObject([{ runId: 'b', error: { message: 'a fault of this run' } }]);
  expect(done).toEqual(['a write-control', 'c write-control']);
});
