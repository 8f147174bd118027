/**
 * Formats that hold one array per column: each array is read as a stream of rows, and several of the same length stand side by side. Nothing is
 * allocated from a shape: a row is bounded, and rows are read as they come.
 */
import { BATCH_ROWS, type Cell, type Part, type RowBatch } from '../cell.js';
import { IngestError } from '../ingest-error.js';
import type { ByteReader } from '../sources/byte-reader.js';
import { splitInName, type SourceFile } from '../sources/source-file.js';
import type { SplitName } from '@paceline/spec';
import { elementsOf, scalarsOf, type ElementType } from './elements.js';

/** Reads the cells of rows one after the other. */
export interface ArrayColumn {
  readonly name: string;
  readonly file: string;
  readonly rows: number;
  /** @param count at most what is left */
  read(count: number): Promise<Cell[]>;
  /** Checks that nothing follows, when all rows are read. */
  finish(): Promise<void>;
  close(): Promise<void>;
}

/** @throws IngestError FORMAT_MALFORMED, ROW_TOO_LONG: `shape` came from a file */
export function checkedRow(
  shape: readonly number[],
  elementBytes: number,
  rowBytesMax: number,
  file: string,
): { rows: number; elements: number } {
  const malformed = (why: string): never => {
    throw new IngestError('FORMAT_MALFORMED', `Its shape [${shape.slice(0, 8).join(', ')}] ${why}.`, { file });
  };
  if (shape.length === 0) malformed('has no rows: the first dimension counts them');
  if (shape.length > 6) malformed('has more than 6 dimensions');
  if (!shape.every((size) => Number.isSafeInteger(size) && size >= 0)) malformed('is not valid');
  const [rows, ...inner] = shape as [number, ...number[]];
  let elements = 1;
  for (const size of inner) {
    if (size === 0) malformed('has a dimension of size 0');
    elements *= size;
    if (elements * elementBytes > rowBytesMax)
      throw new IngestError('ROW_TOO_LONG', `One row of its shape [${shape.join(', ')}] has more than ${rowBytesMax} bytes.`, { file });
  }
  if (!Number.isSafeInteger(rows * elements * elementBytes)) malformed('is too large');
  return { rows, elements };
}

const READ_BYTES = 1 << 20;

/** Rows of one element type, row-major, from where the reader stands. */
export function elementColumn(
  name: string,
  file: string,
  reader: ByteReader,
  type: ElementType,
  shape: readonly number[],
  rowBytesMax: number,
  /** What a row of this shape is to be: [28, 28] as [28, 28, 1]. */
  cellShape: readonly number[] = shape.slice(1),
): ArrayColumn {
  const { rows, elements } = checkedRow(shape, type.bytes, rowBytesMax, file);
  const rowBytes = elements * type.bytes;
  const isScalar = cellShape.length === 0;
  const cells = (bytes: Uint8Array): Cell[] => {
    if (isScalar) return scalarsOf(bytes, type);
    const values = elementsOf(bytes, type);
    return Array.from({ length: values.length / elements }, (_, i) => ({
      kind: 'array' as const,
      values: values.subarray(i * elements, (i + 1) * elements),
      shape: cellShape,
    }));
  };
  return {
    name,
    file,
    rows,
    async read(count) {
      const found: Cell[] = [];
      while (found.length < count) {
        const take = Math.min(count - found.length, Math.max(1, Math.floor(READ_BYTES / rowBytes)));
        for (const cell of cells(await reader.read(take * rowBytes))) found.push(cell);
      }
      return found;
    },
    async finish() {
      if (!(await reader.isAtEnd())) throw new IngestError('FORMAT_MALFORMED', `There are bytes after its ${rows} rows.`, { file });
    },
    close: () => reader.close(),
  };
}

/** Columns side by side. @throws IngestError FORMAT_MALFORMED when one has more rows than another */
export async function* readColumns(open: () => Promise<readonly ArrayColumn[]>): AsyncGenerator<RowBatch> {
  const columns = await open();
  try {
    const [first] = columns;
    if (!first) return;
    for (const { name, rows, file } of columns)
      if (rows !== first.rows)
        throw new IngestError(
          'FORMAT_MALFORMED',
          `${name} has ${rows} rows, ${first.name} has ${first.rows}: they are no columns of one table.`,
          { file },
        );
    const names = columns.map(({ name }) => name);
    for (let row = 0; row < first.rows;) {
      const count = Math.min(BATCH_ROWS, first.rows - row);
      const cells: Cell[][] = [];
      for (const column of columns) cells.push(await column.read(count));
      yield { names, rows: Array.from({ length: count }, (_, i) => cells.map((column) => column[i])), file: first.file, firstRow: row + 1 };
      row += count;
    }
    for (const column of columns) await column.finish();
  } finally {
    for (const column of columns) await column.close();
  }
}

/** `x_train` is the column x of the training split; so is train-x. */
function columnInName(stem: string): { column: string; split: SplitName | undefined } {
  const split = splitInName(stem);
  if (split === undefined) return { column: stem, split };
  const words = stem.split(/[^A-Za-z0-9]+/).filter((word) => splitInName(word) === undefined && word !== '');
  return { column: words.join('_') || stem, split };
}

/** Sources of one column each, by splits in their order: the caller's word for a source goes before its name. */
export function columnsBySplit<T>(
  items: readonly T[],
  nameOf: (item: T) => string,
  saidOf: (item: T) => SplitName | undefined,
): (readonly [SplitName | undefined, { readonly item: T; readonly column: string }[]])[] {
  const bySplit = new Map<SplitName | undefined, { item: T; column: string }[]>();
  for (const item of items) {
    const { column, split } = columnInName(nameOf(item));
    const key = saidOf(item) ?? split;
    const columns = bySplit.get(key);
    if (columns) columns.push({ item, column });
    else bySplit.set(key, [{ item, column }]);
  }
  return inSplitOrder([...bySplit]);
}

/** Files of one column each: those of one split stand side by side. */
export function sideBySide(
  files: readonly SourceFile[],
  nameOf: (file: SourceFile) => string,
  open: (file: SourceFile, column: string) => Promise<ArrayColumn>,
  label?: string,
): Part[] {
  return columnsBySplit(files, nameOf, (file) => file.split).map(([split, group]) => ({
    split,
    label: group.some(({ column }) => column === label) ? label : undefined,
    read: () =>
      readColumns(() =>
        opened(
          group.map(
            ({ item, column }) =>
              () =>
                open(item, column),
          ),
        ),
      ),
  }));
}

/** All or none are open. */
export async function opened(opens: readonly (() => Promise<ArrayColumn>)[]): Promise<ArrayColumn[]> {
  const columns: ArrayColumn[] = [];
  try {
    for (const open of opens) columns.push(await open());
    return columns;
  } catch (error) {
    for (const column of columns) await column.close();
    throw error;
  }
}

const ORDER: readonly (SplitName | undefined)[] = [undefined, 'train', 'validation', 'test'];
/** The types of columns follow from the first part: that of the training. */
export const inSplitOrder = <T>(groups: readonly (readonly [SplitName | undefined, T])[]): (readonly [SplitName | undefined, T])[] =>
  groups.toSorted(([a], [b]) => ORDER.indexOf(a) - ORDER.indexOf(b));
