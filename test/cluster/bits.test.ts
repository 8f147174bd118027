/**
 * The promise of equal bits, on real processes: whatever the fleet looks like and whatever happens to it, the weights are
 * those of the independent reference in test/numerics/reference.ts.
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { DataPlane, type RunView } from '@paceline/testkit';
import type { RunSpecInput } from '@paceline/spec';
import { parseRunSpec } from '@paceline/spec';
import { trainReference } from '../numerics/reference.js';

const base: RunSpecInput = { model: 'mlp', globalBatch: 60, replicas: 4, length: { rounds: 24 }, seed: 7 };

const references = new Map<string, Promise<string>>();
function reference(input: RunSpecInput): Promise<string> {
  const parsed = parseRunSpec(input);
  if (!parsed.ok) throw new Error(JSON.stringify(parsed.issues));
  const { strategy, ...rest } = parsed.spec;
  const key = JSON.stringify([rest, strategy.accumulate]);
  const known = references.get(key) ?? trainReference(parsed.spec).then((result) => result.weightsSha256);
  references.set(key, known);
  return known;
}

const withServers = (input: RunSpecInput, servers: number, accumulate = 1): RunSpecInput => ({
  ...input,
  strategy: { kind: 'parameter-server', mode: 'sync', servers, accumulate },
});

/** Every example of the run exactly once in the ledger: ranges without gap or overlap, counted from (round, replica) rows. */
function expectLedger(run: RunView, rounds: number, examples: number): void {
  const ranges = run.entries.filter((e) => e.kind === 'ledger');
  let next = 0;
  for (const range of ranges) {
    expect(range.fromRound).toBe(next);
    next = range.toRound + 1;
  }
  expect(next).toBe(rounds);
  expect(ranges.reduce((sum, range) => sum + range.examples, 0)).toBe(examples);
}

describe('over unix', () => {
  let plane: DataPlane;
  beforeAll(async () => void (plane = await DataPlane.start({ servers: 2, workers: 1, transport: 'unix' })));
  afterAll(() => plane?.stop());

  test('1 worker, 1 and 2 servers', async () => {
    for (const servers of [1, 2]) {
      const run = await plane.train(withServers(base, servers));
      const result = await plane.finished(run);
      expect(result.weightsSha256).toBe(await reference(base));
      expectLedger(run, 24, 24 * 60);
    }
  });

  test('2 workers; dropout and batch normalisation; accumulation; augmentation', async () => {
    await plane.addWorker();
    const augmented: RunSpecInput = { ...base, augmentation: { shiftPixels: 2, rotateDegrees: 15, zoom: 0.1, mirror: true } };
    for (const input of [withServers({ ...base, model: 'mlp-dropout' }, 2), withServers(base, 1, 3), withServers(augmented, 1, 3)]) {
      const result = await plane.finished(await plane.train(input));
      expect(result.weightsSha256).toBe(await reference(input));
    }
  });

  test('3 workers; R = 3 and 5; another seed differs', async () => {
    await plane.addWorker();
    expect(await reference({ ...base, replicas: 3, seed: 8 })).not.toBe(await reference({ ...base, replicas: 3 }));
    for (const input of [
      { ...base, replicas: 3, seed: 8 },
      { ...base, model: 'mlp-dropout' as const, replicas: 5 },
    ]) {
      const result = await plane.finished(await plane.train(withServers(input, 2)));
      expect(result.weightsSha256).toBe(await reference(input));
    }
  });

  test('3 workers; encoded gradients, with batch normalisation and with error feedback', async () => {
    while (plane.workers.length < 3) await plane.addWorker();
    const codecs: NonNullable<RunSpecInput['codec']>[] = [
      { kind: 'int4' },
      { kind: 'random-k', density: 0.1 },
      { kind: 'top-k', density: 0.02, errorFeedback: true },
    ];
    for (const codec of codecs) {
      const input: RunSpecInput = { ...base, model: codec.errorFeedback ? 'mlp' : 'mlp-dropout', codec, length: { rounds: 6 } };
      // With error feedback the bits need replicas that stay where they are.
      const strategy = { kind: 'parameter-server', mode: 'sync', servers: 2, startWorkers: 3 } as const;
      const result = await plane.finished(await plane.train({ ...input, strategy }));
      expect([codec, result.weightsSha256]).toEqual([codec, await reference(input)]);
    }
  });
});

describe('over tcp', () => {
  let plane: DataPlane;
  beforeAll(async () => void (plane = await DataPlane.start({ servers: 2, workers: 2, transport: 'tcp' })));
  afterAll(() => plane?.stop());

  test('2 workers, 2 servers; dropout and batch normalisation', async () => {
    const input = { ...base, model: 'mlp-dropout' as const };
    const result = await plane.finished(await plane.train(withServers(input, 2)));
    expect(result.weightsSha256).toBe(await reference(input));
  });

  test('all workers gone: the run waits, says for what, and goes on with a new one', async () => {
    const long: RunSpecInput = { ...base, globalBatch: 512, length: { rounds: 120 } };
    const run = await plane.train(withServers(long, 1));
    await plane.until(run, 'round 10', 60_000, () => (run.state?.round ?? 0) >= 10);
    await Promise.all(plane.workers.map((worker) => worker.kill('SIGKILL')));
    expect(run.state!.round, 'they were killed in the middle').toBeLessThan(120);
    await plane.until(run, 'the run to say what it waits for', 10_000, () => run.state?.waitingFor === 'a worker to take a step task');
    await plane.addWorker();
    const result = await plane.finished(run);
    expect(result.weightsSha256).toBe(await reference(long));
  });
});
