import { expect, test } from 'vitest';
import type { ObservedFleet, ObservedRun } from '../lifecycle/observed-run.js';
import { DispatchLockLostError } from './dispatch-lock.js';
import { Reconciler } from './reconciler.js';

const NOBODY: ObservedFleet = {
  servers: new Map(),
  isReliable: false,
  reliableForMs: 0,
  counts: { liveServers: 0, liveWorkers: 0, idleWorkers: 0, incompatible: [] },
};

/** It has ended, and whoever still holds a part of it is to be told: one action. */
const ended = (runId: string): ObservedRun => ({
  runId,
  status: 'FAILED',
  statusReason: null,
  isWaiting: false,
  attempt: 1,
  cancelRequestedAtMs: null,
  pauseRequestedAtMs: null,
  nextAttemptAtMs: null,
  serversNeeded: 1,
  standby: 0,
  replicas: 1,
  workersWanted: null,
  fromRound: 0,
  attemptStartedAtMs: null,
  storedSequence: 0,
  coordinatorTerm: 1,
  seatFailures: 0,
  lastSeatFailureAtMs: null,
  lastSeatFailure: null,
  servers: [],
  openTasks: [],
  heldTasks: [],
  coordinator: null,
  control: {},
});

/** @param outage at what it does next */
function reconciler(failing?: string, outage?: { isNow: boolean }) {
  const done: string[] = [];
  const ids = ['a', 'b', 'c', 'd'];
  const removed: string[] = [];
  const made = new Reconciler({
    now: () => 0,
    // Three in a page.
    readRuns: (afterId) => {
      const rest = ids.filter((id) => afterId === undefined || id > afterId);
      return Promise.resolve({ runs: rest.slice(0, 3).map(ended), nextAfterId: rest.length >= 3 ? rest[2] : undefined });
    },
    fleet: () => Promise.resolve(NOBODY),
    jobs: () => Promise.resolve(new Map()),
    carryOut: ({ runId }, { kind }) => {
      if (outage?.isNow) throw new Error('Redis is away');
      if (runId === failing) throw new Error('a fault of this run');
      done.push(`${runId} ${kind}`);
      return Promise.resolve();
    },
    waitingIds: () => Promise.resolve(['forged']),
    isWanted: () => Promise.resolve(false),
    remove: (_, jobId) => Promise.resolve(void removed.push(jobId)),
    isOutage: (error) => (error as Error).message === 'Redis is away',
  });
  return { made, done, removed };
}

test('an api that has lost the lock in the middle of a tick does nothing more, of no run', async () => {
  const { made, done, removed } = reconciler();
  await expect(made.tick(confirming(12))).rejects.toThrow(DispatchLockLostError);
  expect([done, removed]).toEqual([['a write-control'], ['forged', 'forged', 'forged']]);
});

/** The fleet, the run; three queues with a job that nobody wants, three times each; an action: so many, and then the lock is lost. */
function confirming(times: number): () => Promise<void> {
  let asked = 0;
  return () => (++asked > times ? Promise.reject(new DispatchLockLostError()) : Promise.resolve());
}
const confirmed = (): Promise<void> => Promise.resolve();

test('wherever a tick breaks off with the lock, the next one begins with what it has not done; pages take turns', async () => {
  for (let times = 0; times < 12; times++) {
    const { made, done } = reconciler();
    await made.tick(confirming(times)).catch(() => undefined);
    const first = done.splice(0);
    await made.tick(confirmed);
    await made.tick(confirmed);
    const all = ['a', 'b', 'c', 'd'].map((id) => `${id} write-control`);
    expect([...first, ...done].slice(0, 4), `after ${times}`).toEqual(all);
  }
});

test('a run that meets an outage each time is left for the others, and comes again', async () => {
  const outage = { isNow: true };
  const { made, done } = reconciler(undefined, outage);
  await expect(made.tick(confirmed)).rejects.toThrow('Redis is away');
  outage.isNow = false;
  for (let tick = 0; tick < 3; tick++) await made.tick(confirmed); // behind a full page at the end there is an empty one
  expect(done).toEqual(['b', 'c', 'd', 'a', 'b', 'c'].map((id) => `${id} write-control`));
});

test('a run that cannot be looked at does not keep the others from it', async () => {
  const { made, done } = reconciler('b');
  const failed = await made.tick(() => Promise.resolve());
  expect(failed).toMatchObject([{ runId: 'b', error: { message: 'a fault of this run' } }]);
  expect(done).toEqual(['a write-control', 'c write-control']);
});
