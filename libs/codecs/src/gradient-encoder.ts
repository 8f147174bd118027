/**
 * The gradient of a replica, encoded chunk by chunk in the compute thread, while it is warm.
 *
 * Error feedback (Seide et al. 2014, Karimireddy et al. 2019): what the encoding left out is kept per replica and added to its next gradient. Round k
 * takes what round k-1 left; so a replica that is computed twice in a round is encoded the same. Where another worker computed the replica in round
 * k-1, nothing is left from it here: the replica begins anew, and the run has no equal bits from there on.
 *
 * Memory: the bytes of the encoded gradient, and with error feedback two vectors per replica.
 */
import type { Arena } from '@paceline/kernels';
import { codecKey, type Codec } from './codec.js';

export interface EncodedChunk {
  readonly index: number;
  /** In the flat vector, float32 elements. */
  readonly offset: number;
  readonly length: number;
  /** Chunks of state, such as moving averages, are sent as they are. */
  readonly isEncoded: boolean;
}

/** An encoded vector: chunk i has `lengths[i]` bytes from `pointer + offsets[i]` on, in codec `codecs[i]`. */
export interface EncodedVector {
  readonly pointer: number;
  readonly codecs: Uint8Array;
  readonly offsets: Uint32Array;
  readonly lengths: Uint32Array;
}

interface Residual {
  readonly round: number;
  /** What this round began with; undefined: nothing. */
  readonly before: number | undefined;
  readonly after: number;
}

const FLOAT_BYTES = 4;
const CHUNK_ALIGNMENT_BYTES = 64;

export class GradientEncoder {
  private readonly residuals = new Map<number, Residual>();
  private readonly offsets: Uint32Array;
  private readonly bytes: number;
  /** Elements of the trainable section, which comes first. */
  private readonly trainable: number;

  constructor(
    private readonly codec: Codec,
    private readonly arena: Arena,
    /** The chunks of the whole layout, in its order. */
    private readonly chunks: readonly EncodedChunk[],
    private readonly seed: number,
    private readonly hasFeedback: boolean,
    private readonly replicas: number,
    /** Examples of a round, over all replicas. */
    private readonly examplesOf: (round: number) => number,
  ) {
    let bytes = 0;
    this.offsets = Uint32Array.from(chunks, ({ length, isEncoded }) => {
      const at = bytes;
      // A codec that may be longer than the chunk may also leave it as it is.
      const most = isEncoded ? codec.maxBytes(length) : FLOAT_BYTES * length;
      bytes += Math.ceil(most / CHUNK_ALIGNMENT_BYTES) * CHUNK_ALIGNMENT_BYTES;
      return at;
    });
    this.bytes = bytes;
    this.trainable = chunks.reduce((end, { isEncoded, offset, length }) => (isEncoded ? Math.max(end, offset + length) : end), 0);
  }

  /**
   * Encodes the flat vector at `gradient`, which the caller keeps; it has the residual in it afterwards. The result is the caller's to free.
   * @throws ArenaFullError
   */
  encode(round: number, replica: number, gradient: number): EncodedVector {
    const examples = this.examplesOf(round) / this.replicas;
    const residual = this.hasFeedback ? this.addResidual(round, replica, gradient) : undefined;
    const pointer = this.arena.alloc(this.bytes);
    const codecs = new Uint8Array(this.chunks.length);
    const lengths = new Uint32Array(this.chunks.length);
    for (const [i, chunk] of this.chunks.entries()) {
      const key = codecKey(this.seed, round, replica, chunk.index);
      const from = gradient + FLOAT_BYTES * chunk.offset;
      const to = pointer + this.offsets[i]!;
      const length = chunk.isEncoded ? this.codec.encode(this.arena, from, to, chunk.length, key, examples) : 0;
      if (length === 0) this.arena.kernels.copy(to, from, chunk.length);
      codecs[i] = length === 0 ? 0 : this.codec.number;
      lengths[i] = length || FLOAT_BYTES * chunk.length;
      if (residual !== undefined && chunk.isEncoded) this.keepRest(chunk, from, to, length, residual, key);
    }
    return { pointer, codecs, offsets: this.offsets, lengths };
  }

  /** Adds what the round before left, and makes room for what this one leaves. Returns where. */
  private addResidual(round: number, replica: number, gradient: number): number {
    const { kernels } = this.arena;
    const last = this.residuals.get(replica);
    const isAgain = last?.round === round;
    const before = isAgain ? last.before : last?.round === round - 1 ? last.after : undefined;
    const unused = isAgain ? last.after : last?.before;
    const after = unused ?? this.arena.alloc(FLOAT_BYTES * this.trainable);
    if (last && !isAgain && before === undefined) this.arena.free(last.after);
    if (before !== undefined) {
      // The server divides by the examples of the round, and what is kept was to be divided by those of the round before.
      const growth = this.examplesOf(round) / this.examplesOf(round - 1);
      kernels.sgd(gradient, gradient, before, this.trainable, 1, -growth); // gradient += before · growth
    }
    this.residuals.set(replica, { round, before, after });
    return after;
  }

  /** What was encoded less what will be decoded. Of a chunk that is not finite nothing is kept: the round that it belongs to does not count. */
  private keepRest({ offset, length: n }: EncodedChunk, from: number, to: number, bytes: number, residual: number, key: number): void {
    const { kernels } = this.arena;
    const rest = residual + FLOAT_BYTES * offset;
    if (bytes === 0) return kernels.fill(rest, n, 0);
    this.codec.decode(this.arena, to, bytes, rest, n, key);
    kernels.sgd(from, rest, rest, n, 1, 1); // rest = gradient - decoded
    if (!kernels.allFinite(rest, n)) kernels.fill(rest, n, 0);
  }
}
