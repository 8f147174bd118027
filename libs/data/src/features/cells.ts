/**
 * Cells of some rows, column by column: what encoders read, whether the rows come from shards or from a person. The same cells make the
 * same bits.
 */
import { DatasetError } from '../dataset-error.js';

export type FixedCells = Float32Array | Int32Array | Uint8Array;

export interface Cells {
  readonly rows: number;
  /** For messages: what the rows are of. */
  readonly subject: string;
  /** Numbers (NaN is missing), codes of categories (-1 is missing) and arrays, row after row. */
  fixed(column: string): FixedCells;
  /** One piece per row: bytes of a text (UTF-8) or of an image file, elements of a sequence. */
  pieces(column: string): readonly FixedCells[];
  /** What the codes of a category stand for. The same list each time, so that what follows from it is computed once. */
  vocabulary(column: string): readonly string[];
}

/** A row that cannot become an example. */
export const badCell = (cells: Cells, row: number, column: string, message: string): DatasetError =>
  rowError(cells.subject, row, column, message);

export const rowError = (subject: string, row: number, column: string, detail: string): DatasetError =>
  new DatasetError('DATASET_ROW_INVALID', subject, `row ${row}, column ${JSON.stringify(column.slice(0, 100))}: ${detail}`, undefined, {
    row,
    column,
    detail,
  });
