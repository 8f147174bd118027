/** Modes async and ssp on real processes: every example once, whoever dies, and weights that have learnt something. */
import { afterEach, expect, test } from 'vitest';
import type { RunSpecInput } from '@paceline/spec';
import { DataPlane, type RunView } from '@paceline/testkit';

let plane: DataPlane | undefined;
afterEach(async () => {
  await plane?.stop();
  plane = undefined;
});

const ROUNDS = 200;
const spec = (strategy: object): RunSpecInput => ({
  model: 'mlp',
  globalBatch: 256,
  replicas: 4,
  length: { rounds: ROUNDS },
  seed: 7,
  optimizer: { name: 'sgd', learningRate: 0.1 },
  strategy: { kind: 'parameter-server', servers: 2, ...strategy },
});

const eventsOf = (run: RunView, type: string) =>
  run.entries.flatMap((entry) => (entry.kind === 'event' && entry.type === type ? [entry.data] : []));

/** The ledger has every round once, with all its examples; every update has a staleness. */
function expectCompleteLedger(run: RunView): void {
  let next = 0;
  let examples = 0;
  for (const entry of run.entries) {
    if (entry.kind !== 'ledger') continue;
    expect(entry.fromRound).toBe(next);
    expect(entry.dropped).toBeUndefined();
    next = entry.toRound + 1;
    examples += entry.examples;
  }
  expect([next, examples]).toEqual([ROUNDS, ROUNDS * 256]);
  const metrics = run.entries.filter((entry) => entry.kind === 'metric');
  expect(metrics.reduce((sum, { rounds }) => sum + rounds, 0)).toBe(ROUNDS);
  const updates = metrics.flatMap(({ stalenessCounts }) => stalenessCounts ?? []).reduce((sum, count) => sum + count, 0);
  expect(updates).toBe(ROUNDS * 4);
}

test.each([{ mode: 'async' }, { mode: 'async', stalenessScaledRate: true, delayCompensation: 0.04 }, { mode: 'ssp', stalenessBound: 2 }])(
  '%o: a worker is killed, another comes later; the ledger is complete and the weights have learnt',
  async (strategy) => {
    plane = await DataPlane.start({ servers: 2, workers: 2 });
    const run = await plane.train(spec(strategy));
    await plane.until(run, 'both workers', 60_000, () => run.state?.seats.length === 2 && run.state.round >= 20);
    await plane.workers[0]!.kill('SIGKILL');
    await plane.until(run, 'the loss', 30_000, () => eventsOf(run, 'worker.away').length > 0);
    await plane.addWorker();
    const result = await plane.finished(run, 180_000);
    expectCompleteLedger(run);
    expect(result).toMatchObject({ rounds: ROUNDS, trainedExamples: ROUNDS * 256 });
    expect(result.values['accuracy']).toBeGreaterThan(0.88);
    expect(eventsOf(run, 'work-item.reissued').length).toBeGreaterThan(0);
  },
  300_000,
);
