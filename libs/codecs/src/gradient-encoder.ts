/**
 * The gradient of a replica, encoded chunk by chunk in the compute thread, while it is warm.
 *
 * Error feedback (Seide et al. 2014, Karimireddy et al. 2019): what the encoding left out is kept per replica and added to its next gradient. Round k
 * takes what round k-1 left; so a replica that is computed twice in a round is encoded the same. Where another worker computed the replica in round
 * k-1, nothing is left from it here: the replica begins anew, `lost` says so, and the run has no equal bits from there on.
 *
 * EF21 (Richtárik, Sokolov and Fatkhullin 2021): a replica keeps an estimate of its gradient instead, sends the encoded difference to it, and adds what will be decoded. The
 * servers add the same to the sum of all estimates, which the optimizer gets. So a loss of it cannot be made good by going on: see protocol.md.
 *
 * With dgc the replica keeps its velocity too (dgc.ts), with power-sgd what its next power iteration begins with (power-sgd.ts), in the same way.
 *
 * What a round has left can be read, for a checkpoint, and taken in place of what was computed here: chunk by chunk, of each what was left out, then the
 * velocity, then what the next power iteration begins with.
 *
 * Memory: the bytes of the encoded gradient, and with error feedback two vectors per replica, with dgc four, all in one arena. Of a vector that lies in
 * several each part has an encoder of its own.
 */
import type { Arena } from '@paceline/kernels';
import { keepsEstimate, keepsRest, type CodecSpec } from '@paceline/spec';
import { codecKey, type Codec, type WarmStart } from './codec.js';
import { Velocity } from './dgc.js';

export interface EncodedChunk {
  readonly index: number;
  /** In the vector that is encoded, float32 elements. */
  readonly offset: number;
  readonly length: number;
  /** Chunks of state, such as moving averages, are sent as they are. */
  readonly isEncoded: boolean;
}

/** An encoded vector: the chunk at place i has `lengths[i]` bytes from `pointer + offsets[i]` on, in codec `codecs[i]`. */
export interface EncodedVector {
  readonly pointer: number;
  readonly codecs: Uint8Array;
  readonly offsets: Uint32Array;
  readonly lengths: Uint32Array;
  /** What the round before had left of the replica is not here, and was not encoded. */
  readonly lost: ResidualLoss | undefined;
}

/** Nothing of the replica is here, or what an older round than the one before has left. */
export type ResidualLoss = 'absent' | 'outdated';

interface Kept {
  /** What the encoding has left out; with EF21 the estimate. */
  readonly rest: number;
  /** With dgc. */
  readonly velocity: number | undefined;
  /** With power-sgd, of all chunks. */
  readonly warm: number | undefined;
}

interface Residual {
  readonly round: number;
  /** What this round began with; undefined: nothing. */
  readonly before: Kept | undefined;
  readonly after: Kept;
  readonly lost: ResidualLoss | undefined;
  /** What was kept was a part of a sum over the examples of its round, this one has so many times as many. */
  readonly growth: number;
}

const FLOAT_BYTES = 4;
const CHUNK_ALIGNMENT_BYTES = 64;

/** Float32 elements that a replica keeps of a chunk from one round to the next; 0: nothing is kept of it. */
export function residualFloats(codec: Codec, spec: CodecSpec, { index, length, isEncoded }: Omit<EncodedChunk, 'offset'>): number {
  if (!isEncoded || !keepsRest(spec)) return 0;
  return length * (spec.kind === 'dgc' ? 2 : 1) + ((codec.of?.(index) ?? codec).warmFloats?.(length) ?? 0);
}

export class GradientEncoder {
  private readonly residuals = new Map<number, Residual>();
  private readonly offsets: Uint32Array;
  /** Of each chunk, in what is kept for the encoding, float32 elements. */
  private readonly warmOffsets: Uint32Array;
  private readonly warmFloats: number;
  private readonly bytes: number;
  /** Elements of the trainable section, which comes first. */
  private readonly trainable: number;
  private readonly hasFeedback: boolean;
  /** EF21 */
  private readonly estimates: boolean;
  private readonly velocity: Velocity | undefined;

