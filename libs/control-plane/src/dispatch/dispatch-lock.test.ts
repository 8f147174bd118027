import { expect, test } from 'vitest';
import { claimsField } from '../lifecycle/control-fields.js';
import type { ObservedFleet, ObservedRun } from '../lifecycle/observed-run.js';
import { DispatchLock, DispatchLockLostError, HOLDER_STALE_AFTER_MS, wakefulClock } from './dispatch-lock.js';
import { JobStates } from './job-states.js';
import { sendOutbox } from './outbox.js';
import { Reconciler } from './reconciler.js';

/** PostgreSQL, as far as the lock goes: one holder, and when it was heard. */
class Store {
  nowMs = 0;
  isAway = false;
  holder: string | undefined;
  private heardAtMs = 0;
  beats = 0;
  readonly told: string[] = [];

  lock(name: string): DispatchLock {
    const reach = (): void => {
      if (this.isAway) throw new Error('PostgreSQL is away');
    };
    return new DispatchLock({
      now: () => this.nowMs,
      take: async (staleMs) => {
        reach();
        if (this.holder !== undefined && this.nowMs - this.heardAtMs <= staleMs) return Promise.resolve('another holds it');
        if (this.holder !== undefined) {
          this.holder = undefined;
          return Promise.resolve('ended its holder');
        }
        this.holder = name;
        this.heardAtMs = this.nowMs;
        return Promise.resolve('held');
      },
      beat: async () => {
        reach();
        this.beats++;
        if (this.holder === name) this.heardAtMs = this.nowMs;
        return Promise.resolve(this.holder === name);
      },
      letGo: async () => {
        if (this.holder === name) this.holder = undefined;
        return Promise.resolve();
      },
      told: (what) => void this.told.push(`${name} ${what}`),
    });
  }
}

test('one of two holds it; a holder that is heard keeps it however long, and lets it go in order', async () => {
  const store = new Store();
  const [a, b] = [store.lock('a'), store.lock('b')];
  for (let i = 0; i < 100; i++, store.nowMs += 300) expect([await a.hold(), await b.hold()]).toEqual([true, false]);
  await a.letGo();
  expect([await b.hold(), await a.hold()]).toEqual([true, false]);
  expect(store.told).toEqual([]);
});

test('ticks ask PostgreSQL once a second, and not each of them', async () => {
  const store = new Store();
  const a = store.lock('a');
  for (let i = 0; i < 100; i++, store.nowMs += 300) expect(await a.hold()).toBe(true);
  expect(store.beats).toBeLessThanOrEqual(30);
  expect(store.beats).toBeGreaterThan(20);
});

test('a holder that stands still is replaced after its time, and finds that out before it acts', async () => {
  const store = new Store();
  const [a, b] = [store.lock('a'), store.lock('b')];
  expect(await a.hold()).toBe(true);
  store.nowMs += HOLDER_STALE_AFTER_MS;
  expect(await b.hold()).toBe(false);
  store.nowMs += 1;
  expect(await b.hold()).toBe(true);
  expect(store.told).toEqual(['b took over']);
  await expect(a.confirm()).rejects.toThrow(DispatchLockLostError);
  await expect(a.confirm()).rejects.toThrow(DispatchLockLostError);
  await b.confirm();
  expect(await a.hold()).toBe(false);
  expect(store.told).toEqual(['b took over', 'a lost']);
});

test('a holder that takes long for a tick asks now and then, and keeps it', async () => {
  const store = new Store();
  const [a, b] = [store.lock('a'), store.lock('b')];
  await a.hold();
  for (let ms = 0; ms < 60_000; ms += 500, store.nowMs += 500) {
    await a.confirm();
    expect(await b.hold()).toBe(false);
  }
  expect(store.beats).toBeGreaterThan(30);
  expect(store.beats).toBeLessThan(70);
});

test('it does not act on what it cannot confirm: while PostgreSQL is away, and after its connection has ended', async () => {
  const store = new Store();
  const a = store.lock('a');
  await expect(a.confirm()).rejects.toThrow(DispatchLockLostError);
  await a.keep(); // which says nothing to who does not hold it
  await a.hold();
  store.isAway = true;
  await a.confirm(); // it was heard a moment ago
  store.nowMs += HOLDER_STALE_AFTER_MS / 2;
  await expect(a.confirm()).rejects.toThrow('PostgreSQL is away');
  store.isAway = false;
  await expect(a.confirm()).rejects.toThrow(DispatchLockLostError);
  expect(await a.hold()).toBe(true);
});

