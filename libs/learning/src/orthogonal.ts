/**
 * A random matrix with orthonormal columns (or rows, when it is wide): Gram–Schmidt over standard normal columns, in
 * float64, in a fixed order, with only + − × ÷ √, so every server computes the same bits.
 * The factor R of this QR has a positive diagonal, which makes the result uniform over the orthogonal group (Mezzadri 2007).
 */

/** Multiply–add operations between two steps: well under a millisecond. */
const STEP_OPERATIONS = 1 << 17;

/**
 * Yields after every step, so that whoever serves others while it computes can stop in between.
 * @param normal standard normal number by index of the tall matrix, row by row
 * @returns rows × cols elements, row by row
 */
export function* orthogonalMatrix(
  rows: number,
  cols: number,
  normal: (index: number) => number,
): Generator<undefined, Float64Array, undefined> {
  const long = Math.max(rows, cols);
  const short = Math.min(rows, cols);
  // Column by column, so that the inner loops read memory in order.
  const q = new Float64Array(long * short);
  let operations = 0;
  for (let i = 0; i < long * short; i++) {
    q[(i % short) * long + Math.floor(i / short)] = normal(i);
    if (i % (STEP_OPERATIONS / 16) === 0) yield; // a normal number costs about as much as 16 multiplications
  }
  for (let j = 0; j < short; j++) {
    const column = q.subarray(j * long, (j + 1) * long);
    // Twice is enough (Giraud et al. 2005): the second pass removes what rounding left of the first.
    for (let pass = 0; pass < 2; pass++) {
      for (let k = 0; k < j; k++) {
        const other = q.subarray(k * long, (k + 1) * long);
        const along = dot(column, other);
        for (let i = 0; i < long; i++) column[i]! -= along * other[i]!;
        operations += 2 * long;
        if (operations < STEP_OPERATIONS) continue;
        operations = 0;
        yield;
      }
    }
    const norm = Math.sqrt(dot(column, column));
    for (let i = 0; i < long; i++) column[i]! /= norm;
  }
  if (rows < cols) return q; // its columns are our rows
  const result = new Float64Array(rows * cols);
  for (let i = 0; i < rows * cols; i++) {
    result[i] = q[(i % cols) * long + Math.floor(i / cols)]!;
    if (i % STEP_OPERATIONS === 0) yield;
  }
  return result;
}

function dot(a: Float64Array, b: Float64Array): number {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += a[i]! * b[i]!;
  return sum;
}
