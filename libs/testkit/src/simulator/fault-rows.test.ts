/** The fault rows of the protocol, each placed by hand in a run and asserted to have fired. Bits are compared in every one (I8). */
import { expect, test } from 'vitest';
import type { Cluster } from './cluster.js';
import { injectFault } from './faults.js';
import type { SimWorker } from './sim-worker.js';
import { simulateSeed, type SeedOptions, type SeedResult } from './simulate.js';

const base: SeedOptions = { seed: 1, check: 'liveness', kinds: [], stepMs: [20, 60] };
const shape = { servers: 2, replicas: 4, rounds: 8, evalExamples: 400 } as const;

/** Acts once, after the first event that makes the condition true. */
function when(cluster: Cluster, condition: () => boolean, act: () => void): void {
  const before = cluster.world.afterEvent;
  let done = false;
  cluster.world.afterEvent = () => {
    before();
    if (done || !condition()) return;
    done = true;
    act();
  };
}

const round = (cluster: Cluster): number => cluster.control.coordinatorPart?.coordinator?.round ?? 0;
const seated = (cluster: Cluster): SimWorker[] =>
  cluster.liveWorkers().filter((worker) => (worker.session?.member.replicas.length ?? 0) > 0);
const events = (cluster: Cluster, type: string) => cluster.control.journal.filter((entry) => entry.kind === 'event' && entry.type === type);

async function play(options: SeedOptions, arrange: (cluster: Cluster) => void): Promise<{ result: SeedResult; cluster: Cluster }> {
  let cluster: Cluster | undefined;
  const result = await simulateSeed({
    ...base,
    ...options,
    arrange: (made) => {
      cluster = made;
      arrange(made);
    },
  });
  expect(result.violation).toBeUndefined();
  return { result, cluster: cluster! };
}

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
  expect(result.outcome).toBe('finished');
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
  expect(events(cluster, 'worker.lost').map((entry) => (entry as { message: string }).message)).toEqual([
    expect.stringContaining(stopped!.id) as string,
  ]);
  expect(cluster.refusals.get('SEAT_TAKEN')).toBeGreaterThan(0);
  expect(result.outcome).toBe('finished');
});

test('3: a step task delivered twice: the second worker is refused, nothing is applied twice', async () => {
  const { result, cluster } = await play({ ...base, shape, workers: 3 }, (cluster) => void (cluster.control.deliveriesPerTask = 2));
  expect(result.fired.get('step task delivered twice')).toBeGreaterThan(0);
  expect(cluster.refusals.get('SEAT_TAKEN')).toBeGreaterThan(0);
  expect(result.outcome).toBe('finished');
});

test('4: the holder of one replica dies five times in one round: a poison round, named, and no endless loop', async () => {
  let kills = 0;
  const { result } = await play({ ...base, shape, workers: 2, stepMs: [300, 600] }, (cluster) => {
    cluster.mayFail = 'a poison round';
    const before = cluster.world.afterEvent;
    const told = new Set<SimWorker>();
    cluster.world.afterEvent = () => {
      before();
      const holder = seated(cluster).find(({ session }) => session!.member.round === 3 && session!.member.replicas.includes(1));
      if (!holder || kills >= 10 || told.has(holder)) return;
      told.add(holder);
      kills++;
      holder.process.kill();
      cluster.world.schedule(500, 'worker restarts', () => cluster.startWorker());
    };
  });
  expect(result).toMatchObject({
    outcome: 'failed',
    message: expect.stringMatching(/^poison round: replica \d of round 3 has lost its worker 5 times/u) as string,
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
  expect(result.outcome).toBe('finished');
});

test('13: one worker ten times slower: synchronous rounds wait for it', async () => {
  const { result, cluster } = await play({ ...base, shape, workers: 2 }, (cluster) => {
    when(
      cluster,
      () => seated(cluster).length === 2,
      () => (seated(cluster)[0]!.stepMs = [200, 600]),
    );
  });
  expect(result.outcome).toBe('finished');
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
  expect(result.outcome).toBe('finished');
});

test('17: 1 → 4 → 2 → 3 workers during a run: the bits are those of a fixed fleet', async () => {
  const seen: number[] = [];
  const { result } = await play({ ...base, shape: { ...shape, rounds: 60 }, workers: 1, stepMs: [40, 90] }, (cluster) => {
    const at = (k: number, workers: number, act: () => void): void =>
      when(
        cluster,
        () => round(cluster) >= k && seated(cluster).length === workers,
        () => {
          seen.push(workers);
          act();
        },
      );
    at(2, 1, () => [1, 2, 3].forEach(() => cluster.startWorker()));
    at(4, 4, () =>
      seated(cluster)
        .slice(0, 2)
        .forEach((worker) => worker.process.kill()),
    );
    when(
      cluster,
      () => seen.length === 2 && seated(cluster).length === 2 && round(cluster) >= 12,
      () => {
        seen.push(2);
        cluster.startWorker();
      },
    );
    when(
      cluster,
      () => seen.length === 3 && seated(cluster).length === 3,
      () => seen.push(3),
    );
  });
  expect(seen).toEqual([1, 4, 2, 3]);
  expect(result.outcome).toBe('finished');
});

test('5: a server killed between update and reply ends the attempt, named; nothing is applied twice', async () => {
  const { result } = await play({ ...base, shape, workers: 2 }, (cluster) => {
    when(
      cluster,
      () => round(cluster) >= 2 && cluster.hosted[1]!.shard.table.state === 'REDUCED',
      () => {
        cluster.mayFail = 'a server was killed';
        cluster.hosted[1]!.server.process.kill();
      },
    );
  });
  expect(result).toMatchObject({ outcome: 'failed', message: expect.stringContaining('parameter server 1 was lost') as string });
});

test('a fault that has nothing to act on says so', async () => {
  await play({ ...base, shape, workers: 1 }, (cluster) => {
    expect(injectFault(cluster, 'kill a worker')).toBe(false);
  });
});
