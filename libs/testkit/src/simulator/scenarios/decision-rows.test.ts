/** Fault rows of plan two-phase, each placed by hand and asserted to have fired: gradients that are no numbers, replicas that are late. */
import { expect, test } from 'vitest';
import { events, play, type Played } from './arranged.fixture.js';
import type { Cluster } from '../cluster.js';
import { STREAMING, type GradientShape } from '../run/gradient-shape.js';
import type { SeedOptions } from '../simulate.js';

const shape = { servers: 2, replicas: 4, rounds: 8, evalExamples: 0, checkpointEveryRounds: 2, standby: 0 } as const;

const playWith = (gradient: GradientShape, arrange: (cluster: Cluster) => void, options: Partial<SeedOptions> = {}): Promise<Played> =>
  play({ seed: 1, check: 'liveness', kinds: [], stepMs: [20, 60], workers: 2, shape: { ...shape, gradient }, ...options }, arrange);

const spoil =
  (...rounds: number[]) =>
  (cluster: Cluster): void => {
    for (const round of rounds) cluster.run.spoiled.set(`${round}/1`, { element: 0, value: round % 2 === 0 ? NaN : Infinity });
  };
const dropped = (cluster: Cluster): number =>
  cluster.control.journal.reduce((sum, entry) => sum + (entry.kind === 'ledger' ? (entry.dropped ?? 0) : 0), 0);

test('16: NaN and infinity with `skip`: the rounds are left out and counted, the bits are those of a run without them', async () => {
  const { result, cluster } = await playWith({ ...STREAMING, nonFinite: 'skip' }, spoil(2, 5));
  expect(result.outcome).toBe('SUCCEEDED');
  expect(events(cluster, 'round.skipped').map(({ data }) => data)).toMatchObject([{ round: 2 }, { round: 5 }]);
  const { schedule } = cluster.run;
  expect(dropped(cluster)).toBe(schedule.round(2).count + schedule.round(5).count);
  expect(cluster.reference.generation(3)).toEqual(cluster.reference.generation(2));
  expect([...cluster.reference.generation(8)].every(Number.isFinite)).toBe(true);
});

for (const [plan, gradient] of [
  ['streaming', STREAMING],
  ['two-phase', { ...STREAMING, clipGlobalNorm: 0.5 }],
] as const) {
  test(`16: NaN with \`fail\`, plan ${plan}: FAILED, naming the round`, async () => {
    const { result } = await playWith(gradient, (cluster) => {
      cluster.mayFail = 'a gradient that is no number';
      spoil(4)(cluster);
    });
    expect(result).toMatchObject({ outcome: 'FAILED', message: expect.stringContaining('round 4 has NaN or infinity') as string });
  });

  test(`16: NaN with \`rollback\`, plan ${plan}: back to the checkpoint before, then the bits of the undisturbed run`, async () => {
    const { result, cluster } = await playWith({ ...gradient, nonFinite: 'rollback' }, (cluster) => {
      cluster.network.count('spoil a gradient');
      spoil(5)(cluster);
    });
    expect(result).toMatchObject({ outcome: 'SUCCEEDED', attempts: 2 });
    // The newest that was stored when the attempt ended.
    expect(cluster.control.attempts[1]!.parentNumber).toBe(1);
    expect([2, 4]).toContain(cluster.control.attempts[1]!.parentRound);
    expect(cluster.run.spoiled.size).toBe(0);
  });
}

test('16: what is never finite spends the restart budget and ends as FAILED', async () => {
  const { result, cluster } = await playWith({ ...STREAMING, nonFinite: 'rollback' }, (cluster) => {
    cluster.mayFail = 'a gradient that is no number';
    cluster.network.count('spoil a gradient');
    spoil(5)(cluster);
    cluster.run.spoiled.clear = () => undefined;
  });
  expect(result.outcome).toBe('FAILED');
  expect(result.message).toContain('restart budget');
  expect(cluster.ends.get('budgetSpent')).toBe(1);
});

test('13: one worker ten times slower, with a backup replica: rounds do not wait, what is late is dropped and logged', async () => {
  const with4 = async (backupReplicas: number) => {
    const gradient = { ...STREAMING, backupReplicas };
    const slow = (cluster: Cluster): void => {
      cluster.workers[3]!.stepMs = [400, 600];
      cluster.network.count('slow a worker');
    };
    const wide = { ...shape, rounds: 40, examples: 40, globalBatch: 20, gradient };
    return await playWith(gradient, slow, { seed: 2, workers: 4, shape: wide });
  };
  const [waits, drops] = [await with4(0), await with4(1)];
  expect([waits.result.outcome, drops.result.outcome]).toEqual(['SUCCEEDED', 'SUCCEEDED']);
  expect(dropped(waits.cluster)).toBe(0);
  expect(dropped(drops.cluster)).toBeGreaterThan(100);
  expect(events(drops.cluster, 'replica.dropped').length).toBeGreaterThan(0);
  // Both have the 30 s after their end.
  expect(drops.result.virtualMs - 30_000).toBeLessThan((waits.result.virtualMs - 30_000) / 2);
});

test('backup replicas, a round of fewer examples than replicas: those without any do not make the round', async () => {
  const { result, cluster } = await playWith({ ...STREAMING, backupReplicas: 2 }, () => undefined, {
    shape: { ...shape, replicas: 5, examples: 11, globalBatch: 10, rounds: 8, gradient: { ...STREAMING, backupReplicas: 2 } },
  });
  expect(result.outcome).toBe('SUCCEEDED');
  expect(cluster.run.schedule.round(1).count).toBe(1);
  expect(cluster.reference.examplesIn(1)).toBe(1);
});
