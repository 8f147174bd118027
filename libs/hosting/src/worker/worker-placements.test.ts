/** Placements of a run whose workers hold the shards: workers and control plane as they are, over queues and rows in memory. */
import {
  claimed,
  madeAgain,
  placementJobId,
  Reconciler,
  type ControlFields,
  type DispatchAction,
  type HeldJob,
  type JobQueue,
  type ObservedRun,
  type PlacementJob,
  type Report,
  type ServerAddress,
} from '@paceline/control-plane';
import type { Checkpoints } from '@paceline/storage';
import { expect, test } from 'vitest';
import { PlacementLoop, type PlacedRun } from '../server/placement-loop.js';
import { virtualTime } from '../virtual-time.fixture.js';
import { StandbyQueue } from './standby-queue.js';
import { WorkerQueues } from './worker-queues.js';

const RUN = '0190c5a5-0000-7000-8000-000000000000';
const WORKERS = ['w0', 'w1', 'w2'];
const HELD = { attempt: 1, servers: WORKERS.length };
const TICK_MS = 150;
const silent = () => undefined;
const none = () => Promise.resolve();
type Claim = Extract<Report, { kind: 'server.claimed' }>;
type Place = ReturnType<typeof placeOf>;

const placeOf = (index: number, role: 'primary' | 'standby') => ({
  index,
  role,
  incarnation: 0,
  madeAt: new Date(0),
  serverId: null as string | null,
  claimedAt: null as Date | null,
  isLoading: false,
});

/** @param delayMs how long a claim that is said now is on its way */
function setUp({ standby = 0, delayMs = () => 0 }: { standby?: 0 | 1; delayMs?: (claim: Claim, nowMs: number) => number } = {}) {
  const { clock, run } = virtualTime();
  const control: ControlFields = {};
  const places = (['primary', 'standby'] as const).slice(0, 1 + standby).flatMap((role) => WORKERS.map((_, i) => placeOf(i, role)));
  const jobs = new Map<string, 'waiting' | 'active' | 'over'>();
  const actions: DispatchAction[] = [];
  let startedAtMs: number | null = null;
  const jobOf = (id: string): PlacementJob =>
    ({
      ...({ kind: 'placement', runId: RUN, role: 'primary', ...HELD } as const),
      index: Number(/-i(\d)/.exec(id)![1]),
      spec: { strategy: { kind: 'multi-worker-mirrored', standby } },
    }) as PlacementJob;
  const add = ({ index, incarnation, role }: Place): void =>
    void (role === 'primary' && jobs.set(placementJobId(RUN, 1, index, incarnation), 'waiting'));
  places.forEach(add);

  const queue: JobQueue<PlacementJob> = {
    take: () => {
      const id = [...jobs].find(([, state]) => state === 'waiting')?.[0];
      if (!id) return Promise.resolve(undefined);
      jobs.set(id, 'active');
      const become = (state: 'waiting' | 'over') => () => Promise.resolve(Boolean(jobs.set(id, state)));
      const held: HeldJob<PlacementJob> = {
        id,
        payload: jobOf(id),
        keep: () => Promise.resolve(true),
        complete: become('over'),
        giveBack: become('waiting'),
      };
      return Promise.resolve(held);
    },
    peek: () => Promise.resolve(undefined),
    close: none,
  };

  const take = (claim: Claim): void => {
    const place = places.find(({ index, role }) => index === claim.address.index && role === claim.role)!;
    const change = claimed({ attempt: 1, status: 'QUEUED' } as never, place, claim, new Date(clock.now()));
    if (change) Object.assign(place, change);
  };
  const report = (claim: Report): Promise<void> => {
    if (claim.kind !== 'server.claimed') return none();
    clock.after(delayMs(claim, clock.now()), () => take(claim));
    return none();
  };

  const address = (index: number, serverId: string): ServerAddress => ({ index, serverId, host: 'h', port: 1, unixPath: null });
  const observed = (): ObservedRun =>
    ({
      ...({ runId: RUN, status: startedAtMs === null ? 'QUEUED' : 'PROVISIONING', attempt: 1, shardHosts: 'workers' } as const),
      serversNeeded: places.length,
      standby,
      replicas: 3,
      storedSequence: 0,
      seatFailures: 0,
      fromRound: 0,
      cancelRequestedAtMs: null,
      workersWanted: null,
      openTasks: [],
      heldTasks: [],
      coordinator: null,
      attemptStartedAtMs: startedAtMs,
      control: { ...control },
      servers: places.map(({ serverId, claimedAt, isLoading, madeAt, ...place }) => ({
        ...place,
        term: 1,
        isDropped: false,
        madeAtMs: madeAt.getTime(),
        claim: claimedAt && { address: address(place.index, serverId!), atMs: claimedAt.getTime(), storage: null, isLoading },
      })),
    }) as unknown as ObservedRun;
  const alive = { silentMs: 500, hasLeft: false, isSuspected: false, isRefused: false };
  const reconciler = new Reconciler({
    now: () => clock.now(),
    readRuns: () => Promise.resolve({ runs: [observed()], nextAfterId: undefined }),
    fleet: () =>
      Promise.resolve({
        servers: new Map(WORKERS.map((id) => [id, alive])),
        isReliable: true,
        reliableForMs: 60_000,
        counts: { liveServers: 0, liveWorkers: 3, idleWorkers: 0, incompatible: [] },
      }),
    jobs: () => Promise.resolve(new Map([...jobs].map(([id, state]) => [id, { state, notWaitingSinceMs: clock.now() }]))),
    carryOut: (_, action) => {
      actions.push(action);
      if (action.kind === 'write-control') Object.assign(control, action.fields);
      if (action.kind === 'mark-started') startedAtMs = clock.now();
      if (action.kind !== 'make-placement-again') return none();
      const place = places.find(({ index, role }) => index === action.index && role === action.role)!;
      const again = madeAgain({ id: RUN, attempt: 1 } as never, place, action, new Date(clock.now()));
      if (again) add(Object.assign(place, again.place));
      return none();
    },
    waitingIds: () => Promise.resolve([]),
    isWanted: () => Promise.resolve(true),
    remove: none,
    isOutage: () => false,
  });
  clock.every(TICK_MS, () => void reconciler.tick(none));

  const begun: string[] = [];
  const own = new Map<string, PlacementLoop<PlacedRun>>();
  const standbys = new Map<string, PlacementLoop<PlacedRun>>();
  const loopOf = (serverId: string, of: JobQueue<PlacementJob>, onDropped: () => void): PlacementLoop<PlacedRun> =>
    new PlacementLoop<PlacedRun>({
      queue: of,
      address: { serverId, host: 'h', port: 1, unixPath: null },
      context: {
        serverId,
        clock,
        log: { debug: silent, info: silent, warn: silent, error: silent },
        controlPlane: { readControl: () => Promise.resolve({ ...control }), sendReport: report },
        checkpoints: { store: { identity: () => Promise.resolve('store') } } as unknown as Checkpoints,
      },
      createRun: (job, onGone) => {
        const part = {
          job,
          isOver: false,
          prepare: none,
          shutdown: none,
          flush: none,
          stop: silent,
          start: () => void begun.push(`${serverId}: ${job.role} ${job.index}`),
          drop: () => {
            part.isOver = true;
            onGone(part);
            onDropped();
          },
        };
        return part;
      },
    });
  for (const id of WORKERS) {
    const hosted = (): PlacementJob | undefined => [...own.get(id)!.runs.values()].at(-1)?.job;
    const queues = new WorkerQueues({
      stepTasks: { take: () => Promise.resolve(undefined), peek: () => Promise.resolve(undefined), close: none },
      placements: queue,
      controlPlane: { readControl: () => Promise.resolve({ ...control }) },
      holdsShards: true,
      hosted,
    });
    const standbyQueue = new StandbyQueue({ hosted, hasStandby: () => standbys.get(id)!.runs.size > 0, nowMs: () => clock.now() });
    // As apps/worker does it.
    const dropStandby = (): void => [...standbys.get(id)!.runs.values()].forEach((part) => part.drop());
    own.set(id, loopOf(id, queues.placements, dropStandby));
    standbys.set(id, loopOf(id, standbyQueue, silent));
    own.get(id)!.start();
    standbys.get(id)!.start();
  }
  return { run, begun, actions, places, own, jobs };
}

