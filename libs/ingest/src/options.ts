/** Options of an import, and the bounds of everything that is read. */
import type { SplitName } from '@paceline/spec';
import { IngestError } from './ingest-error.js';
import { DECIMAL_SIGNS, type DecimalSign } from './number-text.js';
import { checkFractions, type Fractions } from './splits.js';

export const FORMATS = [
  'csv',
  'tsv',
  'jsonl',
  'idx',
  'images',
  'npy',
  'npz',
  'safetensors',
  'parquet',
  'webdataset',
  'tfrecord',
  'text',
  'module',
] as const;
export type FormatName = (typeof FORMATS)[number];

/** `ignore` leaves the column out. `image` in a table: the cell is the path of a file beside the table. */
export const COLUMN_TYPES = ['number', 'category', 'text', 'array', 'sequence', 'image', 'ignore'] as const;
export type ColumnType = (typeof COLUMN_TYPES)[number];

export const MISSING_POLICIES = ['refuse', 'drop', 'fill'] as const;
export type MissingPolicy = (typeof MISSING_POLICIES)[number];

/** A path, folder or glob, https://, s3:// or file://. */
export type Source = string | { readonly location: string; readonly split?: SplitName | undefined };

export interface ImportOptions {
  readonly sources: readonly Source[];
  /** Left out: by what the source looks like. */
  readonly format?: FormatName | undefined;
  /** The column that runs predict when they say nothing else. */
  readonly label?: string | undefined;
  /** Types of columns by name, for those that would be taken for something else. */
  readonly columns?: Readonly<Record<string, ColumnType>> | undefined;
  /** Fractions that add up to 1. With sources of several splits: of what is for training. */
  readonly split?: Fractions | undefined;
  /** The split cuts the rows in order: training first, then validation, then test. For time series. */
  readonly inOrder?: boolean | undefined;
  /** The files follow one another: windows go on from one into the next. Left out: each file is a series of its own. */
  readonly oneSeries?: boolean | undefined;
  /** Seed of the split. 0 when left out. */
  readonly seed?: number | undefined;
  readonly missing?: MissingPolicy | undefined;
  /** CSV: whether the first row names the columns. Left out: when it looks so. */
  readonly header?: boolean | undefined;
  /** CSV: one character. Left out: whichever of , ; tab | the first line has most of. */
  readonly delimiter?: string | undefined;
  /** The sign in front of decimals, where numbers are not written as programs do: the other one may then separate thousands. */
  readonly decimal?: DecimalSign | undefined;
  /** Text: what one row is. */
  readonly textBy?: 'line' | 'file' | undefined;
  /** Stop after so many rows of each source part. */
  readonly maxRows?: number | undefined;
  /** user: any path and address, on the user's own machine. server: see `access`. */
  readonly policy?: 'user' | 'server' | undefined;
  readonly access?: Access | undefined;
  readonly limits?: Partial<IngestLimits> | undefined;
}

/** What may be read with policy server. */
export interface Access {
  /** Host names; `*.example.org` for all below it. Left out: every public host. */
  readonly allowedHosts?: readonly string[] | undefined;
  /** file:// and paths must lie below one of these folders. Left out: none may be read. */
  readonly allowedFolders?: readonly string[] | undefined;
  /** s3:// may be read with the credentials of this process. */
  readonly allowS3?: boolean | undefined;
}

export interface IngestLimits {
  /** Most bytes of one source as it is stored. */
  readonly sourceBytes: number;
  /** Most bytes of one source unpacked. */
  readonly unpackedBytes: number;
  /** Unpacked bytes per stored byte, beyond the first 64 MiB. */
  readonly unpackRatio: number;
  /** One row, line, value or picture. */
  readonly rowBytes: number;
  /** Files of a folder, a glob or an archive. */
  readonly files: number;
  readonly requestDeadlineMs: number;
  /** How long a server may be silent. */
  readonly idleMs: number;
}

export const DEFAULT_LIMITS: IngestLimits = {
  sourceBytes: 2 ** 44,
  unpackedBytes: 2 ** 44,
  unpackRatio: 250,
  rowBytes: 32 << 20,
  files: 20_000_000,
  requestDeadlineMs: 6 * 3_600_000,
  idleMs: 60_000,
};

export interface CheckedOptions {
  readonly sources: readonly { readonly location: string; readonly split: SplitName | undefined }[];
  readonly format: FormatName | undefined;
  readonly label: string | undefined;
  readonly columns: ReadonlyMap<string, ColumnType>;
  readonly split: Fractions | undefined;
  readonly inOrder: boolean;
  readonly oneSeries: boolean;
  readonly seed: number;
  readonly missing: MissingPolicy;
  readonly header: boolean | undefined;
  readonly delimiter: string | undefined;
  readonly decimal: DecimalSign | undefined;
  readonly textBy: 'line' | 'file';
  readonly maxRows: number;
  readonly policy: 'user' | 'server';
  readonly access: Access;
  readonly limits: IngestLimits;
}

/** @throws IngestError OPTIONS_INVALID */
export function checkOptions(options: ImportOptions): CheckedOptions {
  const refuse = (detail: string): never => {
    throw new IngestError('OPTIONS_INVALID', detail);
  };
  if (options.sources.length === 0) refuse('There is no source.');
  if (options.split) checkFractions(options.split);
  const seed = options.seed ?? 0;
  if (!Number.isSafeInteger(seed) || seed < 0) refuse('The seed is not a whole number from 0 on.');
  if (options.delimiter !== undefined && options.delimiter.length !== 1) refuse('The delimiter is not one character.');
  if (options.decimal !== undefined && !DECIMAL_SIGNS.includes(options.decimal)) refuse('The decimal sign is neither . nor ,.');
  if (options.decimal !== undefined && options.decimal === options.delimiter) refuse('The decimal sign is the delimiter too.');
  const maxRows = options.maxRows ?? Infinity;
  if (maxRows !== Infinity && (!Number.isSafeInteger(maxRows) || maxRows < 1)) refuse('maxRows is not a whole number from 1 on.');
  const columns = new Map(Object.entries(options.columns ?? {}));
  for (const [name, type] of columns)
    if (!COLUMN_TYPES.includes(type)) refuse(`The type of column ${JSON.stringify(name)} is none of ${COLUMN_TYPES.join(', ')}.`);
  if (options.label !== undefined && columns.get(options.label) === 'ignore') refuse('The label is left out by its type ignore.');
  if (options.format !== undefined && !FORMATS.includes(options.format)) refuse(`The format is none of ${FORMATS.join(', ')}.`);
  return {
    sources: options.sources.map((source) =>
      typeof source === 'string' ? { location: source, split: undefined } : { location: source.location, split: source.split },
    ),
    format: options.format,
    label: options.label,
    columns,
    split: options.split,
    inOrder: options.inOrder ?? false,
    oneSeries: options.oneSeries ?? false,
    seed,
    missing: options.missing ?? 'refuse',
    header: options.header,
    delimiter: options.delimiter,
    decimal: options.decimal,
    textBy: options.textBy ?? 'line',
    maxRows,
    policy: options.policy ?? 'user',
    access: options.access ?? {},
    limits: Object.assign({}, DEFAULT_LIMITS, options.limits),
  };
}
