/**
 * Rows as they are stored, column by column: float32 for numbers, codes for categories, a list for the rest. A number is then no object, and a
 * column of a block is one loop.
 */
import type { ArrayCell, ImageCell } from './cell.js';

/** A cell as it is stored: a float32 or a code, a text, a picture, the numbers of an array. */
export type StoredCell = number | string | ImageCell | ArrayCell;
export type StoredColumn = Float32Array | Int32Array | StoredCell[];

export interface StoredRows {
  readonly count: number;
  readonly columns: readonly StoredColumn[];
}

/** Some rows of a block, by their numbers. */
export const rowsFrom = (from: number, to: number): Int32Array => Int32Array.from({ length: to - from }, (_, i) => from + i);

/** The rows of `a`, then those of `b`, which has the same columns. */
export function joined(a: StoredRows, b: StoredRows): StoredRows {
  const columns = a.columns.map((first, c) => {
    const second = b.columns[c]!;
    if (Array.isArray(first)) return [...first, ...(second as StoredCell[])];
    const both = first instanceof Float32Array ? new Float32Array(a.count + b.count) : new Int32Array(a.count + b.count);
    both.set(first);
    both.set(second as Float32Array | Int32Array, a.count);
    return both;
  });
  return { count: a.count + b.count, columns };
}

/** The rows [from, count) in memory of their own. */
export const rowsAfter = ({ count, columns }: StoredRows, from: number): StoredRows => ({
  count: count - from,
  columns: columns.map((column) => column.slice(from)),
});