test('a claim that comes after its placement was made again is told once more, though no worker is free for the new placement', async () => {
  const { run, begun, actions } = setUp({ delayMs: ({ address: { index } }, nowMs) => (index === 2 && nowMs < 1_000 ? 3_500 : 0) });
  await run(10_000);
  expect(actions.map(({ kind }) => kind)).toContain('make-placement-again');
  expect(begun.sort()).toEqual(['w0: primary 0', 'w1: primary 1', 'w2: primary 2']);
});

test('who finds that another worker has its shard lets go of the standby too, and all parts are found', async () => {
  const { run, begun, places, jobs, own } = setUp({
    standby: 1,
    // What w0 says of shard 0 is on its way for so long that the placement, made again, is with another worker.
    delayMs: ({ role, address: { index, serverId } }) => (role === 'primary' && index === 0 && serverId === 'w0' ? 6_000 : 0),
  });
  jobs.set(placementJobId(RUN, 1, 2, 0), 'active'); // held by a process that is gone
  await run(5_000);
  const ofShard0 = [...own].flatMap(([id, { runs }]) => (runs.get(RUN)?.job.index === 0 ? [id] : []));
  expect(ofShard0, 'w0 has let go of it').toEqual(['w2']);
  jobs.set(placementJobId(RUN, 1, 2, 0), 'waiting'); // its lock has ended
  await run(30_000);
  expect(begun).toHaveLength(6);
  for (const { index, role, serverId } of places) if (role === 'standby') expect(serverId).toBe(places[(index + 2) % 3]!.serverId);
});