test('a connection that ends takes the lock with it at once, and is told once', async () => {
  const store = new Store();
  const [a, b] = [store.lock('a'), store.lock('b')];
  await a.hold();
  store.holder = undefined; // PostgreSQL was restarted, or ended the session
  a.gone();
  a.gone();
  expect(await b.hold()).toBe(true);
  await expect(a.confirm()).rejects.toThrow(DispatchLockLostError);
  expect(await a.hold()).toBe(false);
  expect(store.told).toEqual(['a lost']);
});

test('time goes by whichever clock counts more: a suspended machine, a wall clock that is set back', () => {
  let [monotonic, wall] = [5, 1_000_000];
  const now = wakefulClock(
    () => monotonic,
    () => wall,
  );
  const pass = (monotonicMs: number, wallMs: number): number => {
    [monotonic, wall] = [monotonic + monotonicMs, wall + wallMs];
    return now();
  };
  expect([pass(100, 100), pass(0, 60_000), pass(100, -3_600_000), pass(100, 100)]).toEqual([100, 60_100, 60_200, 60_300]);
});

const NOBODY: ObservedFleet = {
  servers: new Map(),
  isReliable: false,
  reliableForMs: 0,
  counts: { liveServers: 0, liveWorkers: 0, idleWorkers: 0, incompatible: [] },
};
const SLOW_MS = 2_000;

/** Waits for its server, whose placement nobody has taken for long, and says so already: there is a job to look at and nothing to do. */
const waiting = (runId: string): ObservedRun => ({
  runId,
  status: 'QUEUED',
  attempt: 1,
  cancelRequestedAtMs: null,
  pauseRequestedAtMs: null,
  nextAttemptAtMs: null,
  statusReason: 'waits for 1 parameter server: none is connected; waits for a worker: none is connected; start one with `paceline up`',
  isWaiting: false,
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
  openTasks: [],
  heldTasks: [],
  coordinator: null,
  control: { claims: claimsField(1, []) },
  servers: [{ index: 0, role: 'primary', incarnation: 0, term: 1, madeAtMs: -1_000_000, claim: null, isDropped: false }],
});

test('a tick that is slow and has nothing to do keeps the lock: every look takes 2 s, more than 30 s in all', async () => {
  const store = new Store();
  const [a, b] = [store.lock('a'), store.lock('b')];
  let [looks, others, tick] = [0, 0, 0];
  const slowly = async <T>(value: T): Promise<T> => {
    store.nowMs += SLOW_MS;
    if (await b.hold()) others++;
    return value;
  };
  const jobs = new JobStates({
    stateOf: () => {
      looks++;
      return slowly('waiting');
    },
    isUnsent: () => slowly(false),
  });
  const reconciler = new Reconciler({
    now: () => store.nowMs,
    readRuns: () => slowly({ runs: ['a', 'b', 'c', 'd', 'e', 'f'].map(waiting), nextAfterId: undefined }),
    fleet: () => slowly(NOBODY),
    jobs: (run, now, confirmLock) => jobs.of(run, now, confirmLock),
    carryOut: ({ runId }, { kind }) => Promise.reject(new Error(`${kind} of ${runId}: nothing was to be done`)),
    // Jobs that wait beat for themselves: only in the second tick.
    waitingIds: () => slowly(tick === 1 ? ['place-00000000-0000-7000-8000-000000000000-a1-i0-m0'] : []),
    isWanted: () => slowly(true),
    remove: () => Promise.resolve(),
    isOutage: () => false,
  });
  const send = (): Promise<number> =>
    sendOutbox({
      keepLock: () => a.keep(),
      unsent: () => slowly(Array.from({ length: 10 }, () => ({ jobId: '', attempt: 1, run: { status: 'QUEUED', attempt: 1 } as const }))),
      prepare: () => slowly(undefined),
      add: () => Promise.resolve(),
      markSent: () => slowly(undefined),
      unfit: () => undefined,
    });
  expect(await a.hold()).toBe(true);
  for (; tick < 3; tick++) {
    const beganMs = store.nowMs;
    await send();
    expect(await a.hold()).toBe(true);
    expect(await reconciler.tick(() => a.confirm())).toEqual([]);
    await send();
    expect(store.nowMs - beganMs).toBeGreaterThan(30_000);
  }
  expect([looks, others, store.told]).toEqual([18, 0, []]);
});
