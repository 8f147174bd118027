/** Fences, each case placed by hand: connections of an older attempt that come again, and those of the present one. */
import { expect, test } from 'vitest';
import type { Cluster } from './cluster.js';
import { injectFault } from './faults.js';
import { STREAMING } from './gradient-shape.js';
import { simulateSeed, type SeedResult } from './simulate.js';

const round = (cluster: Cluster): number => cluster.control.coordinatorPart?.coordinator?.round ?? 0;

async function play(step: (cluster: Cluster) => void): Promise<{ result: SeedResult; cluster: Cluster }> {
  let cluster: Cluster | undefined;
  const result = await simulateSeed({
    ...{ seed: 2, check: 'liveness', kinds: [], stepMs: [20, 60], workers: 2 },
    shape: { servers: 2, replicas: 4, rounds: 20, evalExamples: 400, cutEveryRounds: 2, standby: 0, gradient: STREAMING },
    arrange: (made) => {
      cluster = made;
      const before = made.world.afterEvent;
      made.world.afterEvent = () => {
        before();
        step(made);
      };
    },
  });
  expect(result.violation).toBeUndefined();
  return { result, cluster: cluster! };
}

test('11: a connection of an older attempt comes again, with its frames: refused with STALE_FENCE, nothing moves (I7)', async () => {
  let replayed = 0;
  let killed = false;
  const { result, cluster } = await play((cluster) => {
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

test('11: a broken connection comes again beside the new one: late frames change nothing, the worker goes on', async () => {
  let broken = false;
  let replayed = 0;
  const { result } = await play((cluster) => {
    if (!broken && round(cluster) >= 4) broken = injectFault(cluster, 'break a connection');
    if (broken && round(cluster) >= 6 && replayed < 2 && injectFault(cluster, 'replay a connection')) replayed++;
  });
  expect(replayed).toBe(2);
  expect(result.outcome).toBe('SUCCEEDED');
});
