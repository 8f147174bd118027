/**
 * PowerSGD over an all-reduce (Vogels, Karimireddy and Jaggi 2019, arXiv 1905.13727, algorithms 1 and 2). Each member has a vector, such as the gradient of its
 * replicas. All of them get a low rank of the sum, for two sums that are far shorter:
 *
 *   Mᵢ = vector of member i + what it kept              a matrix of each variable
 *   Pᵢ = Mᵢ · Q of the sum before                       first sum: P = Σ Pᵢ, and all elements that are sent as they are
 *   P̂ = the columns of P, made orthonormal              all members compute it from the same bits, so they have the same
 *   Qᵢ = Mᵢᵀ · P̂                                        second sum: Q = Σ Qᵢ
 *   result = P̂ · Qᵀ, which is P̂ · P̂ᵀ · Σ Mᵢ             kept by member i: Mᵢ − P̂ · Qᵢᵀ (error feedback)
 *
 * Vectors, such as biases, matrices whose factors would have more than half of their elements, and what lies behind the trainable elements, travel as they are.
 */
import { codecKey } from './codec.js';
import { begin, orthonormal, piecesOf, scale, type Piece, type Shapes } from './low-rank.js';
import { MatrixProducts } from './matrix-products.js';

export interface LowRankOptions {
  /** Variables whose elements lie from 0 on, without gaps: the trainable ones. */
  readonly variables: Shapes['variables'];
  /** Elements of the vector. Those behind the variables travel as they are. */
  readonly length: number;
  /** Columns of the factors. */
  readonly rank: number;
  /** The same for all members: the first Q follows from it. */
  readonly seed: number;
}

export class LowRankSum {
  /** Elements of the first sum, and of the second. */
  readonly lengths: readonly [first: number, second: number];
  private readonly pieces: readonly Piece[];
  private readonly trainableLength: number;
  private readonly firsts: Float32Array;
  private readonly seconds: Float32Array;
  /** Q of the sum before. */
  private readonly warm: Float32Array;
  /** What this member kept. */
  private readonly kept: Float32Array;
  /** Q of this member. */
  private readonly own: Float32Array;
  /** Made with the first sum: who only asks for lengths takes no memory. */
  private made: MatrixProducts | undefined;
  private sums = 0;
  /** Examples of the sum that is under way, and of the one that `kept` is left of. */
  private examples = 0;
  private keptExamples = 0;

  constructor(private readonly options: LowRankOptions) {
    const { length, rank } = options;
    const variables = options.variables.filter(({ length }) => length > 0);
    this.trainableLength = variables.reduce((sum, variable) => sum + variable.length, 0);
    this.pieces = piecesOf({ variables, chunks: [{ offset: 0, length: this.trainableLength }] }, 0, rank);
    this.lengths = lengthsOf(this.pieces, length - this.trainableLength);
    [this.firsts, this.seconds] = [new Float32Array(this.lengths[0]), new Float32Array(this.lengths[1])];
    [this.warm, this.own] = [new Float32Array(this.lengths[1]), new Float32Array(this.lengths[1])];
    this.kept = new Float32Array(this.trainableLength);
  }

  /** Bytes that a member sends of one vector, both sums together. */
  static bytesOf({ variables, length, rank }: Omit<LowRankOptions, 'seed'>): number {
    const trainableLength = variables.reduce((sum, variable) => sum + variable.length, 0);
    const pieces = piecesOf({ variables, chunks: [{ offset: 0, length: trainableLength }] }, 0, rank);
    const [first, second] = lengthsOf(pieces, length - trainableLength);
    return Float32Array.BYTES_PER_ELEMENT * (first + second);
  }

  /**
   * @param vector of this member; what it kept is added to it, as the part of the mean that it was
   * @param examples that the vectors of all members are a sum over
   * @returns what the first sum adds up, in place
   */
  first(vector: Float32Array, examples: number): Float32Array {
    const { firsts, kept } = this;
    const growth = this.keptExamples > 0 ? examples / this.keptExamples : 1;
    this.examples = examples;
    this.sums++;
    let at = 0;
    for (const [i, [piece, q]] of this.factored(this.warm).entries()) {
      const own = vector.subarray(piece.at, piece.at + piece.length);
      const to = firsts.subarray(at, (at += firstLength(piece)));
      if (piece.rank === 0) {
        to.set(own);
        continue;
      }
      for (let j = 0; j < own.length; j++) own[j] = own[j]! + growth * kept[piece.at + j]!;
      scale(q, piece.columns, piece.rank);
      begin(q, piece.columns, piece.rank, q.slice(), codecKey(this.options.seed, this.sums, i, 0));
      this.products.times(own, piece, q, to);
    }
    firsts.set(vector.subarray(this.trainableLength, this.options.length), at);
    return firsts;
  }

  /**
   * After the first sum.
   * @param vector as `first` has left it
   * @returns what the second sum adds up, in place
   */
  second(vector: Float32Array): Float32Array {
    const { firsts, seconds, own } = this;
    let at = 0;
    for (const [piece, q] of this.factored(own)) {
      const p = firsts.subarray(at, (at += firstLength(piece)));
      if (piece.rank === 0) continue;
      scale(p, piece.rows, piece.rank);
      orthonormal(p, piece.rows, piece.rank);
      this.products.transposedTimes(vector.subarray(piece.at, piece.at + piece.length), piece, p, q);
    }
    seconds.set(own);
    return seconds;
  }

  /** After the second sum: the vector becomes that of all. What it brings is the same for all members; what is left out of this member's is kept. */
  finish(vector: Float32Array): void {
    const { firsts, own, seconds, warm, kept, products } = this;
    let [at, second] = [0, 0];
    for (const piece of this.pieces) {
      const p = firsts.subarray(at, (at += firstLength(piece)));
      const part = vector.subarray(piece.at, piece.at + piece.length);
      if (piece.rank === 0) {
        part.set(p);
        continue;
      }
      const [from, to] = [second, (second += piece.rank * piece.columns)];
      const rest = kept.subarray(piece.at, piece.at + piece.length);
      const matrix = products.product(piece, p, own.subarray(from, to));
      for (let j = 0; j < rest.length; j++) rest[j] = part[j]! - matrix[j]!;
      part.set(products.product(piece, p, seconds.subarray(from, to)));
      // A gradient that is not finite is seen, and does not stay: what is kept of it would never end. All members begin the next sum with the same.
      const isFinite = allFinite(seconds.subarray(from, to));
      if (!isFinite || !allFinite(rest)) rest.fill(0);
      if (isFinite) warm.set(seconds.subarray(from, to), from);
      else warm.fill(0, from, to);
    }
    vector.set(firsts.subarray(at), this.trainableLength);
    this.keptExamples = this.examples;
  }

  private get products(): MatrixProducts {
    return (this.made ??= new MatrixProducts(this.pieces));
  }

  /** Each piece with its part of the factors Q. */
  private factored(of: Float32Array): [piece: Piece, q: Float32Array][] {
    let at = 0;
    return this.pieces.map((piece) => [piece, of.subarray(at, (at += piece.rank * piece.columns))]);
  }
}

function allFinite(values: Float32Array): boolean {
  let zero = 0;
  for (const value of values) zero += value * 0;
  return zero === 0;
}

const firstLength = ({ rank, rows, length }: Piece): number => (rank === 0 ? length : rank * rows);

const lengthsOf = (pieces: readonly Piece[], behind: number): readonly [number, number] => [
  pieces.reduce((sum, piece) => sum + firstLength(piece), behind),
  pieces.reduce((sum, { rank, columns }) => sum + rank * columns, 0),
];
