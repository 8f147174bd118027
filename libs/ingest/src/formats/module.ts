/**
 * Rows that a module of the user's makes: its default export is an array, a generator, an async iterable, a tf.data pipeline, or a function that
 * gives one. With exports named train, validation and test each is a split. The module runs here, so only on the user's own machine.
 */
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { SPLITS } from '@paceline/spec';
import { BATCH_ROWS, type Cell, type Part, type RowBatch } from '../cell.js';
import { IngestError } from '../ingest-error.js';
import type { SourceContext, SourceFile } from '../sources/source-file.js';
import { NameTable } from './plain-cells.js';
import { recordRow } from './records.js';

interface TensorLike {
  readonly shape: readonly number[];
  dataSync(): Float32Array | Int32Array | Uint8Array | string[];
  dispose?(): void;
}

export async function moduleParts(files: readonly SourceFile[], { options }: SourceContext): Promise<Part[]> {
  const parts: Part[] = [];
  for (const file of files) {
    if (options.policy !== 'user' || file.path === undefined)
      throw new IngestError('SOURCE_FORBIDDEN', 'A module runs on the machine of its owner only, from a file there.', { file: file.name });
    const url = pathToFileURL(path.resolve(file.path)).href;
    const found = await thrown(file.name, () => import(url) as Promise<Record<string, unknown>>);
    const splits = SPLITS.filter((split) => found[split] !== undefined);
    for (const split of splits) parts.push({ split, read: () => readModule(found[split], file.name) });
    if (splits.length > 0) continue;
    if (found['default'] === undefined)
      throw new IngestError('UNSUPPORTED', 'The module exports neither default nor train, validation and test.', { file: file.name });
    parts.push({ split: file.split, read: () => readModule(found['default'], file.name) });
  }
  return parts;
}

async function* readModule(exported: unknown, file: string): AsyncGenerator<RowBatch> {
  const table = new NameTable();
  const rows = await iteratorOf(exported, file);
  let batch: Cell[][] = [];
  let firstRow = 1;
  try {
    for (;;) {
      const next = await thrown(file, async () => await rows.next());
      if (next.done === true) break;
      const place = { file, row: firstRow + batch.length };
      const { value } = next;
      if (typeof value !== 'object' || value === null || Array.isArray(value) || ArrayBuffer.isView(value))
        throw new IngestError('VALUE_MISFIT', 'A row is an object, such as {x: [1, 2], y: 3}.', place);
      batch.push(await recordRow(withoutTensors(value), table, place));
      if (batch.length < BATCH_ROWS) continue;
      yield { names: table.refresh(), rows: batch, file, firstRow };
      firstRow += batch.length;
      batch = [];
    }
    if (batch.length > 0) yield { names: table.refresh(), rows: batch, file, firstRow };
  } finally {
    await rows.return?.();
  }
}

type Rows = Pick<AsyncIterator<unknown>, 'next' | 'return'> | Pick<Iterator<unknown>, 'next' | 'return'>;

async function iteratorOf(exported: unknown, file: string): Promise<Rows> {
  const given =
    typeof exported === 'function' ? await thrown(file, async () => (await (exported as () => unknown)()) as unknown) : exported;
  if (typeof given === 'object' && given !== null) {
    if (Symbol.asyncIterator in given) return (given as AsyncIterable<unknown>)[Symbol.asyncIterator]();
    if (Symbol.iterator in given) return (given as Iterable<unknown>)[Symbol.iterator]();
    // A pipeline of tf.data has neither, but a method that gives an iterator of its own.
    const { iterator } = given as { iterator?: () => Promise<Rows> };
    if (typeof iterator === 'function') {
      const rows = await thrown(file, async () => await iterator.call(given));
      return { next: () => rows.next() as Promise<IteratorResult<unknown>> };
    }
  }
  throw new IngestError('UNSUPPORTED', 'The export is no array, generator, iterable or tf.data pipeline.', { file });
}

/** What the user's own code throws. */
async function thrown<T>(file: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error);
    throw new IngestError('SOURCE_UNREADABLE', `The module failed: ${message}.`, { file }, { cause: error });
  }
}

function withoutTensors(record: object): object {
  return Object.fromEntries(Object.entries(record).map(([name, value]) => [name, isTensor(value) ? cellOfTensor(value) : plainOf(value)]));
}

const plainOf = (value: unknown): unknown =>
  typeof value === 'object' && value !== null && Object.getPrototypeOf(value) === Object.prototype && !('image' in value)
    ? withoutTensors(value)
    : value;

const isTensor = (value: unknown): value is TensorLike =>
  typeof value === 'object' &&
  value !== null &&
  Array.isArray((value as { shape?: unknown }).shape) &&
  typeof (value as { dataSync?: unknown }).dataSync === 'function';

function cellOfTensor(tensor: TensorLike): unknown {
  const values = tensor.dataSync();
  const shape = [...tensor.shape];
  tensor.dispose?.();
  if (Array.isArray(values)) return shape.length === 0 ? values[0] : values;
  return shape.length === 0 ? values[0] : { kind: 'array', values, shape };
}
