/**
 * A matrix as the product of two thin factors, by one step of a power iteration (Vogels, Karimireddy and Jaggi 2019, arXiv 1905.13727): P = M · Q with
 * orthonormal columns, then Q = Mᵀ · P. Columns of P and Q lie one after the other. Sums are float64, and taken in one order: the same bits on every machine.
 * The products are kernels. What is here takes a few hundredths of their time, and most of it is sums whose order leaves nothing to do at once.
 */
import type { LowRankShape } from '@paceline/kernels';
import { codecKey } from './codec.js';

/** As in PyTorch's hook: a matrix whose P and Q have more than half of its elements is sent as it is. */
const LEAST_COMPRESSION = 2;

/** Where chunks and variables lie: a `Layout` of libs/learning. */
export interface Shapes {
  readonly variables: readonly { readonly shape: readonly number[]; readonly offset: number; readonly length: number }[];
  readonly chunks: readonly { readonly offset: number; readonly length: number }[];
}

/** A part of a chunk: elements of one variable, as rows of so many columns. Of its first row `head` elements are missing, and count as 0. */
export interface Piece extends LowRankShape {
  readonly at: number;
  /** 0: as it is. */
  readonly rank: number;
}

export function pieceOf(at: number, length: number, columns: number, head: number, wanted: number): Piece {
  const rows = Math.ceil((head + length) / columns);
  const rank = Math.min(wanted, rows, columns);
  const isShorter = columns > 1 && rows > 1 && (rows + columns) * rank * LEAST_COMPRESSION <= length;
  return { at, length, columns, head, rows, rank: isShorter ? rank : 0 };
}

/** The last dimension is that of the columns: outputs, of dense layers and convolutions. */
export function piecesOf({ variables, chunks }: Shapes, index: number, rank: number): Piece[] {
  const chunk = chunks[index];
  if (!chunk) return [];
  const end = chunk.offset + chunk.length;
  return variables.flatMap(({ shape, offset, length }) => {
    const [from, to] = [Math.max(offset, chunk.offset), Math.min(offset + length, end)];
    if (from >= to) return [];
    const columns = shape.length < 2 ? 1 : shape.at(-1)!;
    return [pieceOf(from - chunk.offset, to - from, columns, (from - offset) % columns, rank)];
  });
}

/** Q of the round before; where there is none, or a column of zeros, numbers that follow from the key. */
export function begin(q: Float32Array, columns: number, rank: number, before: Float32Array | undefined, key: number): void {
  for (let k = 0; k < rank; k++) {
    const column = before?.subarray(k * columns, (k + 1) * columns);
    if (column?.some((value) => value !== 0)) q.set(column, k * columns);
    else for (let i = 0; i < columns; i++) q[k * columns + i] = codecKey(key, k, i, 3) / 2 ** 31 - 1;
  }
}

/**
 * Each column to a largest magnitude below 1 / its length, by a power of two, so that M · Q has none that is larger than those of M. Q has the scale of a
 * gradient, and its square may overflow or vanish. No digit changes, so what is scaled afterwards has the same bits.
 */
export function shrink(columns: Float32Array, length: number, rank: number): void {
  for (let k = 0; k < rank; k++) {
    const column = columns.subarray(k * length, (k + 1) * length);
    const largest = column.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
    if (!(largest > 0 && largest < Infinity)) continue;
    const exponent = -1 - Math.floor(Math.log2(largest)) - Math.ceil(Math.log2(length));
    for (let i = 0; i < length; i++) column[i] = column[i]! * 2 ** exponent;
  }
}

/** Each column to a largest magnitude of 1, so that squares neither overflow nor vanish. */
export function scale(columns: Float32Array, length: number, rank: number): void {
  for (let k = 0; k < rank; k++) scaled(columns.subarray(k * length, (k + 1) * length));
}

function scaled(column: Float32Array): void {
  let largest = 0;
  for (const value of column) largest = Math.max(largest, Math.abs(value));
  if (largest > 0) for (let i = 0; i < column.length; i++) column[i] = column[i]! / largest;
}

/** What a column has left of itself when it lies in the span of those before it: rounding errors, which are no direction. */
const LEAST_REST = 1e-6;

/** Modified Gram-Schmidt. A column that is a sum of those before it becomes 0. */
export function orthonormal(p: Float32Array, rows: number, rank: number): void {
  for (let k = 0; k < rank; k++) {
    const column = p.subarray(k * rows, (k + 1) * rows);
    const whole = dot(column, column);
    for (let j = 0; j < k; j++) {
      const other = p.subarray(j * rows, (j + 1) * rows);
      const along = dot(column, other);
      for (let i = 0; i < rows; i++) column[i] = column[i]! - along * other[i]!;
    }
    const rest = dot(column, column);
    if (rest <= whole * LEAST_REST ** 2) column.fill(0);
    else {
      const norm = Math.sqrt(rest);
      for (let i = 0; i < rows; i++) column[i] = column[i]! / norm;
    }
  }
}

function dot(a: Float32Array, b: Float32Array): number {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += a[i]! * b[i]!;
  return sum;
}
