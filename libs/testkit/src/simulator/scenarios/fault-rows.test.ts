/** The fault rows of the protocol, each placed by hand in a run and asserted to have fired. Bits are compared in every one (I8). */
import { expect, test } from 'vitest';
import { always, events, killServer, play, round, when } from './arranged.fixture.js';
import type { Cluster } from '../cluster.js';
import { CRASHES } from '../../faulty-disk.js';
import { injectFault } from '../faults/faults.js';
import { STREAMING } from '../run/gradient-shape.js';
import type { SimWorker } from '../actors/worker.js';
import type { SeedOptions } from '../simulate.js';
import { seeds } from './sweep.fixture.js';

const base: SeedOptions = { seed: 1, check: 'liveness', mode: 'sync', kinds: [], stepMs: [20, 60] };
const shape = { servers: 2, replicas: 4, rounds: 8, evalExamples: 400, checkpointEveryRounds: 2, standby: 0, gradient: STREAMING } as const;

/** Of boundaries; every kind of crash is at some of them. */
const STRIDE = seeds(5, 1);

const seated = (cluster: Cluster): SimWorker[] =>
  cluster.liveWorkers().filter((worker) => (worker.session?.member.replicas.length ?? 0) > 0);

test('1: a worker killed half-way through a frame: the frame is dropped, others take its replicas, the bits are the same', async () => {
  const { result } = await play({ ...base, shape, workers: 2 }, (cluster) => {
    cluster.network.weather = { ...cluster.network.weather, bytesPerMs: 5 };
    const sending = (): SimWorker | undefined =>
      seated(cluster).find((worker) =>
        [...cluster.network.streams].some((stream) => stream.process === worker.process && stream.isSending),
      );
    when(
      cluster,
      () => round(cluster) >= 2 && seated(cluster).length === 2 && sending() !== undefined,
      () => sending()!.process.kill(),
    );
  });
  expect(result.fired.get('killed half-way through a frame')).toBeGreaterThan(0);
  expect(result.outcome).toBe('SUCCEEDED');
});

test('2: a worker stopped for 60 s is lost and replaced; when it goes on its seat is refused', async () => {
  let stopped: SimWorker | undefined;
  const { result, cluster } = await play(
    { ...base, shape: { ...shape, replicas: 2, rounds: 60 }, workers: 2, stepMs: [500, 2_000] },
    (cluster) => {
      when(
        cluster,
        () => round(cluster) >= 2 && seated(cluster).length === 2,
        () => {
          stopped = seated(cluster)[0]!;
          stopped.process.freeze();
          cluster.startWorker();
          cluster.world.schedule(60_000, 'it goes on', () => stopped!.process.thaw());
        },
      );
    },
  );
  expect(events(cluster, 'worker.lost').map(({ message }) => message)).toEqual([expect.stringContaining(stopped!.id) as string]);
  expect(cluster.refusals.get('SEAT_TAKEN')).toBeGreaterThan(0);
  expect(result.outcome).toBe('SUCCEEDED');
});

test('4: the holder of one replica dies five times in one round: a poison round, named, and no endless loop', async () => {
  let kills = 0;
  const { result } = await play({ ...base, shape, workers: 2, stepMs: [300, 600] }, (cluster) => {
    cluster.mayFail = 'a poison round';
    const told = new Set<SimWorker>();
    always(cluster, () => {
      const holder = seated(cluster).find(({ session }) => session!.member.round === 3 && session!.member.replicas.includes(1));
      if (!holder || kills >= 10 || told.has(holder)) return;
      told.add(holder);
      kills++;
      holder.process.kill();
      cluster.world.schedule(500, 'worker restarts', () => cluster.startWorker());
    });
  });
  expect(result).toMatchObject({
    outcome: 'FAILED',
    message: expect.stringMatching(
      /^(?!poison).+; replica \d of round 3 has lost its worker 5 times, each time by this \(a poison round\)/u,
    ) as string,
  });
  expect(kills).toBeLessThan(10);
});

test('11: replies to a worker are lost for 20 s: what it sends again is dropped as a duplicate', async () => {
  const { result } = await play({ ...base, shape, workers: 2 }, (cluster) => {
    when(
      cluster,
      () => round(cluster) >= 2 && seated(cluster).length === 2,
      () => {
        const worker = seated(cluster)[0]!.process.host;
        for (const { process } of cluster.servers) {
          cluster.network.block(process.host, worker);
          cluster.world.schedule(20_000, 'replies come again', () => cluster.network.unblock(process.host, worker));
        }
        cluster.network.count('one-way partition');
      },
    );
  });
  expect(result.fired.get('one-way partition')).toBe(1);
  expect(result.outcome).toBe('SUCCEEDED');
});

