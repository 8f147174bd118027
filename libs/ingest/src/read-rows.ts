/**
 * Rows of files for a model that is trained: read by the readers of the import, and made of the types that the model takes. So what an import makes of
 * a cell (blanks around a category, `n/a` for a number) is made of it here too.
 */
import { readFile } from 'node:fs/promises';
import { flattened, isArrayCell, isImageCell, type Cell, type RowBatch } from './cell.js';
import { parseJson } from './formats/exact-json.js';
import { IMAGE_NAME } from './formats/images.js';
import { NameTable, rowOf } from './formats/plain-cells.js';
import { withPictures } from './formats/table-pictures.js';
import { isMissingNumber } from './infer.js';
import { IngestError, type Place } from './ingest-error.js';
import { DECIMAL_HINT, isNumberInAnyStyle, plainNumber, type DecimalSign } from './number-text.js';
import { checkOptions, type ColumnType, type ImportOptions } from './options.js';
import { planParts } from './plan.js';

export interface ReadRows {
  readonly file: string;
  /** Number of the first row in its file, from 1; a header is not counted. */
  readonly firstRow: number;
  /** Null is a missing value. */
  readonly rows: readonly Readonly<Record<string, unknown>>[];
}

export interface ReadRowsOptions extends Pick<ImportOptions, 'format' | 'delimiter' | 'decimal' | 'header'> {
  /** Files, folders and globs. */
  readonly sources: readonly string[];
  /** Columns that the model takes; all others are left out. */
  readonly columns: Readonly<Record<string, Exclude<ColumnType, 'ignore'>>>;
  /** Columns that may be missing, as they are not read when the model predicts. */
  readonly optional?: readonly string[] | undefined;
  /** What the class of a folder of pictures goes into. */
  readonly label?: string | undefined;
  /** A folder that exists, for archives. */
  readonly workFolder: string;
}

const JSON_MAX_BYTES = 256 << 20;

/** @throws IngestError with file, row and column */
export async function* readRows(options: ReadRowsOptions): AsyncGenerator<ReadRows, void, void> {
  const { columns, optional = [] } = options;
  const wanted = Object.entries(columns);
  for (const source of options.sources) {
    const isOneJson = /\.json$/i.test(source) && options.format === undefined;
    for await (const batch of importedBatches(source, options, isOneJson)) {
      const names = namesIn(batch, wanted, options.label);
      const lacking = wanted.find(([name]) => !names.includes(name) && !optional.includes(name));
      if (lacking)
        throw new IngestError('COLUMN_UNKNOWN', `The model takes this column; the file has ${batch.names.slice(0, 20).join(', ')}.`, {
          file: batch.file,
          column: lacking[0],
        });
      const rows: Record<string, unknown>[] = [];
      for (const [i, cells] of batch.rows.entries()) {
        const row: Record<string, unknown> = {};
        for (const [name, type] of wanted) {
          const at = names.indexOf(name);
          if (at >= 0)
            row[name] = valueOf(cells[at], { type, decimal: options.decimal }, { file: batch.file, row: batch.firstRow + i, column: name });
        }
        rows.push(row);
      }
      yield { file: batch.file, firstRow: batch.firstRow, rows };
    }
  }
}

/** Pictures and texts that stand alone have a name of the format's; they go into the one column of their type that the model takes. */
function namesIn({ names }: RowBatch, wanted: readonly (readonly [string, ColumnType])[], label: string | undefined): readonly string[] {
  return names.map((name) => {
    if (wanted.some(([known]) => known === name)) return name;
    if (name === 'label' && label !== undefined) return label;
    const alike = wanted.filter(([, type]) => type === name);
    return (name === 'image' || name === 'text') && alike.length === 1 ? alike[0]![0] : name;
  });
}

