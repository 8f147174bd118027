/** Rows for a trained model from files of this machine: tables by the names of their columns, images, texts; or plain lists of numbers. */
import { readFile, rm, stat } from 'node:fs/promises';
import path from 'node:path';
import type { IngestErrorCode, ReadRowsOptions } from '@paceline/ingest';
import type { InputRow, ModelFolder } from '@paceline/models';
import { UserError } from '@paceline/runtime/user-error';
import type { FeaturePlan } from '@paceline/spec';
import { openWorkFolder } from './work-folders.js';

export interface RowsOfFile<Row> {
  readonly file: string;
  readonly firstRow: number;
  readonly rows: readonly Row[];
}

type NamedRow = Readonly<Record<string, unknown>>;

const PLAIN_MAX_BYTES = 256 << 20;
/** Rows for a model have no flags that say more of them. */
const ADVICE: Partial<Record<IngestErrorCode, string>> = {
  FORMAT_UNKNOWN:
    'The ending of a file says its format: .csv, .tsv, .jsonl, .parquet, .npy and what else an import reads (docs/datasets.md).',
  VALUE_MISSING: 'The model was trained on rows that all have this value: write one.',
  VALUE_MISFIT: 'Write a value such as those that the model was trained on.',
};
const IMAGE = /\.(?:png|jpe?g|webp)$/i;

/** How tables are written; what is left out is as it was in the files that the dataset of the model was made of. */
export type TableFlags = Pick<ReadRowsOptions, 'decimal' | 'delimiter'>;

/** For predictions. @param cache where the readers keep what does not fit into memory @throws UserError */
export async function* inputRows(
  { preprocessing }: ModelFolder,
  sources: readonly string[],
  cache: string,
  flags: TableFlags,
): AsyncGenerator<RowsOfFile<InputRow>, void, void> {
  const { plannedColumns } = await import('@paceline/models');
  const plan = preprocessing?.plan;
  if (plan) return yield* columnRows({ sources, columns: plannedColumns(plan).inputs, ...dialectOf(plan, flags) }, cache);
  for (const source of sources) {
    const isTable = await stat(source).then(
      (found) => found.isFile() && !IMAGE.test(source),
      () => true,
    );
    if (isTable) yield { file: source, firstRow: 1, rows: await plainRows(source) };
    else yield* columnRows({ sources: [source], columns: { image: 'image' } }, cache);
  }
}

/** With the targets, for an evaluation. @throws UserError */
export async function* exampleRows(
  { preprocessing }: ModelFolder,
  source: string,
  cache: string,
  flags: TableFlags,
): AsyncGenerator<RowsOfFile<NamedRow>, void, void> {
  const { plannedColumns } = await import('@paceline/models');
  if (!preprocessing?.plan)
    throw new UserError('MODEL_UNREADABLE', 'The model does not say which columns it takes: it can be measured on built-in datasets.', {
      exit: 'usage',
    });
  const { inputs, targets } = plannedColumns(preprocessing.plan);
  // A folder of images calls the folder of each its label.
  const label = Object.keys(targets).length === 1 && (await isFolderOf(source)) ? Object.keys(targets)[0]! : undefined;
  const columns = Object.assign({}, inputs, targets);
  yield* columnRows({ sources: [source], columns, label, ...dialectOf(preprocessing.plan, flags) }, cache);
}

const dialectOf = ({ dialect }: FeaturePlan, { decimal, delimiter }: TableFlags): TableFlags => ({
  decimal: decimal ?? dialect?.decimal,
  delimiter: delimiter ?? dialect?.delimiter,
});

const isFolderOf = (source: string): Promise<boolean> =>
  stat(source).then(
    (found) => found.isDirectory(),
    () => false,
  );

async function* columnRows(options: Omit<ReadRowsOptions, 'workFolder'>, cache: string): AsyncGenerator<RowsOfFile<NamedRow>, void, void> {
  const { IngestError, readRows } = await import('@paceline/ingest');
  const workFolder = openWorkFolder(path.join(cache, 'rows'));
  try {
    yield* readRows(Object.assign({ workFolder }, options));
  } catch (error) {
    if (!(error instanceof IngestError)) throw error;
    throw (await import('./commands/data-import.js')).asUserError(error, ADVICE[error.code]);
  } finally {
    await rm(workFolder, { recursive: true, force: true });
  }
}

/** A JSON list of lists of numbers, or lines of numbers with commas between. @throws UserError INPUT_UNREADABLE */
async function plainRows(file: string): Promise<InputRow[]> {
  const refuse = (why: string, cause?: unknown): never => {
    throw new UserError('INPUT_UNREADABLE', `${file} ${why}.`, { exit: 'usage', cause });
  };
  const size = await stat(file).then(
    (found) => found.size,
    (error: NodeJS.ErrnoException) => refuse(`cannot be read (${error.code ?? error.message})`, error),
  );
  if (size > PLAIN_MAX_BYTES) refuse(`has ${size} bytes; at most ${PLAIN_MAX_BYTES} are read at once`);
  const text = await readFile(file, 'utf8');
  if (/\.json$/i.test(file)) {
    let value: unknown;
    try {
      value = JSON.parse(text);
    } catch (error) {
      refuse('is no JSON', error);
    }
    if (!Array.isArray(value) || value.length === 0) refuse('must hold a list of rows');
    return value as InputRow[];
  }
  const lines = text.split(/\r?\n/).filter((line) => line.trim() !== '');
  if (lines.length === 0) refuse('has no rows');
  return lines.map((line) => line.split(','));
}
