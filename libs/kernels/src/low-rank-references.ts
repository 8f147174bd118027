/** What the kernels of low-rank-kernels.ts compute, in plain TypeScript. Sums are float64, and taken in one order: the same bits on every machine. */

/** A matrix, row by row, and the rank of its factors. Of its first row `head` elements are missing, and count as 0. */
export interface LowRankShape {
  readonly rows: number;
  readonly columns: number;
  readonly rank: number;
  readonly head: number;
  /** Elements that are there. */
  readonly length: number;
}

/** P = M · Q. */
export function lowRankTimes(
  matrix: Float32Array,
  { rows, columns, rank, head, length }: LowRankShape,
  q: Float32Array,
  p: Float32Array,
): void {
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

/** Q = Mᵀ · P, over the sum of squares of each column of P, which rounding may have changed. A row where P is 0 adds nothing, whatever it has. */
export function lowRankTransposedTimes(
  matrix: Float32Array,
  { rows, columns, rank, head, length }: LowRankShape,
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

/** dst = P · Qᵀ. */
export function lowRankProduct(
  { rows, columns, rank, head, length }: LowRankShape,
  p: Float32Array,
  q: Float32Array,
  dst: Float32Array,
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
    for (let i = begin; i < end; i++) dst[i] = sums[i + shift]!;
  }
}

/** dst += P · Qᵀ, which is rounded to float32 before. */
export function addLowRankProduct(shape: LowRankShape, p: Float32Array, q: Float32Array, dst: Float32Array): void {
  const product = new Float32Array(shape.length);
  lowRankProduct(shape, p, q, product);
  for (let i = 0; i < product.length; i++) dst[i] = dst[i]! + product[i]!;
}
