/** Evaluation of models that take columns: on a prepared dataset, or on rows of a file that have the target among their columns. */
import {
  builtInTable,
  BUILT_IN_TABLES,
  cachedShardSource,
  DatasetError,
  decodeImage,
  openPreparedRows,
  Preprocessor,
  SeriesExamples,
  type RawRow,
  type ShardSource,
} from '@paceline/data';
import { SPLITS, type Column, type DatasetManifest, type Encoder, type FeaturePlan } from '@paceline/spec';
import { batchesOf, evaluateBatches, evaluateOnBuiltIn, type Evaluation, type ExampleBatch } from './evaluate.js';
import { ExportError } from './export-error.js';
import type { ModelFolder } from './model-folder.js';

/** Rows of a file as they are read. */
export interface RowsOfFile {
  readonly file: string;
  /** Number of the first of them in the file, from 1. */
  readonly firstRow: number;
  readonly rows: readonly RawRow[];
}

export type EvaluationData =
  | { readonly kind: 'built-in'; readonly name: string }
  | {
      readonly kind: 'prepared';
      readonly name: string;
      readonly manifest: DatasetManifest;
      readonly shards: ShardSource;
      /** Where shards are kept for the next time, so many bytes of them. */
      readonly cache: { readonly folder: string; readonly maxBytes?: number };
    }
  | { readonly kind: 'rows'; readonly rows: AsyncIterable<RowsOfFile> };

/** @throws ExportError MODEL_UNREADABLE, ROW_INVALID with file, row and column; DatasetError for shards; ModelError */
export async function evaluateModel(model: ModelFolder, data: EvaluationData): Promise<Evaluation> {
  const plan = model.preprocessing?.plan;
  if (data.kind === 'built-in' && !(plan && BUILT_IN_TABLES.includes(data.name))) {
    if (plan) throw new ExportError('MODEL_UNREADABLE', `the model takes columns, and ${data.name} has images`);
    return evaluateOnBuiltIn(model, data.name);
  }
  if (!plan)
    throw new ExportError('MODEL_UNREADABLE', 'the model does not say which columns it takes: it can be measured on built-in datasets');
  if (data.kind === 'rows') return evaluateBatches(model, plan.rowFormat, batchesOfRows(plan, data.rows));
  const { manifest, source } =
    data.kind === 'built-in' ? builtInTable(data.name) : { manifest: data.manifest, source: cachedShardSource(data.shards, data.cache) };
  const fitted = planOn(plan, manifest, data.name);
  const rows = openPreparedRows(manifest, fitted, source);
  try {
    return await evaluateBatches(model, plan.rowFormat, batchesOf(rows.evaluation, plan.rowFormat));
  } finally {
    await rows.close();
  }
}

/** The plan of a model on another dataset, or another version: the columns must be there, of the same kind and shape. @throws ExportError */
export function planOn(plan: FeaturePlan, manifest: DatasetManifest, name: string): FeaturePlan {
  const refuse = (why: string): never => {
    throw new ExportError('MODEL_UNREADABLE', why);
  };
  if (plan.span > 1 && !manifest.isOrdered)
    refuse(`the model takes windows of rows in their order, and those of ${name} were mixed when it was imported: import it in order`);
  const columns = new Map(manifest.columns.map((column) => [column.name, column]));
  const encoders = [...plan.inputs, ...plan.targets].flatMap((field) => field.encoders);
  if (plan.weight.column !== undefined)
    encoders.push({ kind: 'numbers', columns: [plan.weight.column], missing: [null], subtract: [0], divide: [1] });
  for (const encoder of encoders)
    for (const wanted of wantedBy(encoder)) {
      const found = columns.get(wanted.column);
      if (sortOf(found) !== sortOf(wanted))
        refuse(
          `the model takes the column ${JSON.stringify(wanted.column)} of ${sortOf(wanted)}, and in ${name} it ${found ? `is of ${sortOf(found)}` : 'is not there'}`,
        );
    }
  const counts = SPLITS.flatMap((split) => {
    const found = manifest.splits[split];
    const examples = found ? new SeriesExamples(found, plan.span).count : 0;
    return examples > 0 ? [[split, examples] as const] : [];
  });
  const has = counts.map(([split]) => split);
  const evaluateOn = has.includes(plan.evaluateOn)
    ? plan.evaluateOn
    : (['test', 'validation', 'train'] as const).find((split) => has.includes(split));
  return Object.assign({}, plan, { evaluateOn: evaluateOn ?? plan.evaluateOn, examples: Object.fromEntries(counts) });
}

/** Shape of one row of an array, of one element of a sequence. */
type Sort = { readonly kind: Column['kind']; readonly shape?: readonly number[] };

const sortOf = (sort: Sort | undefined): string | undefined =>
  sort && `kind ${sort.kind}${sort.shape ? ` and shape [${sort.shape.join(', ')}]` : ''}`;

function wantedBy(encoder: Encoder): (Sort & { readonly column: string })[] {
  switch (encoder.kind) {
    case 'numbers':
      return encoder.columns.map((column) => ({ column, kind: 'number' }));
    case 'one-hot':
    case 'index':
    case 'hash':
    case 'class':
      return [{ column: encoder.column, kind: 'category' }];
    case 'same':
      return [];
    case 'array':
    case 'sequence':
      return [{ column: encoder.column, kind: encoder.kind, shape: encoder.shape }];
    default:
      return [{ column: encoder.column, kind: encoder.kind }];
  }
}

/** With windows the last rows of a batch are the first of the next, as long as the file is the same. */
async function* batchesOfRows(plan: FeaturePlan, files: AsyncIterable<RowsOfFile>): AsyncGenerator<ExampleBatch, void, void> {
  const preprocessor = new Preprocessor(plan, decodeImage);
  let kept: { readonly file: string; readonly rows: readonly RawRow[] } = { file: '', rows: [] };
  for await (const { file, firstRow, rows } of files) {
    const before = kept.file === file ? kept.rows : [];
    const all = [...before, ...rows];
    const { examples, buffers } = await preprocessor.examples(all, { isEvaluation: true }).catch((error: unknown) => {
      throw placed(error, file, firstRow - before.length);
    });
    if (examples > 0) yield { count: examples, rows: buffers };
    kept = { file, rows: plan.span > 1 ? all.slice(-(plan.span - 1)) : [] };
  }
}

/** The fault of a row with its file. @param firstRow number of the first of the rows in the file, from 1 */
export function placed(error: unknown, file: string, firstRow: number): Error {
  if (error instanceof ExportError && error.code === 'ROW_INVALID')
    return new ExportError('ROW_INVALID', `${file}, ${error.message}`, undefined, { cause: error });
  if (!(error instanceof DatasetError) || !error.fault) return error as Error;
  const { row, column, detail } = error.fault;
  return new ExportError(
    'ROW_INVALID',
    `${file}, row ${firstRow + row}, column ${JSON.stringify(column.slice(0, 100))}: ${detail}`,
    undefined,
    {
      cause: error,
    },
  );
}
