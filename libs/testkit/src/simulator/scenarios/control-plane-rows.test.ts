/** The fault rows of the control plane, each placed by hand and asserted to have fired. None may end an attempt, lose a run or double it. */
import { acknowledgedOf } from '@paceline/control-plane';
import { expect, test } from 'vitest';
import { later, play, round, when, type Played } from './arranged.fixture.js';
import { STREAMING } from '../run/gradient-shape.js';
import type { DeathPoint, SimApi } from '../actors/api.js';
import type { SeedOptions } from '../simulate.js';

const base: SeedOptions = { seed: 1, check: 'liveness', mode: 'sync', kinds: [], stepMs: [100, 300], workers: 2, apis: 1 };
const shape = { servers: 2, replicas: 4, rounds: 60, evalExamples: 400, checkpointEveryRounds: 5, gradient: STREAMING } as const;

/** The run ended well in its first attempt, and all that it did is stored. */
function expectWhole({ result, cluster }: Played): void {
  expect(result).toMatchObject({ outcome: 'SUCCEEDED', attempts: 1, rounds: shape.rounds });
  expect(cluster.runInvariants.ledgerTo).toBe(shape.rounds - 1);
}

test('3: a step task delivered twice: the second worker is refused, nothing is applied twice', async () => {
  const played = await play({ ...base, shape, workers: 3 }, ({ redis }) => void (redis.deliveriesPerJob = 2));
  expect(played.result.fired.get('step task delivered twice')).toBeGreaterThan(0);
  expect(played.cluster.refusals.get('SEAT_TAKEN')).toBeGreaterThan(0);
  expectWhole(played);
});

test('3: a placement delivered twice: one claim counts, and the server without one takes the part that is missing', async () => {
  const played = await play({ ...base, shape }, ({ redis }) => void (redis.deliveriesPerJob = 2));
  expect(played.result.fired.get('placement delivered twice')).toBeGreaterThan(0);
  const parts = played.cluster.hosted.filter(({ run }) => run.hasStarted);
  expect(parts.map(({ index }) => index).sort()).toEqual([0, 1]);
  expect(played.cluster.hosted.length).toBeGreaterThan(parts.length);
  expectWhole(played);
});

test('8: Redis flushed in the middle of the run: what it held is made again, nothing is lost or doubled', async () => {
  let flushed = 0;
  const played = await play({ ...base, shape }, (cluster) => {
    for (const at of [0, 2, 10, 30])
      when(
        cluster,
        () => round(cluster) >= at && cluster.redis.jobCount > 0,
        () => {
          flushed++;
          cluster.redis.flushAll();
          cluster.network.count('flush Redis');
        },
      );
  });
  expect(flushed).toBe(4);
  expectWhole(played);
});

test('8: Redis restarted without its last second: the same', async () => {
  let lost = 0;
  const played = await play({ ...base, shape }, (cluster) => {
    for (const at of [0, 2, 10, 30])
      when(
        cluster,
        () => round(cluster) >= at && cluster.redis.jobCount > 0,
        () => {
          lost += cluster.redis.crash();
          cluster.network.count('restart Redis');
          later(cluster, 500, () => cluster.redis.comeBack());
        },
      );
  });
  expect(lost).toBeGreaterThan(0);
  expectWhole(played);
});

test('9: PostgreSQL away for longer than an ended run keeps its place: its end is stored all the same', async () => {
  const awayMs = 700_000;
  const short = { ...shape, rounds: 8, evalExamples: 0, restarts: 0 };
  let endedMs = 0;
  const { result } = await play({ ...base, check: 'safety', shape: short }, (cluster) => {
    const { control, world, postgres } = cluster;
    // It lasts longer than a seed that checks safety.
    const stop = world.stop.bind(world);
    world.stop = () => {
      if (control.isOver || world.nowMs > 2 * awayMs) stop();
    };
    when(
      cluster,
      () => round(cluster) >= 3,
      () => {
        postgres.goAway();
        later(cluster, awayMs, () => postgres.comeBack());
      },
    );
    when(
      cluster,
      () => control.coordinatorPart?.coordinator?.table.state === 'OVER',
      () => (endedMs = world.nowMs),
    );
  });
  expect(endedMs).toBeGreaterThan(0);
  expect(endedMs).toBeLessThan(awayMs - 600_000);
  expect(result).toMatchObject({ outcome: 'SUCCEEDED', attempts: 1, rounds: short.rounds });
});

test('8: Redis away for 30 s: rounds go on, and the journal is collected afterwards', async () => {
  let before = 0;
  const played = await play({ ...base, shape: { ...shape, rounds: 100 } }, (cluster) => {
    when(
      cluster,
      () => round(cluster) >= 3,
      () => {
        before = round(cluster);
        cluster.redis.goAway();
        later(cluster, 30_000, () => {
          before = round(cluster) - before;
          cluster.redis.comeBack();
        });
      },
    );
  });
  expect(before).toBeGreaterThan(10);
  expect(played.result).toMatchObject({ outcome: 'SUCCEEDED', attempts: 1 });
  expect(played.cluster.runInvariants.ledgerTo).toBe(99);
});