  constructor(
    private readonly codec: Codec,
    private readonly arena: Arena,
    /** The chunks of the vector: of the whole layout, or a part of it in its order. */
    private readonly chunks: readonly EncodedChunk[],
    private readonly seed: number,
    private readonly spec: CodecSpec,
    private readonly replicas: number,
    /** Examples of a round, over all replicas. */
    private readonly examplesOf: (round: number) => number,
  ) {
    let bytes = 0;
    this.offsets = Uint32Array.from(chunks, ({ index, length, isEncoded }) => {
      const at = bytes;
      // A codec that may be longer than the chunk may also leave it as it is.
      const most = isEncoded ? this.codecFor(codec, index).maxBytes(length) : FLOAT_BYTES * length;
      bytes += Math.ceil(most / CHUNK_ALIGNMENT_BYTES) * CHUNK_ALIGNMENT_BYTES;
      return at;
    });
    this.bytes = bytes;
    let warm = 0;
    this.warmOffsets = Uint32Array.from(chunks, ({ index, length, isEncoded }) => {
      const at = warm;
      warm += isEncoded ? (this.codecFor(codec, index).warmFloats?.(length) ?? 0) : 0;
      return at;
    });
    this.warmFloats = warm;
    this.trainable = chunks.reduce((end, { isEncoded, offset, length }) => (isEncoded ? Math.max(end, offset + length) : end), 0);
    this.hasFeedback = keepsRest(spec);
    this.estimates = keepsEstimate({ codec: spec });
    this.velocity = spec.kind === 'dgc' ? new Velocity(spec, arena, this.trainable, replicas) : undefined;
  }

  private codecFor(codec: Codec, chunk: number): Codec {
    return codec.of?.(chunk) ?? codec;
  }

  /**
   * Encodes the flat vector at `gradient`, which the caller keeps; it has the residual in it afterwards. The result is the caller's to free.
   * @param sumOfSquares of the whole gradient, where this vector is a part of it
   * @throws ArenaFullError
   */
  encode(round: number, replica: number, gradient: number, sumOfSquares = this.sumOfSquares(gradient)): EncodedVector {
    const examples = this.examplesOf(round) / this.replicas;
    const atRound = this.codec.at?.(round) ?? this.codec;
    const residual = this.hasFeedback && this.trainable > 0 ? this.addResidual(round, replica, gradient, sumOfSquares) : undefined;
    const pointer = this.arena.alloc(this.bytes);
    const codecs = new Uint8Array(this.chunks.length);
    const lengths = new Uint32Array(this.chunks.length);
    for (const [i, chunk] of this.chunks.entries()) {
      const key = codecKey(this.seed, round, replica, chunk.index);
      const from = gradient + FLOAT_BYTES * chunk.offset;
      const to = pointer + this.offsets[i]!;
      const codec = this.codecFor(atRound, chunk.index);
      const length = chunk.isEncoded ? codec.encode(this.arena, from, to, chunk.length, key, examples, this.warmAt(i, residual)) : 0;
      if (length === 0) this.arena.kernels.copy(to, from, chunk.length);
      codecs[i] = length === 0 ? 0 : codec.number;
      lengths[i] = length || FLOAT_BYTES * chunk.length;
      if (residual !== undefined && chunk.isEncoded) this.keepRest(chunk, from, to, length, residual, key);
    }
    return { pointer, codecs, offsets: this.offsets, lengths, lost: residual?.lost };
  }

  /** Float32 elements of what a replica keeps. */
  get residualFloats(): number {
    return this.chunks.reduce((sum, chunk) => sum + residualFloats(this.codec, this.spec, chunk), 0);
  }

  /** Copies what a round has left of a replica: the last one that was encoded, or the one before it. @returns false when it is not here */
  readResidual(round: number, replica: number, into: Float32Array): boolean {
    const last = this.residuals.get(replica);
    const kept = last?.round === round && !this.isAstray(last) ? last.after : last?.round === round + 1 ? last.before : undefined;
    if (kept) this.eachKept(kept, (memory, at) => into.set(memory, at));
    return kept !== undefined || this.trainable === 0;
  }

  /** What a round has left of a replica, as `readResidual` gives it: the next round goes on from there. @throws ArenaFullError */
  takeResidual(round: number, replica: number, values: Float32Array): void {
    if (!this.hasFeedback || this.trainable === 0) return;
    const last = this.residuals.get(replica);
    const after = this.roomOf(last, undefined);
    this.eachKept(after, (memory, at) => memory.set(values.subarray(at, at + memory.length)));
    this.residuals.set(replica, { round, before: undefined, after, lost: undefined, growth: 1 });
  }

  /** The parts of what is kept, in the order in which they are read, with the place of each. */
  private eachKept({ rest, velocity, warm }: Kept, act: (memory: Float32Array, at: number) => void): void {
    let at = 0;
    const next = (pointer: number | undefined, offset: number, length: number): void => {
      if (pointer === undefined || length === 0) return;
      act(this.arena.f32(pointer + FLOAT_BYTES * offset, length), at);
      at += length;
    };
    for (const [i, { index, offset, length, isEncoded }] of this.chunks.entries()) {
      if (!isEncoded) continue;
      next(rest, offset, length);
      next(velocity, offset, length);
      next(warm, this.warmOffsets[i]!, this.codecFor(this.codec, index).warmFloats?.(length) ?? 0);
    }
  }

