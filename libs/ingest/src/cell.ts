/**
 * What a reader of a format gives: rows of cells in batches. A reader knows no types of columns, splits or shards; it says what stands in the
 * file, and where.
 */
import type { SplitName } from '@paceline/spec';
import type { ColumnType } from './options.js';

/** Numbers with a shape: an element of an array or sequence column. Untyped numbers become float32. */
export interface ArrayCell {
  readonly kind: 'array';
  readonly values: Float32Array | Int32Array | Uint8Array | Float64Array | readonly number[];
  readonly shape: readonly number[];
  /** The format does not tell a number from a list of one: whichever the other rows of the column are. */
  readonly isFlat?: boolean;
  /** The value of a list of one that no number holds. */
  readonly exact?: bigint | undefined;
}

/** An encoded picture, its header read. */
export interface ImageCell {
  readonly kind: 'image';
  readonly bytes: Uint8Array;
  readonly height: number;
  readonly width: number;
  readonly channels: number;
}

/** null and undefined are missing values; so is NaN. A string may still be a number, when the format has no types. */
export type Cell = string | number | boolean | bigint | null | undefined | ArrayCell | ImageCell;

export interface RowBatch {
  /** The columns in the order of the cells. A later batch of the same part may have more at the end; the array is then another one. */
  readonly names: readonly string[];
  readonly rows: Cell[][];
  readonly file: string;
  /** Number of the first row of the batch in its file, from 1. */
  readonly firstRow: number;
}

/** Some rows of the source in order, all of one split when the source says which. */
export interface Part {
  readonly split: SplitName | undefined;
  /** The column that is the label when the options name none: the class of a folder of pictures. */
  readonly label?: string | undefined;
  /** Types that the format knows, where the options say nothing. */
  readonly types?: Readonly<Record<string, ColumnType>> | undefined;
  read(): AsyncIterable<RowBatch>;
}

export const isArrayCell = (cell: Cell): cell is ArrayCell => typeof cell === 'object' && cell !== null && cell.kind === 'array';
export const isImageCell = (cell: Cell): cell is ImageCell => typeof cell === 'object' && cell !== null && cell.kind === 'image';

/** The number of a list of one, in a column of numbers. Undefined for an empty list. */
export function flattened(cell: Cell): Cell {
  return isArrayCell(cell) && cell.isFlat === true && cell.values.length <= 1 ? (cell.exact ?? cell.values[0]) : cell;
}

/** Readers give batches of about so many rows. */
export const BATCH_ROWS = 256;
