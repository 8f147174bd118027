/** Fences, each case placed by hand: connections of an older attempt that come again, and those of the present one. */
import { expect, test, vi } from 'vitest';
import { always, play, round, when, type Played } from './arranged.fixture.js';
import type { Cluster } from '../cluster.js';
import { injectFault } from '../faults/faults.js';
import { STREAMING } from '../run/gradient-shape.js';
import { SimRedis } from '../world/redis.js';

const shape = {
  servers: 2,
  replicas: 4,
  rounds: 20,
  evalExamples: 400,
  checkpointEveryRounds: 2,
  standby: 0,
  gradient: STREAMING,
} as const;

/** @param step after every event */
const playSteps = (step: (cluster: Cluster) => void): Promise<Played> =>
  play({ seed: 3, check: 'liveness', kinds: [], stepMs: [20, 60], workers: 2, shape }, (cluster) => always(cluster, () => step(cluster)));

test('11: a connection of an older attempt comes again, with its frames: refused with STALE_FENCE, nothing moves (I7)', async () => {
  let replayed = 0;
  let killed = false;
  const { result, cluster } = await playSteps((cluster) => {
    if (!killed && round(cluster) >= 4) {
      killed = true;
      injectFault(cluster, 'kill a server');
    }
    if (cluster.control.attempt === 2 && round(cluster) >= 5 && replayed < 3 && injectFault(cluster, 'replay a connection')) replayed++;
  });
  expect(replayed).toBe(3);
  expect(cluster.refusals.get('STALE_FENCE')).toBeGreaterThan(0);
  expect(result).toMatchObject({ outcome: 'SUCCEEDED', attempts: 2 });
});

test('11: a broken connection comes again beside the new one: its HELLO is refused with HELLO_REPLAYED, the worker goes on', async () => {
  let broken = false;
  let replayed = 0;
  const { result, cluster } = await playSteps((cluster) => {
    if (!broken && round(cluster) >= 4) {
      broken = true;
      [...cluster.network.streams].find(({ isOpen, process }) => isOpen && process.name.startsWith('w'))!.break();
    }
    if (broken && round(cluster) >= 6 && replayed < 2 && injectFault(cluster, 'replay a connection')) replayed++;
  });
  expect(replayed).toBe(2);
  expect(cluster.refusals.get('HELLO_REPLAYED')).toBeGreaterThan(0);
  expect(result.outcome).toBe('SUCCEEDED');
});

test('another shard is taken over: the coordinator speaks in its own term, and reports its journal in it', async () => {
  const controlPlane = Reflect.get(SimRedis.prototype, 'controlPlane') as SimRedis['controlPlane'];
  const reported: (number | undefined)[] = [];
  const spy = vi.spyOn(SimRedis.prototype, 'controlPlane').mockImplementation(function (this: SimRedis, from) {
    const plane = controlPlane.call(this, from);
    const sendReport: typeof plane.sendReport = (report) => {
      if (report.kind === 'journal') reported.push(report.term);
      return plane.sendReport(report);
    };
    return { ...plane, sendReport };
  });
  const terms = { coordinator: 0, shard: 0 };
  const options = { seed: 2, check: 'liveness', kinds: [], stepMs: [20, 60], workers: 2, shape: { ...shape, standby: 1 } } as const;
  const { result } = await play(options, (cluster) => {
    const lead = () => cluster.hosted.find(({ index, over, run }) => index === 1 && !over && run.place.isPrimary);
    when(
      cluster,
      () => round(cluster) >= 4 && lead() !== undefined,
      () => lead()!.server.process.kill(),
    );
    always(cluster, () => {
      terms.coordinator = Math.max(terms.coordinator, cluster.control.coordinatorPart?.coordinator?.numbers().term ?? 0);
      terms.shard = Math.max(...cluster.hosted.map(({ shard: { term } }) => term));
    });
  });
  spy.mockRestore();
  expect(result).toMatchObject({ outcome: 'SUCCEEDED', attempts: 1 });
  expect(terms).toEqual({ coordinator: 1, shard: 2 });
  expect(new Set(reported)).toEqual(new Set([1]));
});
