import { createHash } from 'node:crypto';
import { openDataset, rowBuffers, type Dataset } from '@paceline/data';
import { parseRunSpec, type RunSpecInput } from '@paceline/spec';
import { beforeAll, describe, expect, it } from 'vitest';
import { BatchPlan, fillBatch } from './batch-plan.js';

const PIXELS = 784;
let dataset: Dataset;
beforeAll(async () => void (dataset = await openDataset('mnist')));

function planOf(input: RunSpecInput): BatchPlan {
  const parsed = parseRunSpec(input);
  if (!parsed.ok) throw new Error(JSON.stringify(parsed.issues));
  return new BatchPlan({ spec: parsed.spec, examples: dataset.train.count, format: dataset.format });
}

/** The pictures of a round by the index of their example, whatever replicas there are. */
async function observedRunsOf(input: RunSpecInput, round: number): Promise<Map<number, Float32Array>> {
  const plan = planOf(input);
  const pictures = new Map<number, Float32Array>();
  for (let replica = 0; replica < plan.init.spec.replicas; replica++) {
    const rows = rowBuffers(dataset.format, plan.maxExamples);
    await fillBatch(plan, dataset.train, { round, replica }, rows);
    plan.rows(round, replica).forEach((row, i) => pictures.set(row, rows.inputs[0]!.slice(i * PIXELS, (i + 1) * PIXELS)));
  }
  return pictures;
}

/** The picture of an example in the epoch that begins with a round. */
async function observedIn(input: RunSpecInput, firstRound: number, row: number): Promise<Float32Array> {
  const plan = planOf(input);
  const replicas = Array.from({ length: plan.init.spec.replicas }, (_, replica) => replica);
  let round = firstRound;
  while (!replicas.some((replica) => plan.rows(round, replica).includes(row))) round++;
  return (await observedRunsOf(input, round)).get(row)!;
}

it('examples that are held out are never trained on, and those left are all, in their order where nothing is shuffled', () => {
  const planFor = (shuffle: boolean): BatchPlan => {
    const parsed = parseRunSpec({ globalBatch: 1000, replicas: 3, shuffle, length: { epochs: 1 } });
    if (!parsed.ok) throw new Error(JSON.stringify(parsed.issues));
    return new BatchPlan({ spec: parsed.spec, examples: 50_000, heldOutExamples: 10_000, format: dataset.format });
  };
  const seenBy = (plan: BatchPlan): number[] =>
    Array.from({ length: plan.totalRounds }, (_, round) => [0, 1, 2].flatMap((replica) => [...plan.rows(round, replica)])).flat();
  const [plain, shuffled] = [planFor(false), planFor(true)];
  const seen = seenBy(plain);
  const heldOut = [...plain.heldOutRows(0, 10_000)];
  expect(new Set([...seen, ...heldOut]).size).toBe(60_000);
  expect(seen).toEqual(seenBy(shuffled).sort((a, b) => a - b));
  expect([...shuffled.heldOutRows(500, 502)]).toEqual(heldOut.slice(500, 502));
});

it('without shuffling a replica gets the rows of the dataset in their order, the same in every epoch', () => {
  const plan = planOf({ globalBatch: 100, replicas: 3, shuffle: false, length: { epochs: 2 } });
  expect([...plan.rows(7, 1)]).toEqual(Array.from({ length: 33 }, (_, i) => 733 + i));
  expect(plan.rows(600 + 7, 1)).toEqual(plan.rows(7, 1));
  expect([...planOf({ globalBatch: 100, replicas: 3 }).rows(7, 1)]).not.toEqual([...plan.rows(7, 1)]);
});

it('local steps cut the rows of a replica, each example once in an epoch, whose last round has fewer steps', () => {
  const strategy = { kind: 'local-update', localSteps: 7 } as const;
  const plan = planOf({ globalBatch: 1000, replicas: 3, shuffle: false, strategy, length: { epochs: 1 } });
  expect([plan.totalRounds, plan.localSteps(0), plan.localSteps(8)]).toEqual([9, 7, 4]);
  const seen: number[] = [];
  for (let round = 0; round < plan.totalRounds; round++)
    for (let replica = 0; replica < 3; replica++)
      for (let step = 0; step < plan.localSteps(round); step++) {
        const rows = plan.rows(round, replica, step);
        expect(rows.length).toBe(plan.count(round, replica, step));
        expect(rows.length).toBeLessThanOrEqual(plan.maxExamples);
        seen.push(...rows);
      }
  expect(seen).toEqual(Array.from({ length: 60_000 }, (_, i) => i));
});

it('with tpu a round has the rows of as many rounds of one step, also at the end of an epoch', () => {
  const input = { globalBatch: 1000, replicas: 3, length: { epochs: 2 } };
  const single = planOf(input);
  const plan = planOf({ ...input, strategy: { kind: 'tpu', stepsPerExecution: 7 } });
  expect([plan.totalRounds, plan.localSteps(0), plan.localSteps(8), plan.maxExamples]).toEqual([18, 7, 4, 334]);
  let number = 0;
  for (let round = 0; round < plan.totalRounds; round++)
    for (let step = 0; step < plan.localSteps(round); step++, number++)
      for (let replica = 0; replica < 3; replica++) expect(plan.rows(round, replica, step)).toEqual(single.rows(number, replica));
  expect(number).toBe(single.totalRounds);
});

describe('the augmentation of a batch', () => {
  const plain: RunSpecInput = { globalBatch: 500, replicas: 4, length: { epochs: 2 }, seed: 5 };
  const augmented: RunSpecInput = { ...plain, augmentation: { shiftPixels: 2, rotateDegrees: 10 } };

  it('changes the pictures and not which examples there are', async () => {
    const [without, withIt] = [await observedRunsOf(plain, 3), await observedRunsOf(augmented, 3)];
    expect([...withIt.keys()]).toEqual([...without.keys()]);
    const same = [...withIt].filter(
      ([row, picture]) => Buffer.compare(Buffer.from(picture.buffer), Buffer.from(without.get(row)!.buffer)) === 0,
    );
    expect(same).toHaveLength(0);
  });

  it('is a matter of seed, epoch and example: neither replicas nor the size of rounds change it, another epoch or seed does', async () => {
    const pictures = await observedRunsOf(augmented, 0);
    expect(await observedRunsOf({ ...augmented, replicas: 3 }, 0)).toEqual(pictures);
    const larger = await observedRunsOf({ ...augmented, globalBatch: 1000 }, 0);
    expect(larger.size).toBe(1000);
    for (const [row, picture] of pictures) expect(larger.get(row)).toEqual(picture);
    const [row, picture] = [...pictures][0]!;
    expect(await observedIn(augmented, 0, row)).toEqual(picture);
    expect(await observedIn(augmented, 120, row)).not.toEqual(picture);
    expect(await observedIn({ ...augmented, seed: 6 }, 0, row)).not.toEqual(picture);
  });

  it('has the same bits on every machine and in every release', async () => {
    const pictures = await observedRunsOf(
      { ...augmented, augmentation: { shiftPixels: 2, rotateDegrees: 15, zoom: 0.1, mirror: true } },
      0,
    );
    const hash = createHash('sha256');
    for (const picture of pictures.values()) hash.update(new Uint8Array(picture.buffer));
    expect(hash.digest('hex')).toBe('6bdc6358bd672e7bdd330f8f1b7c0575150cd6b987df27fea662010eb2e4e5ed');
  });
});