  /** The sum over the trainable elements where something is bounded by their norm; otherwise 0. */
  sumOfSquares(gradient: number): number {
    return this.velocity && this.spec.clipNorm !== undefined ? this.arena.kernels.sumOfSquares(gradient, this.trainable) : 0;
  }

  private warmAt(place: number, residual: Residual | undefined): WarmStart | undefined {
    if (residual?.after.warm === undefined) return undefined;
    const at = FLOAT_BYTES * this.warmOffsets[place]!;
    const before = residual.before?.warm;
    return { before: before === undefined ? undefined : before + at, after: residual.after.warm + at };
  }

  /** An estimate that began anew is none of what the servers have: it stays lost until it is taken from elsewhere. */
  private isAstray({ lost }: Residual): boolean {
    return this.estimates && lost !== undefined;
  }

  /** Adds what the round before left, and makes room for what this one leaves. */
  private addResidual(round: number, replica: number, gradient: number, sumOfSquares: number): Residual {
    const { kernels } = this.arena;
    const last = this.residuals.get(replica);
    const follows = last?.round === round - 1 && !this.isAstray(last);
    const before = last?.round === round ? last.before : follows ? last.after : undefined;
    // The server divides by the examples of the round, and what is kept was to be divided by those of the round before.
    const growth = before ? this.examplesOf(round) / this.examplesOf(round - 1) : 1;
    const next: Residual = { round, before, after: this.roomOf(last, before), lost: lossOf(round, last, before), growth };
    this.velocity?.put(gradient, before?.velocity, next.after.velocity!, growth, this.examplesOf(round), sumOfSquares);
    // gradient + what was left out, or gradient - estimate
    if (before) kernels.sgd(gradient, gradient, before.rest, this.trainable, 1, this.estimates ? growth : -growth);
    this.residuals.set(replica, next);
    return next;
  }

  /** Vectors that hold nothing that is still needed. */
  private roomOf(last: Residual | undefined, before: Kept | undefined): Kept {
    const free = last && [last.before, last.after].filter((kept) => kept !== undefined && kept !== before);
    const [room, unused] = free ?? [];
    if (unused) for (const pointer of [unused.rest, unused.velocity, unused.warm]) if (pointer !== undefined) this.arena.free(pointer);
    if (room) return room;
    const bytes = FLOAT_BYTES * this.trainable;
    const warm = this.warmFloats > 0 ? this.arena.alloc(FLOAT_BYTES * this.warmFloats) : undefined;
    return { rest: this.arena.alloc(bytes), velocity: this.velocity && this.arena.alloc(bytes), warm };
  }

  /** What was encoded less what will be decoded, or with EF21 the estimate and what will be decoded. Of a chunk that is not finite nothing is kept: the round that it belongs to does not count. */
  private keepRest(
    { index, offset, length: n }: EncodedChunk,
    from: number,
    to: number,
    bytes: number,
    { before, after, growth }: Residual,
    key: number,
  ): void {
    const { kernels } = this.arena;
    const rest = after.rest + FLOAT_BYTES * offset;
    const velocity = after.velocity === undefined ? undefined : after.velocity + FLOAT_BYTES * offset;
    const keepNothing = (): void => {
      kernels.fill(rest, n, 0);
      if (velocity !== undefined) kernels.fill(velocity, n, 0);
    };
    if (bytes > 0) this.codecFor(this.codec, index).decode(this.arena, to, bytes, rest, n, key);
    else if (this.estimates) kernels.copy(rest, from, n);
    else return keepNothing();
    if (velocity !== undefined) kernels.clearSent(velocity, rest, n);
    if (!this.estimates) kernels.sgd(from, rest, rest, n, 1, 1); // rest = gradient - decoded
    else if (before) kernels.sgd(rest, rest, before.rest + FLOAT_BYTES * offset, n, 1, -growth); // decoded + estimate
    // An estimate beyond float32 is kept, as the servers keep theirs: the next gradient is refused.
    if (!this.estimates && !kernels.allFinite(rest, n)) keepNothing();
  }
}

/** Before its first round no replica has left anything. Whoever encodes a replica twice in a round has lost it in both or in neither. */
function lossOf(round: number, last: Residual | undefined, before: Kept | undefined): ResidualLoss | undefined {
  if (last?.round === round) return last.lost;
  if (before || round === 0) return undefined;
  return last ? 'outdated' : 'absent';
}
