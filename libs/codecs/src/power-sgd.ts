/**
 * PowerSGD (Vogels, Karimireddy and Jaggi 2019) in one message: each replica sends a low rank of its own gradient.
 *
 *   M = gradient + what was left out, a matrix of each variable, as far as it lies in the chunk
 *   P = M · Q of the round before, its columns made orthonormal          (one step of a power iteration, with a warm start)
 *   Q = Mᵀ · P                                                           sent: P and Q; decoded: P · Qᵀ; kept: M − P · Qᵀ, and Q
 *
 * The paper adds up P over all workers, then Q, because an all-reduce can only add; that takes two exchanges a round (low-rank-sum.ts). A parameter server decodes what each
 * replica sends and adds that, so one is enough, and the sum of R replicas has up to R times the rank. Columns are rounded at random to 8 bits each; what that
 * loses is kept too. Vectors, such as biases, and matrices that would not become half as short, are sent as they are.
 */
import { lowRankScratchBytes, quantizedBytes, type Arena, type Kernels } from '@paceline/kernels';
import { DEFAULT_RANK, type CodecSpec } from '@paceline/spec';
import { codecKey, type Codec, type WarmStart } from './codec.js';
import { begin, orthonormal, pieceOf, piecesOf, scale, shrink, type Piece, type Shapes } from './low-rank.js';

const FLOAT_BYTES = 4;
const BITS = 8;
const NUMBER = 11;

const bytesOf = ({ rank, rows, columns, length }: Piece): number =>
  rank === 0 ? FLOAT_BYTES * length : rank * (quantizedBytes(rows, BITS) + quantizedBytes(columns, BITS));

export function powerSgd({ rank = DEFAULT_RANK }: CodecSpec, shapes: Shapes | undefined): Codec {
  const known = new Map<number, Codec>();
  const of = (index: number): Codec => {
    const codec = known.get(index) ?? ofPieces(() => piecesOf(shapes!, index, rank), of);
    known.set(index, codec);
    return codec;
  };
  // Without shapes a chunk is a matrix that is nearly square.
  const square = (n: number): Piece[] => [pieceOf(0, n, Math.ceil(Math.sqrt(n)), 0, rank)];
  return ofPieces(square, shapes && of);
}

function ofPieces(makePieces: (n: number) => Piece[], of: Codec['of']): Codec {
  let known: readonly Piece[] = [];
  let knownLength = -1;
  const pieces = (n: number): readonly Piece[] => {
    if (n !== knownLength) known = makePieces((knownLength = n));
    return known;
  };
  const bytes = (n: number): number => pieces(n).reduce((sum, piece) => sum + bytesOf(piece), 0);
  return {
    number: NUMBER,
    leavesSome: false,
    ...(of ? { of } : {}),
    warmFloats: (n) => pieces(n).reduce((sum, { rank, columns }) => sum + rank * columns, 0),
    maxBytes: bytes,
    isLength: (n, length) => length === bytes(n),
    encode(arena, from, to, n, key, _examples, warm) {
      const isFinite = arena.kernels.allFinite(from, n);
      const factors = new Factors(arena, pieces(n));
      let [at, warmAt] = [to, 0];
      for (const [i, piece] of pieces(n).entries()) {
        const source = from + FLOAT_BYTES * piece.at;
        if (piece.rank === 0) arena.kernels.copy(at, source, piece.length);
        else factors.encode(piece, source, at, isFinite, codecKey(key, i, 0, 0), warm, warmAt);
        at += bytesOf(piece);
        warmAt += piece.rank * piece.columns;
      }
      factors.free();
      return at - to;
    },
    takes: ({ kernels }, from, _bytes, n) => areFactors(kernels, pieces(n), from),
    decode(arena, from, _bytes, to, n) {
      if (!areFactors(arena.kernels, pieces(n), from)) return false;
      restore(arena, pieces(n), from, to, false);
      return true;
    },
    add: (arena, from, _bytes, to, n) => restore(arena, pieces(n), from, to, true),
  };
}

/** Whether the columns of all factors are as `encode` rounds them. */
function areFactors(kernels: Kernels, pieces: readonly Piece[], from: number): boolean {
  let at = from;
  for (const piece of pieces) {
    if (piece.rank === 0) at += bytesOf(piece);
    for (const length of piece.rank > 0 ? [piece.rows, piece.columns] : [])
      for (let k = 0; k < piece.rank; k++) {
        if (!kernels.isQuantized(at, length, BITS)) return false;
        at += quantizedBytes(length, BITS);
      }
  }
  return true;
}