async function* importedBatches(
  source: string,
  { format, delimiter, decimal, header, columns, workFolder }: ReadRowsOptions,
  isOneJson: boolean,
): AsyncGenerator<RowBatch> {
  const isTable = !IMAGE_NAME.test(source);
  const options = checkOptions({
    sources: [source],
    // Tables name pictures by their paths.
    columns: Object.fromEntries(Object.entries(columns).filter(([, type]) => type === 'image')),
    format,
    delimiter,
    decimal,
    header: header ?? (isTable && Object.keys(columns).length > 0 ? true : undefined),
  });
  const closing: (() => Promise<void>)[] = [];
  const traffic = { bytesRead: 0, bytesTotal: 0 as number | undefined };
  const surroundings = { signal: undefined, workFolder, traffic, atClose: (close: () => Promise<void>) => void closing.push(close) };
  try {
    const list = isOneJson ? await jsonArray(source) : undefined;
    if (list) return yield* withPictures(list, { path: source }, Object.assign({ options }, surroundings));
    const parts = await planParts(options, surroundings);
    for (const part of parts) yield* part.read();
  } finally {
    for (const close of closing.reverse()) await close();
  }
}

/** A file that holds one list of objects. @returns undefined for JSON Lines */
async function jsonArray(file: string): Promise<RowBatch[] | undefined> {
  const bytes = await readFile(file).catch(() => undefined); // the reader of JSON Lines says what is wrong with it
  if (
    !bytes ||
    !/^\s*\[/.test(
      bytes
        .subarray(0, 1000)
        .toString('utf8')
        .replace(/^\ufeff/, ''),
    )
  )
    return undefined;
  if (bytes.length > JSON_MAX_BYTES)
    throw new IngestError('SOURCE_TOO_LARGE', `A list of more than ${JSON_MAX_BYTES} bytes; write one object per line (.jsonl).`, { file });
  let list: unknown;
  try {
    list = parseJson(bytes.toString('utf8').replace(/^\ufeff/, ''));
  } catch (error) {
    throw new IngestError('FORMAT_MALFORMED', `The file is not JSON (${(error as Error).message}).`, { file }, { cause: error });
  }
  const table = new NameTable();
  const rows = (list as unknown[]).map((value, i) => {
    const place = { file, row: i + 1 };
    if (typeof value !== 'object' || value === null || Array.isArray(value))
      throw new IngestError('FORMAT_MALFORMED', 'The entry is no JSON object, such as {"a": 1}.', place);
    return rowOf(value, table, place);
  });
  return [{ names: table.refresh(), rows, file, firstRow: 1 }];
}

/** @throws IngestError VALUE_MISFIT */
function valueOf(given: Cell, { type, decimal }: { type: ColumnType; decimal: DecimalSign | undefined }, place: Place): unknown {
  const cell = type === 'number' || type === 'category' || type === 'text' ? flattened(given) : given;
  if (cell === null || cell === undefined || Number.isNaN(cell)) return null;
  if (type === 'image') return isImageCell(cell) ? cell.bytes : misfit(type, place);
  if (isArrayCell(cell)) return type === 'array' || type === 'sequence' ? cell.values : misfit(type, place);
  if (type === 'array' || type === 'sequence' || isImageCell(cell)) return misfit(type, place);
  if (type === 'text') return String(cell);
  if (type === 'category') return String(cell).trim() === '' ? null : String(cell).trim();
  if (typeof cell !== 'string') return Number(cell);
  if (isMissingNumber(cell)) return null;
  const value = Number(decimal === undefined ? cell : plainNumber(cell, decimal));
  if (!Number.isFinite(Math.fround(value)))
    throw new IngestError(
      'VALUE_MISFIT',
      `${JSON.stringify(cell.slice(0, 40))} is no number; the column is of type number.${isNumberInAnyStyle(cell) ? ` ${DECIMAL_HINT}.` : ''}`,
      place,
    );
  return value;
}

function misfit(type: ColumnType, place: Place): never {
  throw new IngestError('VALUE_MISFIT', `The value is of another kind; the column is of type ${type}.`, place);
}
