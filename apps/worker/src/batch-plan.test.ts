import { createHash } from 'node:crypto';
import { openDataset, type Dataset } from '@paceline/data';
import { parseRunSpec, type RunSpecInput } from '@paceline/spec';
import { beforeAll, describe, expect, it } from 'vitest';
import { BatchPlan, fillBatch } from './batch-plan.js';

const PIXELS = 784;
let dataset: Dataset;
beforeAll(async () => void (dataset = await openDataset('mnist')));

function planOf(input: RunSpecInput): BatchPlan {
  const parsed = parseRunSpec(input);
  if (!parsed.ok) throw new Error(JSON.stringify(parsed.issues));
  return new BatchPlan({ spec: parsed.spec, examples: dataset.train.count, exampleLength: PIXELS });
}

/** The pictures of a round by the index of their example, whatever replicas there are. */
function picturesOf(input: RunSpecInput, round: number): Map<number, Float32Array> {
  const plan = planOf(input);
  const pictures = new Map<number, Float32Array>();
  for (let replica = 0; replica < plan.init.spec.replicas; replica++) {
    const [x, y] = [new Float32Array(plan.maxExamples * PIXELS), new Int32Array(plan.maxExamples)];
    fillBatch(plan, dataset.train, round, replica, x, y);
    plan.rows(round, replica).forEach((row, i) => pictures.set(row, x.slice(i * PIXELS, (i + 1) * PIXELS)));
  }
  return pictures;
}

/** The picture of an example in the epoch that begins with a round. */
function pictureIn(input: RunSpecInput, firstRound: number, row: number): Float32Array {
  const plan = planOf(input);
  const replicas = Array.from({ length: plan.init.spec.replicas }, (_, replica) => replica);
  let round = firstRound;
  while (!replicas.some((replica) => plan.rows(round, replica).includes(row))) round++;
  return picturesOf(input, round).get(row)!;
}

describe('the augmentation of a batch', () => {
  const plain: RunSpecInput = { globalBatch: 500, replicas: 4, length: { epochs: 2 }, seed: 5 };
  const augmented: RunSpecInput = { ...plain, augmentation: { shiftPixels: 2, rotateDegrees: 10 } };

  it('changes the pictures and not which examples there are', () => {
    const [without, withIt] = [picturesOf(plain, 3), picturesOf(augmented, 3)];
    expect([...withIt.keys()]).toEqual([...without.keys()]);
    const same = [...withIt].filter(
      ([row, picture]) => Buffer.compare(Buffer.from(picture.buffer), Buffer.from(without.get(row)!.buffer)) === 0,
    );
    expect(same).toHaveLength(0);
  });

  it('is a matter of seed, epoch and example: neither replicas nor the size of rounds change it, another epoch or seed does', () => {
    const pictures = picturesOf(augmented, 0);
    expect(picturesOf({ ...augmented, replicas: 3 }, 0)).toEqual(pictures);
    const larger = picturesOf({ ...augmented, globalBatch: 1000 }, 0);
    expect(larger.size).toBe(1000);
    for (const [row, picture] of pictures) expect(larger.get(row)).toEqual(picture);
    const [row, picture] = [...pictures][0]!;
    expect(pictureIn(augmented, 0, row)).toEqual(picture);
    expect(pictureIn(augmented, 120, row)).not.toEqual(picture);
    expect(pictureIn({ ...augmented, seed: 6 }, 0, row)).not.toEqual(picture);
  });

  it('has the same bits on every machine and in every release', () => {
    const pictures = picturesOf({ ...augmented, augmentation: { shiftPixels: 2, rotateDegrees: 15, zoom: 0.1, mirror: true } }, 0);
    const hash = createHash('sha256');
    for (const picture of pictures.values()) hash.update(new Uint8Array(picture.buffer));
    expect(hash.digest('hex')).toBe('6bdc6358bd672e7bdd330f8f1b7c0575150cd6b987df27fea662010eb2e4e5ed');
  });
});
