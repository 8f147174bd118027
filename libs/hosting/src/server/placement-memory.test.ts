/** Servers that share a queue and have little memory, beside the reconciler of the control plane: who waits for whom. */
import {
  afterEnd,
  memoryWaits,
  placementJobId,
  Reconciler,
  type DispatchAction,
  type HeldJob,
  type HeldPart,
  type JobQueue,
  type MemoryWait,
  type ObservedRun,
  type PlacementJob,
  type Report,
} from '@paceline/control-plane';
import type { Clock } from '@paceline/exchange';
import { LIMITS } from '@paceline/spec';
import type { Checkpoints } from '@paceline/storage';
import { expect, test } from 'vitest';
import { virtualTime } from '../virtual-time.fixture.js';
import { PlacementLoop, type PlacedRun } from './placement-loop.js';

const SERVER_BYTES = 100;
const TRAINS_FOR_MS = 20_000;
const RUNS = ['a', 'b', 'c'].map((letter) => `00000000-0000-7000-8000-00000000000${letter}`);

type Writable<T> = { -readonly [K in keyof T]: T[K] };

interface Row {
  readonly run: Writable<ObservedRun>;
  readonly bytes: number;
  readonly trainsForMs: number;
}

/** As BullMQ's: new ones go behind, what is given back comes first. */
class FirstInFirstOut implements JobQueue<PlacementJob> {
  readonly waiting: { id: string; payload: PlacementJob }[] = [];
  taken = 0;

  add(job: PlacementJob): void {
    this.waiting.push({ id: placementJobId(job.runId, job.attempt, job.index, 0), payload: job });
  }

  take(): Promise<HeldJob<PlacementJob> | undefined> {
    const job = this.waiting.shift();
    if (job) this.taken++;
    const yes = () => Promise.resolve(true);
    const giveBack = () => Promise.resolve(this.waiting.unshift(job!) > 0);
    return Promise.resolve(job && { id: job.id, payload: job.payload, keep: yes, complete: yes, giveBack });
  }

  peek(): Promise<PlacementJob | undefined> {
    return Promise.resolve(this.waiting[0]?.payload);
  }

  close = (): Promise<void> => Promise.resolve();
}

/** Numbers below 2^31. */
function xorshift(seed: number): () => number {
  let state = seed * 2_654_435_769;
  return () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return state >>> 1;
  };
}

class Cluster {
  readonly queue = new FirstInFirstOut();
  readonly rows = new Map<string, Row>();
  /** Runs that are trained, in this order. */
  readonly trained: string[] = [];
  readonly ends: DispatchAction[] = [];
  private readonly clock: Clock;
  readonly run: (forMs: number) => Promise<void>;

  constructor(private readonly serverIds: readonly string[]) {
    ({ clock: this.clock, run: this.run } = virtualTime());
    for (const id of serverIds) this.startServer(id);
    const reconciler = new Reconciler({
      now: () => this.clock.now(),
      readRuns: () => Promise.resolve({ runs: [...this.rows.values()].map(({ run }) => this.observed(run)), nextAfterId: undefined }),
      fleet: () =>
        Promise.resolve({
          servers: new Map(serverIds.map((id) => [id, { silentMs: 0, hasLeft: false, isSuspected: false, isRefused: false }])),
          isReliable: true,
          reliableForMs: 60_000,
          counts: { liveServers: serverIds.length, liveWorkers: 1, idleWorkers: 1, incompatible: [] },
          memory: this.memory(),
        }),
      jobs: () => Promise.resolve(new Map()),
      carryOut: (run, action) => Promise.resolve(this.carryOut(this.rows.get(run.runId)!, action)),
      waitingIds: () => Promise.resolve([]),
      isWanted: () => Promise.resolve(true),
      remove: () => Promise.resolve(),
      isOutage: () => false,
    });
    const tick = (): void => void reconciler.tick(() => Promise.resolve()).then((failed) => expect(failed).toEqual([]));
    this.clock.every(500, tick);
  }

  create(runId: string, parts: number, bytes: number, trainsForMs = TRAINS_FOR_MS): void {
    const run = {
      runId,
      status: 'RECOVERING',
      statusReason: null,
      isWaiting: false,
      attempt: 0,
      cancelRequestedAtMs: null,
      pauseRequestedAtMs: null,
      nextAttemptAtMs: 0,
      serversNeeded: parts,
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
    } as const satisfies ObservedRun;
    this.rows.set(runId, { run, bytes, trainsForMs });
    this.begin(this.rows.get(runId)!);
  }