test('13: one worker ten times slower: synchronous rounds wait for it', async () => {
  const { result, cluster } = await play({ ...base, shape, workers: 2 }, (cluster) => {
    when(
      cluster,
      () => seated(cluster).length === 2,
      () => (seated(cluster)[0]!.stepMs = [200, 600]),
    );
  });
  expect(result.outcome).toBe('SUCCEEDED');
  expect(events(cluster, 'worker.lost')).toEqual([]);
});

test('14: a bit flipped in a frame is detected, the connection opened again, and the frame sent again', async () => {
  const { result, cluster } = await play({ ...base, shape, workers: 2 }, (cluster) => {
    when(
      cluster,
      () => round(cluster) >= 2 && seated(cluster).length === 2,
      () => {
        for (const stream of cluster.network.streams) if (stream.process === seated(cluster)[0]!.process) stream.flipNext = true;
      },
    );
  });
  expect(result.fired.get('bit flip in a frame')).toBeGreaterThan(0);
  expect((cluster.refusals.get('BAD_CHECKSUM') ?? 0) + (cluster.refusals.get('BAD_FRAME') ?? 0)).toBeGreaterThan(0);
  expect(result.outcome).toBe('SUCCEEDED');
});

const secondAttempt = (cluster: Cluster): number[] =>
  cluster.hosted.filter(({ attempt }) => attempt === 2).map(({ restore }) => restore?.round ?? 0);

for (const index of [0, 1])
  test(`5 and 7: server ${index} killed between update and reply: all shards return to one common round, and nothing is applied twice`, async () => {
    const { result, cluster } = await play({ ...base, shape, workers: 2 }, (cluster) => {
      when(
        cluster,
        () => round(cluster) >= 3 && cluster.control.checkpoints.length > 0 && cluster.partOf(index)!.shard.table.state === 'REDUCED',
        () => killServer(cluster, index),
      );
    });
    expect(result).toMatchObject({ outcome: 'SUCCEEDED', attempts: 2 });
    expect(result.ends.get('restart')).toBe(1);
    expect(secondAttempt(cluster)).toHaveLength(2);
    expect(new Set(secondAttempt(cluster)).size).toBe(1);
    expect(secondAttempt(cluster)[0]).toBeGreaterThan(0);
  });

test(
  '6: the power goes at boundaries of a checkpoint that is written, in the soak at every one: what is published loads, and the run ends with its bits',
  { timeout: 360_000 },
  async () => {
    let checkpoints = 0;
    let last = 0;
    for (let boundary = 0; boundary < 60; boundary += STRIDE) {
      const crash = CRASHES[boundary % CRASHES.length]!;
      let hit = false;
      const { result } = await play(
        { ...base, seed: 3, shape: { ...shape, checkpointEveryRounds: 1, rounds: 4, evalExamples: 0 }, workers: 1, stepMs: [1, 3] },
        (cluster) => {
          let writes = 0;
          cluster.disk.present.before = ({ kind, path }) => {
            if (hit || kind === 'read' || kind === 'list' || !path.includes('/runs') || writes++ !== boundary) return;
            hit = true;
            cluster.disk.losePower(crash);
            for (const server of [0, 1]) killServer(cluster, server);
          };
        },
      );
      if (!hit) break;
      last = boundary;
      checkpoints += result.checkpoints;
      expect(result).toMatchObject({ outcome: 'SUCCEEDED', attempts: 2 });
    }
    expect(last + STRIDE).toBeGreaterThan(30);
    expect(checkpoints).toBeGreaterThan(0);
  },
);

test('14: a bit flipped in the newest checkpoint: the attempt begins with the one before', async () => {
  const { result, cluster } = await play({ ...base, shape: { ...shape, rounds: 12 }, workers: 2 }, (cluster) => {
    when(
      cluster,
      () => cluster.control.checkpoints.length >= 2,
      () => {
        cluster.mayLoseCheckpoints = 'a bit was flipped on the disk';
        const newest = cluster.control.checkpoints.at(-1)!;
        for (const file of cluster.disk.present.files()) if (file.includes(`a1-r${newest.round}/`)) cluster.disk.present.flip(file, 20, 3);
        killServer(cluster, 1);
      },
    );
  });
  expect(result.outcome).toBe('SUCCEEDED');
  expect(result.ends.get('otherCheckpoint')).toBeGreaterThan(0);
  expect(cluster.control.checkpoints.filter(({ isGone }) => isGone).length).toBeGreaterThan(0);
});

