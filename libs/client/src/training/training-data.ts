/** Tensors or arrays of a program as a prepared dataset. Its name follows from its content, so that the same data is sent once. */
import { sha256 as sha256Of } from '#platform';
import type { DatasetsClient } from '../datasets.js';
import { sleep } from '../sleep.js';
import type { ReadModel } from './read-model.js';
import { tensorFile } from './tensor-file.js';
import type { TensorLike } from './tf-shapes.js';
import { TrainError } from './train-error.js';

/** A tensor, or numbers one row after the other. */
export type Rows = TensorLike | ArrayLike<number>;
export interface TensorData {
  readonly xs: Rows;
  readonly ys: Rows;
}

const MOST_BYTES = 1 << 30;
const DIGITS = 16;
const LOOK_EVERY_MS = 300;
const IMPORT_MS = 900_000;
const SHARES_TO = 1e6;

/** Uploads what the team does not have. @returns the name of the dataset @throws TrainError TRAIN_DATA, TRAIN_IMPORT_FAILED */
export async function datasetOf(
  datasets: DatasetsClient,
  { xs, ys }: TensorData,
  { inputShape, outputShape, classes }: ReadModel,
  validationSplit: number,
  signal: AbortSignal | undefined,
): Promise<string> {
  if (!(validationSplit >= 0 && validationSplit < 1))
    throw new TrainError('TRAIN_DATA', 'validationSplit', `must be from 0 to below 1, not ${validationSplit}`);
  const [x, y] = [await valuesOf('xs', xs), await valuesOf('ys', ys)];
  const rowLength = lengthOf(inputShape);
  const count = x.length / rowLength;
  if (!Number.isInteger(count) || count < 1)
    throw new TrainError('TRAIN_DATA', 'xs', `has ${x.length} numbers; the model takes rows of ${rowLength} ([${inputShape.join(', ')}])`);
  const targetShape = classes === undefined ? outputShape : outputShape.slice(0, -1);
  const targetLength = lengthOf(targetShape);
  if (y.length !== count * targetLength)
    throw new TrainError(
      'TRAIN_DATA',
      'ys',
      `has ${y.length} numbers; ${count} rows of xs need ${count * targetLength} ([${[count, ...targetShape].join(', ')}])`,
    );
  if ((x.length + y.length * (classes ?? 1)) * 4 > MOST_BYTES)
    throw new TrainError(
      'TRAIN_DATA',
      'xs and ys',
      `have more than ${MOST_BYTES} bytes: import them with paceline data import, and give the dataset's name`,
    );
  const targets = classes === undefined ? y : oneHot(y, classes);
  const atLeastOne = (shape: readonly number[]): readonly number[] => (shape.length === 0 ? [1] : shape);
  const file = tensorFile([
    { name: 'inputs', shape: [count, ...atLeastOne(inputShape)], values: x },
    { name: 'targets', shape: [count, ...atLeastOne(outputShape)], values: targets },
  ]);
  const split = Math.round(validationSplit * SHARES_TO);
  const name = `tensors-${(await sha256Of(file)).slice(0, DIGITS)}${split === 0 ? '' : `-${split}`}`;
  const there = await datasets.show(name);
  if (there?.version) return name;
  signal?.throwIfAborted();
  const { id } = await datasets.upload('tensors.safetensors', once(file), file.length, { signal });
  const options = {
    format: 'safetensors',
    columns: { inputs: 'array', targets: 'array' },
    label: 'targets',
    split: [1 - validationSplit, validationSplit, 0],
    inOrder: true,
  };
  signal?.throwIfAborted();
  const begun = await datasets.importByApi(name, { uploads: [id], options });
  await imported(datasets, begun.id, signal);
  return name;
}

async function imported(datasets: DatasetsClient, id: string, signal: AbortSignal | undefined): Promise<void> {
  for (const until = Date.now() + IMPORT_MS; ;) {
    const found = await datasets.importState(id);
    if (found?.state === 'READY') return;
    if (!found || found.state === 'FAILED' || Date.now() > until)
      throw new TrainError('TRAIN_IMPORT_FAILED', 'xs and ys', found?.reason ?? `the import ${id} has not ended after ${IMPORT_MS} ms`);
    signal?.throwIfAborted();
    await sleep(LOOK_EVERY_MS, signal);
  }
}

async function valuesOf(what: string, rows: Rows): Promise<Float32Array> {
  const given: unknown = typeof (rows as Partial<TensorLike>).data === 'function' ? await (rows as TensorLike).data() : rows;
  if (!ArrayBuffer.isView(given) && !Array.isArray(given))
    throw new TrainError('TRAIN_DATA', what, 'must be a tensor or an array of numbers');
  const values = Float32Array.from(given as unknown as ArrayLike<number>);
  const bad = values.findIndex((value) => !Number.isFinite(value));
  if (bad >= 0) throw new TrainError('TRAIN_DATA', what, `number ${bad} is ${values[bad]}: only finite numbers can be trained on`);
  return values;
}

function oneHot(classesOfRows: Float32Array, classes: number): Float32Array {
  const rows = new Float32Array(classesOfRows.length * classes);
  for (const [row, value] of classesOfRows.entries()) {
    if (!Number.isInteger(value) || value < 0 || value >= classes)
      throw new TrainError('TRAIN_DATA', 'ys', `number ${row} is ${value}, and the model has the classes 0 to ${classes - 1}`);
    rows[row * classes + value] = 1;
  }
  return rows;
}

const lengthOf = (shape: readonly number[]): number => shape.reduce((product, size) => product * size, 1);

async function* once(file: Uint8Array): AsyncGenerator<Uint8Array> {
  yield file;
}
