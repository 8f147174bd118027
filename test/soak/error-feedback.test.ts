/**
 * A run with error feedback whose workers die, pause, come and leave, on real processes: what a killed worker kept is lost and told, every example counts once,
 * and the loss at the end is that of undisturbed runs. Seeds differ by more than that: three of them say how much.
 */
import { RESIDUAL_LOST, residualLossSchema } from '@paceline/protocol';
import type { RunSpecInput } from '@paceline/spec';
import { DataPlane, pace, type RunView } from '@paceline/testkit';
import { afterAll, beforeAll, expect, test } from 'vitest';

const [ROUNDS, BATCH, WORKERS] = [150, 128, 3];
const SPEC: RunSpecInput = {
  model: 'mlp',
  globalBatch: BATCH,
  replicas: 4,
  length: { rounds: ROUNDS },
  optimizer: { name: 'momentum', learningRate: 0.05, momentum: 0.9 },
  codec: { kind: 'top-k', density: 0.01, errorFeedback: true },
  strategy: { kind: 'parameter-server', mode: 'sync', servers: 2, startWorkers: WORKERS },
};

let plane: DataPlane;
beforeAll(async () => void (plane = await DataPlane.start({ servers: 2, workers: WORKERS })));
afterAll(() => plane?.stop());

const roundOf = (run: RunView): number => run.state?.round ?? 0;
const typesOf = (run: RunView): string[] => run.entries.flatMap((entry) => (entry.kind === 'event' ? [entry.type] : []));
const joinedIn = (run: RunView) =>
  run.entries.flatMap((entry) => (entry.kind === 'event' && entry.type === 'worker.joined' ? [entry.data['workerId']] : []));
const lossesOf = (run: RunView) =>
  run.entries.flatMap((entry) => (entry.kind === 'event' && entry.type === RESIDUAL_LOST ? [residualLossSchema.parse(entry.data)] : []));

/** The loss on the test split, of a run in whose ledger every example is once. */
async function finalLoss(run: RunView): Promise<number> {
  const { values } = await plane.finished(run, 300_000);
  let next = 0;
  let examples = 0;
  for (const range of run.entries) {
    if (range.kind !== 'ledger') continue;
    expect(range.fromRound).toBe(next);
    next = range.toRound + 1;
    examples += range.examples;
  }
  expect([next, examples]).toEqual([ROUNDS, ROUNDS * BATCH]);
  return values!['loss']!;
}

test('a worker that is killed, one that pauses, one that comes and one that leaves: the loss is that of undisturbed runs', async () => {
  const undisturbed: number[] = [];
  for (const seed of [1, 2, 3]) {
    const run = await plane.train({ ...SPEC, seed });
    undisturbed.push(await finalLoss(run));
    expect(lossesOf(run)).toEqual([]);
  }
  const run = await plane.train({ ...SPEC, seed: 1 });
  const seats = (): number => run.state?.seats.length ?? 0;
  await plane.until(run, 'all workers', 60_000, () => seats() === WORKERS);
  // It would be over before anything happens. Who comes later is not held up.
  const first = [...plane.workers];
  const slow = pace(() => first.map(({ child }) => child.pid!), 0.1);
  try {
    await plane.until(run, 'round 20', 120_000, () => roundOf(run) >= 20);
    await plane.workers.splice(1, 1)[0]!.kill('SIGKILL');
    await plane.until(run, 'what was lost', 60_000, () => lossesOf(run).length > 0);
    const { id } = (await plane.addWorker()).ready;
    await plane.until(run, 'another worker', 60_000, () => joinedIn(run).includes(id));
  } finally {
    slow.end();
  }
  const slower = pace(() => plane.workers.slice(1).map(({ child }) => child.pid!), 0.05);
  try {
    const [paused] = plane.workers;
    paused!.child.kill('SIGSTOP');
    const before = roundOf(run);
    await new Promise((resolve) => setTimeout(resolve, 2_000));
    paused!.child.kill('SIGCONT');
    await plane.until(run, 'rounds after the pause', 60_000, () => roundOf(run) >= before + 5);
    await plane.workers.pop()!.kill('SIGTERM');
    expect(roundOf(run), 'all of it was in the middle').toBeLessThan(ROUNDS);
  } finally {
    slower.end();
  }
  const disturbed = await finalLoss(run);
  expect(typesOf(run)).toEqual(expect.arrayContaining(['worker.lost', 'worker.left', 'worker.joined', RESIDUAL_LOST]));
  expect(lossesOf(run).map(({ cause }) => cause)).toContain('moved');
  // Of four runs alike one lies outside of the three others as often as not: not by as much as these differ.
  const [least, most] = [Math.min(...undisturbed), Math.max(...undisturbed)];
  const told = `${disturbed} beside ${undisturbed.join(', ')}`;
  expect(disturbed, told).toBeLessThan(most + (most - least));
  expect(disturbed, told).toBeGreaterThan(least - (most - least));
});
