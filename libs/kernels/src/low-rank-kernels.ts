/**
 * Kernels that multiply a matrix by thin factors, for PowerSGD: byte offsets and counts, bitwise those of low-rank-references.ts.
 *
 * The matrix has `length` float32 elements, row by row, in `rows` rows of `columns`. Of its first row the first `head` elements are missing and count as 0, as the
 * last of its last row may be. P has `rank` columns of `rows` float32, one after the other, and Q `rank` columns of `columns`.
 */
export interface LowRankKernels {
  /** P = M · Q. @param scratch `lowRankScratchBytes`, written over */
  lowRankTimes(
    matrix: number,
    q: number,
    p: number,
    rows: number,
    columns: number,
    rank: number,
    head: number,
    length: number,
    scratch: number,
  ): void;
  /** Q = Mᵀ · P, each column divided by the sum of squares of that of P. @param scratch `lowRankScratchBytes`, written over */
  lowRankTransposedTimes(
    matrix: number,
    p: number,
    q: number,
    rows: number,
    columns: number,
    rank: number,
    head: number,
    length: number,
    scratch: number,
  ): void;
  /** dst = P · Qᵀ. @param scratch `lowRankScratchBytes`, written over */
  lowRankProduct(
    p: number,
    q: number,
    dst: number,
    rows: number,
    columns: number,
    rank: number,
    head: number,
    length: number,
    scratch: number,
  ): void;
  /** dst += P · Qᵀ, with the bits of `lowRankProduct` and `add`. */
  addLowRankProduct(
    p: number,
    q: number,
    dst: number,
    rows: number,
    columns: number,
    rank: number,
    head: number,
    length: number,
    scratch: number,
  ): void;
}

/** Columns of Q as float64. */
export const lowRankScratchBytes = (columns: number, rank: number): number => 8 * columns * rank;