test('15: a disk that is full: no checkpoint, an event that says so, and the run goes on', async () => {
  const { result, cluster } = await play({ ...base, shape, workers: 2 }, (cluster) => {
    when(
      cluster,
      () => cluster.control.checkpoints.length >= 1,
      () => (cluster.disk.isFull = true),
    );
    when(
      cluster,
      () => cluster.disk.isFull && round(cluster) >= shape.rounds,
      () => (cluster.disk.isFull = false),
    );
  });
  expect(result.fired.get('write to a full disk')).toBeGreaterThan(0);
  expect(events(cluster, 'checkpoint.failed').length).toBeGreaterThan(0);
  expect(result).toMatchObject({ outcome: 'SUCCEEDED', attempts: 1 });
});

test('15: a disk that is full when the weights are written: the run waits for room, says so, and redoes nothing', async () => {
  let sawReason = '';
  const { result, cluster } = await play({ ...base, shape: { ...shape, restarts: 1 }, workers: 2 }, (cluster) => {
    const isCollecting = (): boolean => cluster.control.coordinatorPart?.coordinator?.table.state === 'COLLECTING';
    when(cluster, isCollecting, () => {
      cluster.disk.isFull = true;
      cluster.world.schedule(120_000, 'the disk has room again', () => {
        sawReason = cluster.control.reason;
        cluster.disk.isFull = false;
      });
    });
  });
  expect(sawReason).toBe('waits for its weights to be written (ENOSPC: weights)');
  expect(result).toMatchObject({ outcome: 'SUCCEEDED', attempts: 1 });
  expect(cluster.runInvariants.committedRounds).toBe(shape.rounds);
});

for (const at of [0, 1, 3, 7])
  test(`18: paused after ${at} rounds: PAUSED within 10 s with nothing left running, and resumed to the same bits`, async () => {
    let askedMs = 0;
    let pausedMs = 0;
    const { result, cluster } = await play({ ...base, shape, workers: 2 }, (cluster) => {
      when(
        cluster,
        () => round(cluster) >= at && cluster.control.status === 'RUNNING' && seated(cluster).length > 0,
        () => {
          askedMs = cluster.world.nowMs;
          cluster.control.pause();
        },
      );
      when(
        cluster,
        () => cluster.control.status === 'PAUSED',
        () => {
          pausedMs = cluster.world.nowMs;
          cluster.world.schedule(5_000, 'resume', () => {
            expect(cluster.hosted.every(({ over }) => over)).toBe(true);
            expect(cluster.workers.every(({ session }) => session === undefined)).toBe(true);
            cluster.control.resume();
          });
        },
      );
    });
    expect(result.outcome).toBe('SUCCEEDED');
    if (pausedMs > 0) expect(pausedMs - askedMs).toBeLessThan(10_000);
    else expect(cluster.runInvariants.committedRounds).toBe(shape.rounds); // it was faster than the pause
    expect(at < 7 ? pausedMs : 1).toBeGreaterThan(0);
  });

test('18: SIGTERM to a server: a last checkpoint, and the next attempt begins with it', async () => {
  const { result, cluster } = await play({ ...base, shape: { ...shape, checkpointEveryRounds: 100 }, workers: 2 }, (cluster) => {
    // The deadlines of a shutdown count in seconds of a real network.
    cluster.network.weather = { ...cluster.network.weather, latencyMs: [0.1, 1], bytesPerMs: 10_000 };
    when(
      cluster,
      () => round(cluster) === 3,
      () => {
        const server = cluster.serverOf(1)!;
        server.process.onKill(() => cluster.restartServer(server.slot));
        cluster.network.count('shut a server down');
        server.process.run(() => server.shutdown());
      },
    );
  });
  expect(result).toMatchObject({ outcome: 'SUCCEEDED', attempts: 2 });
  expect(secondAttempt(cluster).every((restored) => restored >= 3)).toBe(true);
});

test('18: cancelled in the middle of a round: CANCELLED within 10 s with nothing left running', async () => {
  let askedMs = 0;
  let endedMs = 0;
  const { result, cluster } = await play({ ...base, shape, workers: 2 }, (cluster) => {
    cluster.mayFail = 'cancel';
    when(
      cluster,
      () => round(cluster) >= 3,
      () => {
        askedMs = cluster.world.nowMs;
        cluster.control.cancel();
      },
    );
    when(
      cluster,
      () => cluster.control.isOver,
      () => (endedMs = cluster.world.nowMs),
    );
  });
  expect(result.outcome).toBe('CANCELLED');
  expect(endedMs - askedMs).toBeLessThan(10_000);
  expect(cluster.hosted.every(({ over }) => over)).toBe(true);
});

test('a fault that has nothing to act on says so', async () => {
  await play({ ...base, shape, workers: 1 }, (cluster) => {
    expect(injectFault(cluster, 'kill a worker')).toBe(false);
  });
});
