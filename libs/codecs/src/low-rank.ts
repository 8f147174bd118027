/**
 * A matrix as the product of two thin factors, by one step of a power iteration (Vogels, Karimireddy and Jaggi 2019, arXiv 1905.13727): P = M · Q with
 * orthonormal columns, then Q = Mᵀ · P. Columns of P and Q lie one after the other. Sums are float64, and taken in one order: the same bits on every machine.
 */
import { codecKey } from './codec.js';

/** As in PyTorch's hook: a matrix whose P and Q have more than half of its elements is sent as it is. */
const LEAST_COMPRESSION = 2;

/** Where chunks and variables lie: a `Layout` of libs/learning. */
export interface Shapes {
  readonly variables: readonly { readonly shape: readonly number[]; readonly offset: number; readonly length: number }[];
  readonly chunks: readonly { readonly offset: number; readonly length: number }[];
}

/** A part of a chunk: elements of one variable, as rows of so many columns. Of its first row `head` elements are missing, and count as 0. */
export interface Piece {
  readonly at: number;
  readonly length: number;
  readonly columns: number;
  readonly head: number;
  readonly rows: number;
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

/** P = M · Q. */
export function times(matrix: Float32Array, { rows, columns, rank, head, length }: Piece, q: Float32Array, p: Float32Array): void {
  for (let k = 0; k < rank; k++) {
    for (let row = 0; row < rows; row++) {
      const [begin, end] = [Math.max(0, row * columns - head), Math.min(length, (row + 1) * columns - head)];
      const shift = k * columns + head - row * columns;
      let sum = 0;
      for (let i = begin; i < end; i++) sum += matrix[i]! * q[i + shift]!;
      p[k * rows + row] = sum;
    }
  }
}

/** Q = Mᵀ · P, over the length of each column of P, which rounding may have changed. */
export function transposedTimes(
  matrix: Float32Array,
  { rows, columns, rank, head, length }: Piece,
  p: Float32Array,
  q: Float32Array,
): void {
  const sums = new Float64Array(columns);
  for (let k = 0; k < rank; k++) {
    sums.fill(0);
    let square = 0;
    for (let row = 0; row < rows; row++) {
      const value = p[k * rows + row]!;
      square += value * value;
      if (value === 0) continue;
      const [begin, end] = [Math.max(0, row * columns - head), Math.min(length, (row + 1) * columns - head)];
      const shift = head - row * columns;
      for (let i = begin; i < end; i++) sums[i + shift]! += matrix[i]! * value;
    }
    for (let i = 0; i < columns; i++) q[k * columns + i] = square > 0 ? sums[i]! / square : 0;
  }
}

/** P · Qᵀ, in place of what is there or added to it. */
export function product(
  { rows, columns, rank, head, length }: Piece,
  p: Float32Array,
  q: Float32Array,
  out: Float32Array,
  adds = false,
): void {
  const sums = new Float64Array(columns);
  for (let row = 0; row < rows; row++) {
    const [begin, end] = [Math.max(0, row * columns - head), Math.min(length, (row + 1) * columns - head)];
    const shift = head - row * columns;
    sums.fill(0);
    for (let k = 0; k < rank; k++) {
      const value = p[k * rows + row]!;
      const from = k * columns;
      for (let column = begin + shift; column < end + shift; column++) sums[column]! += value * q[from + column]!;
    }
    if (adds) for (let i = begin; i < end; i++) out[i] = out[i]! + Math.fround(sums[i + shift]!);
    else for (let i = begin; i < end; i++) out[i] = sums[i + shift]!;
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