  statusReason(runId: string): string | null {
    return this.rows.get(runId)!.run.statusReason;
  }

  /** The coordinator of a run that trains is heard. */
  private observed(run: ObservedRun): ObservedRun {
    if (run.status !== 'RUNNING') return { ...run };
    return { ...run, coordinator: { phase: 'training', round: 1, totalRounds: 100, seats: [], waitingFor: null, atMs: this.clock.now() } };
  }

  private begin({ run }: Row): void {
    run.attempt += 1;
    run.status = 'QUEUED';
    const madeAtMs = this.clock.now();
    run.servers = Array.from({ length: run.serversNeeded }, (_, index) => {
      this.queue.add({ kind: 'placement', runId: run.runId, attempt: run.attempt, index, role: 'primary' } as PlacementJob);
      return { index, role: 'primary', term: 1, isDropped: false, incarnation: 0, madeAtMs, claim: null };
    });
  }

  private memory(): ReadonlyMap<string, MemoryWait> {
    const live = [...this.rows.values()].filter(({ run }) => run.status === 'QUEUED' || run.status === 'RUNNING');
    const isUnplaced = ({ run }: Row): boolean => run.status === 'QUEUED' && run.servers.some(({ claim }) => claim === null);
    const waitsSince = ({ run }: Row): number => Math.max(...run.servers.flatMap(({ claim }) => claim?.atMs ?? []));
    const parts = live.flatMap((row): HeldPart[] =>
      row.run.servers.flatMap(({ claim }) =>
        claim
          ? [
              {
                runId: row.run.runId,
                serverId: claim.address.serverId,
                bytes: row.bytes,
                waitsSinceMs: isUnplaced(row) ? waitsSince(row) : undefined,
              },
            ]
          : [],
      ),
    );
    return memoryWaits(
      live.filter(isUnplaced).map(({ run, bytes }) => ({ runId: run.runId, bytes })),
      this.serverIds.map((id) => ({ id, memoryBytes: SERVER_BYTES })),
      parts,
    );
  }

  private carryOut(row: Row, action: DispatchAction): void {
    const { run } = row;
    if (action.kind === 'write-control') run.control = { ...run.control, ...action.fields };
    if (action.kind === 'explain') run.statusReason = action.reason;
    if (action.kind === 'mark-started') [run.attemptStartedAtMs, run.status] = [this.clock.now(), 'RUNNING'];
    if (action.kind === 'begin-attempt') this.begin(row);
    if (action.kind !== 'end-attempt') return;
    this.ends.push(action);
    const count = { used: 0, total: 0, bestRound: 0 };
    const ending = { status: run.status, isCancelWanted: false, restarts: 0, count, committedRounds: 0 };
    const after = afterEnd(ending, action.end, () => 0.5);
    run.status = after.to!;
    run.nextAttemptAtMs = this.clock.now() + (after.restartAfterMs ?? Infinity);
  }

  private report(report: Report): Promise<void> {
    expect(report.kind, 'no server gives up').toBe('server.claimed');
    if (report.kind !== 'server.claimed') return Promise.resolve();
    const { run } = this.rows.get(report.runId)!;
    if (run.attempt !== report.attempt) return Promise.resolve();
    run.servers = run.servers.map((place) =>
      place.index === report.address.index && !place.claim
        ? { ...place, claim: { address: report.address, atMs: this.clock.now(), storage: null } }
        : place,
    );
    return Promise.resolve();
  }

