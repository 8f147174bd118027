/** Plan two-phase on real processes: clipped gradients, backup replicas, gradients that are not finite. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { DataPlane, pace, type RunView } from '@paceline/testkit';
import type { RunSpecInput } from '@paceline/spec';

const base: RunSpecInput = {
  model: 'mlp',
  globalBatch: 64,
  replicas: 4,
  length: { rounds: 30 },
  seed: 5,
  optimizer: { name: 'sgd', learningRate: 0.1 },
};
const withServers = (servers: number, more: Partial<RunSpecInput> = {}): RunSpecInput => ({
  ...base,
  strategy: { kind: 'parameter-server', servers },
  ...more,
});

let plane: DataPlane;
beforeAll(async () => void (plane = await DataPlane.start({ servers: 2, workers: 2 })));
afterAll(() => plane?.stop());

const ledger = (run: RunView): { examples: number; dropped: number } => {
  const ranges = run.entries.filter((entry) => entry.kind === 'ledger');
  return {
    examples: ranges.reduce((sum, { examples }) => sum + examples, 0),
    dropped: ranges.reduce((sum, { dropped }) => sum + (dropped ?? 0), 0),
  };
};

test('clipped by norm and global norm: the same bits on one and two servers', async () => {
  const sha = async (input: RunSpecInput): Promise<string> => (await plane.finished(await plane.train(input))).weightsSha256;
  const clipped = { gradient: { clipNorm: 0.5, clipGlobalNorm: 0.6 } };
  const [one, two] = [await sha(withServers(1, clipped)), await sha(withServers(2, clipped))];
  expect(two).toBe(one);
  expect(await sha(withServers(2, { gradient: { clipGlobalNorm: 900 } })), 'a bound that is never reached').not.toBe(one);
});

test('NaN and infinity: fail ends the run with its cause, skip leaves the rounds out and the weights stay finite', async () => {
  const wild: Partial<RunSpecInput> = { optimizer: { name: 'sgd', learningRate: 1000 }, length: { rounds: 60 } };
  const failing = await plane.train(withServers(2, wild));
  const failed = await plane.event(failing, 'run.failed');
  expect(failed.data, failed.message).toMatchObject({ cause: 'NON_FINITE' });
  const skipping = await plane.train(withServers(2, { ...wild, gradient: { nonFinite: 'skip' } }));
  const result = await plane.finished(skipping);
  expect(skipping.entries.some((entry) => entry.kind === 'event' && entry.type === 'round.skipped')).toBe(true);
  const { examples, dropped } = ledger(skipping);
  expect(dropped).toBeGreaterThan(0);
  expect(examples + dropped).toBe(60 * 64);
  expect(result.trainedExamples).toBe(examples);
});

test('a worker ten times slower holds up a synchronous run, and with backup replicas is left out and logged', async () => {
  const slow = pace(() => [plane.workers[0]!.child.pid!], 0.1);
  try {
    const run = await plane.train({
      ...base,
      replicas: 4,
      length: { rounds: 60 },
      strategy: { kind: 'parameter-server', servers: 1, backupReplicas: 2 },
    });
    await plane.finished(run);
    const { examples, dropped } = ledger(run);
    expect(examples + dropped).toBe(60 * 64);
    expect(dropped).toBeGreaterThan(0);
    expect(run.entries.some((entry) => entry.kind === 'event' && entry.type === 'replica.dropped')).toBe(true);
    expect(slow.stops).toBeGreaterThan(0);
  } finally {
    slow.end();
  }
});