/** Decodes a chunk, in place of what is there or added to it. */
function restore(arena: Arena, pieces: readonly Piece[], from: number, to: number, adds: boolean): void {
  const factors = new Factors(arena, pieces);
  let at = from;
  for (const piece of pieces) {
    const target = to + FLOAT_BYTES * piece.at;
    if (piece.rank > 0) factors.decode(piece, at, target, adds);
    else if (adds) arena.kernels.add(target, at, piece.length);
    else arena.kernels.copy(target, at, piece.length);
    at += bytesOf(piece);
  }
  factors.free();
}

/** P and Q of a piece, as float32 in the arena, column by column, and what kernels write over. */
class Factors {
  private readonly pointer: number;
  private readonly scratch: number;

  constructor(
    private readonly arena: Arena,
    pieces: readonly Piece[],
  ) {
    const floats = Math.max(1, ...pieces.map(({ rank, rows, columns }) => rank * (rows + columns)));
    const scratchBytes = Math.max(0, ...pieces.map(({ rank, columns }) => lowRankScratchBytes(columns, rank)));
    this.pointer = arena.alloc(FLOAT_BYTES * floats + scratchBytes);
    this.scratch = this.pointer + FLOAT_BYTES * floats;
  }

  free(): void {
    this.arena.free(this.pointer);
  }

  /** What is not finite in the chunk must not be lost in a part of it that is. */
  encode(piece: Piece, from: number, to: number, isFinite: boolean, key: number, warm: WarmStart | undefined, warmAt: number): void {
    const { rows, columns, rank, head, length } = piece;
    const { arena, pointer, scratch } = this;
    const [p, q] = this.views(piece);
    const qAt = pointer + FLOAT_BYTES * rank * rows;
    const kept = warm && arena.f32(warm.after + FLOAT_BYTES * warmAt, rank * columns);
    if (isFinite) {
      const before = warm?.before === undefined ? undefined : arena.f32(warm.before + FLOAT_BYTES * warmAt, rank * columns);
      begin(q, columns, rank, before, key);
      shrink(q, columns, rank);
      arena.kernels.lowRankTimes(from, qAt, pointer, rows, columns, rank, head, length, scratch);
      scale(p, rows, rank);
      orthonormal(p, rows, rank);
    } else p.fill(NaN);
    let at = to;
    for (let k = 0; k < rank; k++) at = this.round(this.pointer + FLOAT_BYTES * k * rows, at, rows, codecKey(key, k, 1, 0));
    // Q is made for P as it is decoded.
    at = to;
    for (let k = 0; k < rank; k++) at = this.restore(at, this.pointer + FLOAT_BYTES * k * rows, rows);
    if (isFinite) {
      arena.kernels.lowRankTransposedTimes(from, pointer, qAt, rows, columns, rank, head, length, scratch);
      kept?.set(q);
    } else {
      q.fill(NaN);
      kept?.fill(0);
    }
    for (let k = 0; k < rank; k++) at = this.round(qAt + FLOAT_BYTES * k * columns, at, columns, codecKey(key, k, 2, 0));
  }

  decode(piece: Piece, from: number, to: number, adds: boolean): void {
    const { rows, columns, rank, head, length } = piece;
    const { arena, pointer, scratch } = this;
    const qAt = pointer + FLOAT_BYTES * rank * rows;
    let at = from;
    for (let k = 0; k < rank; k++) at = this.restore(at, this.pointer + FLOAT_BYTES * k * rows, rows);
    for (let k = 0; k < rank; k++) at = this.restore(at, qAt + FLOAT_BYTES * k * columns, columns);
    const { kernels } = arena;
    if (adds) kernels.addLowRankProduct(pointer, qAt, to, rows, columns, rank, head, length, scratch);
    else kernels.lowRankProduct(pointer, qAt, to, rows, columns, rank, head, length, scratch);
  }

  private views({ rows, columns, rank }: Piece): [p: Float32Array, q: Float32Array] {
    return [this.arena.f32(this.pointer, rank * rows), this.arena.f32(this.pointer + FLOAT_BYTES * rank * rows, rank * columns)];
  }

  private round(from: number, to: number, n: number, key: number): number {
    this.arena.kernels.quantize(from, to, n, BITS, key);
    return to + quantizedBytes(n, BITS);
  }

  private restore(from: number, to: number, n: number): number {
    this.arena.kernels.dequantize(from, to, n, BITS);
    return from + quantizedBytes(n, BITS);
  }
}