  private startServer(serverId: string): void {
    const silent = () => undefined;
    const none = () => Promise.resolve();
    const { clock, queue } = this;
    const loop = new PlacementLoop<PlacedRun>({
      queue,
      address: { serverId, host: 'h', port: 1, unixPath: null },
      context: {
        serverId,
        clock,
        log: { debug: silent, info: silent, warn: silent, error: silent },
        controlPlane: {
          readControl: (runId) => Promise.resolve({ ...this.rows.get(runId)!.run.control }),
          sendReport: (report) => this.report(report),
        },
        checkpoints: { store: { identity: () => Promise.resolve('store') } } as unknown as Checkpoints,
      },
      memory: { bytes: SERVER_BYTES, needs: ({ runId }) => this.rows.get(runId)!.bytes },
      createRun: (job, onGone) => {
        const end = (): void => {
          part.isOver = true;
          onGone(part);
        };
        const train = (): void => {
          end();
          if (job.index > 0) return;
          this.trained.push(job.runId);
          this.rows.get(job.runId)!.run.status = 'SUCCEEDED';
        };
        const start = (): void => void clock.after(this.rows.get(job.runId)!.trainsForMs, train);
        const part = { job, isOver: false, prepare: none, shutdown: none, flush: none, start, stop: end, drop: end };
        return part;
      },
    });
    loop.start();
  }
}

test('two runs of which each holds a server that the other waits for are trained one after the other, the older first, and no restart is charged', async () => {
  const cluster = new Cluster(['s1', 's2']);
  const [older, younger] = [RUNS[0]!, RUNS[1]!];
  cluster.create(older, 2, 60);
  cluster.create(younger, 2, 60);
  cluster.queue.waiting.sort((x, y) => x.payload.index - y.payload.index);
  await cluster.run(20_000);
  const held = [older, younger].map((id) => cluster.rows.get(id)!.run.servers.filter(({ claim }) => claim).length);
  expect(held, 'each has one').toEqual([1, 1]);
  expect(cluster.statusReason(older)).toMatch(/^waits for a parameter server with 1 MB free \(1 of 2 is ready\)/);
  await cluster.run(100_000);
  expect(cluster.trained).toEqual([older, younger]);
  expect(cluster.ends).toMatchObject([{ end: { cause: 'NO_MEMORY' } }]);
});

test('runs of all sizes that come at once are all trained', async () => {
  // 8: three wait for each other. 35: one needs all the memory that two younger ones have, which come back one after the other.
  for (const seed of [1, 2, 3, 8, 35]) {
    const random = xorshift(seed);
    const serverIds = Array.from({ length: 2 + (random() % 3) }, (_, i) => `s${i}`);
    const cluster = new Cluster(serverIds);
    const runIds = Array.from({ length: 8 }, (_, i) => `00000000-0000-7000-8000-0000000000${10 + i}`);
    for (const runId of runIds) {
      cluster.create(runId, 1 + (random() % serverIds.length), 20 + (random() % 100));
      await cluster.run(random() % 2_000);
    }
    await cluster.run(20 * 60_000);
    expect([...cluster.trained].sort(), `seed ${seed}`).toEqual(runIds);
  }
});

test('a run with a server that waits for the memory of another while a long run is there is not charged for it, and begins when that one is over', async () => {
  const cluster = new Cluster(['s1', 's2']);
  const [long, waits] = [RUNS[0]!, RUNS[1]!];
  cluster.create(long, 1, 60, 2 * 3_600_000);
  await cluster.run(1_000);
  cluster.create(waits, 2, 60);
  await cluster.run(2 * 3_600_000);
  expect(cluster.trained).toEqual([long]);
  await cluster.run(60_000);
  expect(cluster.trained).toEqual([long, waits]);
  expect(cluster.ends.length).toBeGreaterThan(5);
  expect(new Set(cluster.ends.map((action) => action.kind === 'end-attempt' && action.end.kind === 'failed' && action.end.cause))).toEqual(
    new Set(['NO_MEMORY']),
  );
});

test('a small run is found behind all parts of two that have as many as a run may have and no room', async () => {
  const cluster = new Cluster(['s1']);
  const [holds, ...large] = RUNS as [string, string, string];
  const small = '00000000-0000-7000-8000-00000000000d';
  cluster.create(holds, 1, 60, 3_600_000);
  await cluster.run(1_000);
  for (const runId of large) cluster.create(runId, 2 * LIMITS.servers, 60);
  cluster.create(small, 1, 30);
  await cluster.run(30_000);
  expect(cluster.trained).toEqual([small]);
  // Redis is asked twice for each that is passed by.
  cluster.queue.taken = 0;
  await cluster.run(10_000);
  expect(cluster.queue.taken).toBeLessThan(1_100);
  expect(cluster.queue.waiting.map(({ payload }) => payload.index)).toEqual([
    ...Array(2 * LIMITS.servers).keys(),
    ...Array(2 * LIMITS.servers).keys(),
  ]);
});
