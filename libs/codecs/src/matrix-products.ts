/** Products with thin factors of matrices that lie in memory of JavaScript: a matrix is copied to where kernels see it, and what they make of it back. */
import { Arena, lowRankScratchBytes } from '@paceline/kernels';
import type { Piece } from './low-rank.js';

const FLOAT_BYTES = 4;
/** What an allocator rounds the four blocks up to. */
const SLACK_BYTES = 1 << 16;

export class MatrixProducts {
  private readonly arena: Arena;
  private readonly matrix: number;
  private readonly p: number;
  private readonly q: number;
  private readonly scratch: number;

  /** @param pieces of which the largest has room */
  constructor(pieces: readonly Piece[]) {
    const factored = pieces.filter(({ rank }) => rank > 0);
    const bytesOf = (bytes: (piece: Piece) => number): number => Math.max(8, ...factored.map(bytes));
    const sizes = [
      bytesOf(({ length }) => FLOAT_BYTES * length),
      bytesOf(({ rows, rank }) => FLOAT_BYTES * rows * rank),
      bytesOf(({ columns, rank }) => FLOAT_BYTES * columns * rank),
      bytesOf(({ columns, rank }) => lowRankScratchBytes(columns, rank)),
    ];
    const initialBytes = sizes.reduce((sum, bytes) => sum + bytes, SLACK_BYTES);
    this.arena = Arena.create({ initialBytes, maximumBytes: initialBytes + SLACK_BYTES });
    [this.matrix, this.p, this.q, this.scratch] = sizes.map((bytes) => this.arena.alloc(bytes)) as [number, number, number, number];
  }

  /** P = M · Q. */
  times(matrix: Float32Array, { rows, columns, rank, head, length }: Piece, q: Float32Array, p: Float32Array): void {
    const { arena } = this;
    arena.f32(this.matrix, length).set(matrix);
    arena.f32(this.q, rank * columns).set(q);
    arena.kernels.lowRankTimes(this.matrix, this.q, this.p, rows, columns, rank, head, length, this.scratch);
    p.set(arena.f32(this.p, rank * rows));
  }

  /** Q = Mᵀ · P, over the sum of squares of each column of P. */
  transposedTimes(matrix: Float32Array, { rows, columns, rank, head, length }: Piece, p: Float32Array, q: Float32Array): void {
    const { arena } = this;
    arena.f32(this.matrix, length).set(matrix);
    arena.f32(this.p, rank * rows).set(p);
    arena.kernels.lowRankTransposedTimes(this.matrix, this.p, this.q, rows, columns, rank, head, length, this.scratch);
    q.set(arena.f32(this.q, rank * columns));
  }

  /** P · Qᵀ. @returns a view that the next call writes over */
  product({ rows, columns, rank, head, length }: Piece, p: Float32Array, q: Float32Array): Float32Array {
    const { arena } = this;
    arena.f32(this.p, rank * rows).set(p);
    arena.f32(this.q, rank * columns).set(q);
    arena.kernels.lowRankProduct(this.p, this.q, this.matrix, rows, columns, rank, head, length, this.scratch);
    return arena.f32(this.matrix, length);
  }
}
