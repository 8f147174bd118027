import { copyFile, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Dataset, RowBuffers } from './contract.js';
import { datasetInfo, openDataset } from './dataset.js';
import { mnistFolder } from './mnist.js';

const into = (x: Float32Array, y: Float32Array): RowBuffers => ({ inputs: [x], targets: [y], weights: undefined });

let mnist: Dataset;
beforeAll(async () => {
  mnist = await openDataset('mnist');
});

describe('MNIST', () => {
  it('has the counts that its info says, and the known first labels', () => {
    expect([mnist.train.count, mnist.evaluation.count]).toEqual([mnist.info.trainExamples, mnist.info.evalExamples]);
    const first = Int32Array.from({ length: 10 }, (_, i) => i);
    const x = new Float32Array(10 * 784);
    const y = new Float32Array(10);
    mnist.train.gather(first, 0, 10, into(x, y));
    expect([...y]).toEqual([5, 0, 4, 1, 9, 2, 1, 3, 1, 4]);
    mnist.evaluation.gather(first, 0, 10, into(x, y));
    expect([...y]).toEqual([7, 2, 1, 0, 4, 1, 4, 9, 5, 9]);
  });

  it('delivers pixel / 255 as float32, for any rows in any order, into longer buffers too', async () => {
    const raw = await readFile(path.join(mnistFolder(), 'train-images-idx3-ubyte'));
    const labels = await readFile(path.join(mnistFolder(), 'train-labels-idx1-ubyte'));
    const indices = Int32Array.of(9, 59_999, 0, 31_234, 0);
    const x = new Float32Array(4 * 784 + 5).fill(-1);
    const y = new Float32Array(6).fill(-1);
    mnist.train.gather(indices, 1, 5, into(x, y));
    [59_999, 0, 31_234, 0].forEach((index, row) => {
      expect(y[row]).toBe(labels[8 + index]);
      for (let p = 0; p < 784; p++) {
        const wanted = Math.fround(raw[16 + index * 784 + p]! / 255);
        if (x[row * 784 + p] !== wanted) expect.fail(`row ${row}, pixel ${p}: ${x[row * 784 + p]} instead of ${wanted}`);
      }
    });
    expect([...x.subarray(4 * 784), ...y.subarray(4)]).toEqual([-1, -1, -1, -1, -1, -1, -1]);
  });

  it.each([
    ['an example past the end', Int32Array.of(60_000), 0, 1, 784, 1],
    ['a negative example', Int32Array.of(-1), 0, 1, 784, 1],
    ['rows past the indices', Int32Array.of(1), 0, 2, 2 * 784, 2],
    ['a range turned round', Int32Array.of(1, 2), 2, 1, 784, 1],
    ['a buffer too small', Int32Array.of(1, 2), 0, 2, 784, 2],
  ])('refuses %s', (_, indices, from, to, floats, labels) => {
    expect(() => mnist.train.gather(indices, from, to, into(new Float32Array(floats), new Float32Array(labels)))).toThrow(RangeError);
  });
});

describe('damaged files', () => {
  let folder: string;
  const names = ['train-images-idx3-ubyte', 'train-labels-idx1-ubyte', 't10k-images-idx3-ubyte', 't10k-labels-idx1-ubyte'];
  beforeAll(async () => {
    folder = await mkdtemp(path.join(tmpdir(), 'paceline-data-'));
    await Promise.all(names.map((name) => copyFile(path.join(mnistFolder(), name), path.join(folder, name))));
  });
  afterAll(() => rm(folder, { recursive: true }));

  async function withDamaged(name: string, damage: (bytes: Buffer) => Buffer): Promise<unknown> {
    const whole = await readFile(path.join(mnistFolder(), name));
    await writeFile(path.join(folder, name), damage(Buffer.from(whole)));
    try {
      return await openDataset('mnist', { folder }).catch((error: unknown) => error);
    } finally {
      await writeFile(path.join(folder, name), whole);
    }
  }

  it('refuses a cut file, other counts of images and labels, and labels out of range', async () => {
    expect(await withDamaged('train-images-idx3-ubyte', (b) => b.subarray(0, -1))).toMatchObject({
      code: 'DATASET_MALFORMED',
      subject: 'train-images-idx3-ubyte',
    });
    const fewer = (b: Buffer): Buffer => {
      b.writeUInt32BE(9_999, 4);
      return b.subarray(0, -1);
    };
    expect(await withDamaged('t10k-labels-idx1-ubyte', fewer)).toMatchObject({
      code: 'DATASET_MALFORMED',
      message: expect.stringContaining('10000 images, but 9999 labels'),
    });
    const label = (b: Buffer): Buffer => {
      b[8 + 77] = 10;
      return b;
    };
    expect(await withDamaged('train-labels-idx1-ubyte', label)).toMatchObject({
      message: expect.stringContaining('label 10 of example 77'),
    });
    expect(await openDataset('mnist', { folder })).toBeDefined();
  });

  it('says which file is missing', async () => {
    expect(await openDataset('mnist', { folder: path.join(folder, 'nowhere') }).catch((e: unknown) => e)).toMatchObject({
      code: 'DATASET_UNREADABLE',
    });
  });
});

it('refuses an unknown dataset and names the known one', () => {
  expect(() => datasetInfo('imagenet')).toThrow(
    expect.objectContaining({ code: 'DATASET_UNKNOWN', message: expect.stringContaining('mnist') }),
  );
});