test('9: PostgreSQL away for 30 s: people are answered 503, rounds go on, nothing is acknowledged that is not stored, and all is stored afterwards', async () => {
  let before = 0;
  let storedBefore = 0;
  const played = await play({ ...base, shape: { ...shape, rounds: 100 } }, (cluster) => {
    const { postgres, control } = cluster;
    const storedSequence = (): number => postgres.rows.attempts.get(1)!.storedSequence;
    when(
      cluster,
      () => round(cluster) >= 3 && storedSequence() > 0,
      () => {
        before = round(cluster);
        postgres.goAway();
        storedBefore = storedSequence();
        expect(control.pause()).toBe(false);
        later(cluster, 30_000, () => {
          before = round(cluster) - before;
          expect(storedSequence()).toBe(storedBefore);
          expect(acknowledgedOf(cluster.redis.control(cluster.runId).ack1 ?? '0@1', 1)!.sequence).toBeLessThanOrEqual(storedBefore);
          postgres.comeBack();
        });
      },
    );
  });
  expect(storedBefore).toBeGreaterThan(0);
  expect(before).toBeGreaterThan(10);
  expect(played.result).toMatchObject({ outcome: 'SUCCEEDED', attempts: 1 });
  expect(played.cluster.runInvariants.ledgerTo).toBe(99);
});

for (const point of ['before it enqueues', 'after it has enqueued'] satisfies DeathPoint[])
  test(`10: the api killed between insert and enqueue, ${point}: the next one enqueues exactly one`, async () => {
    const played = await play({ ...base, shape }, (cluster) => {
      const [first] = cluster.apis;
      first!.diesAt = point;
      first!.process.onKill(() => cluster.restartApi());
    });
    expect(played.result.fired.get(`api killed ${point}`)).toBe(1);
    expect(played.cluster.apis).toHaveLength(2);
    // `watch.enqueued` has refused a second one for any of them.
    expect(played.cluster.hosted).toHaveLength(2);
    expectWhole(played);
  });

test('the api that reconciles is stopped for 30 s: another takes over and begins the next attempt; the stopped one finds that out', async () => {
  const STOPPED_MS = 30_000;
  let stopped: SimApi | undefined;
  let [stoppedAtMs, takenOverMs, secondBeganMs] = [0, 0, 0];
  const played = await play({ ...base, shape, apis: 2 }, (cluster) => {
    const sinceMs = (): number => cluster.world.nowMs - stoppedAtMs;
    when(
      cluster,
      () => round(cluster) >= 5 && cluster.control.checkpoints.length > 0,
      () => {
        stopped = cluster.apis.find(({ process }) => process === cluster.postgres.lockHolder)!;
        stoppedAtMs = cluster.world.nowMs;
        stopped.process.freeze();
        cluster.network.count('stop an api');
        later(cluster, STOPPED_MS, () => stopped!.process.thaw());
        // Nobody but who reconciles can bring the run on after this.
        const { process, slot } = cluster.serverOf(1)!;
        process.kill();
        cluster.restartServer(slot);
      },
    );
    when(
      cluster,
      () => stopped !== undefined && cluster.postgres.lockHolder !== undefined && cluster.postgres.lockHolder !== stopped.process,
      () => (takenOverMs = sinceMs()),
    );
    when(
      cluster,
      () => cluster.control.attempt === 2,
      () => (secondBeganMs = sinceMs()),
    );
    when(
      cluster,
      () => stopped !== undefined && sinceMs() > STOPPED_MS + 1_000,
      () => expect(cluster.postgres.lockHolder).not.toBe(stopped!.process),
    );
  });
  expect(played.result.fired.get('dispatch taken over from an api that stood still')).toBe(1);
  expect(takenOverMs).toBeGreaterThan(5_000);
  expect(takenOverMs).toBeLessThan(12_000);
  expect(secondBeganMs).toBeGreaterThan(takenOverMs);
  expect(secondBeganMs).toBeLessThan(25_000);
  expect(played.result).toMatchObject({ outcome: 'SUCCEEDED', attempts: 2, rounds: shape.rounds });
});

test('the api that reconciles is killed: another takes the lock with the connection that ends, and goes on', async () => {
  const played = await play({ ...base, shape, apis: 2 }, (cluster) => {
    when(
      cluster,
      () => round(cluster) >= 5,
      () => {
        const holder = cluster.apis.find(({ process }) => process === cluster.postgres.lockHolder)!;
        holder.process.kill();
        cluster.network.count('kill an api');
        later(cluster, 5_000, () => expect(cluster.postgres.lockHolder).toBe(cluster.apis.find((api) => api !== holder)!.process));
      },
    );
  });
  expect(played.result.fired.get('kill an api')).toBe(1);
  expectWhole(played);
});
