/**
 * Deep Gradient Compression (Lin, Han, Mao, Wang and Dally 2018): the largest elements of what a replica has gathered, and what gathers it.
 *
 *   gradient, cut to its bound ──> velocity = momentum · velocity + gradient ──> gathered += velocity ──> the largest are sent
 *                                  velocity and gathered are 0 where they were sent (momentum factor masking)
 *
 * Values are sent as bfloat16, places as distances; what is rounded away stays gathered. The optimizer of the servers is plain SGD, because the momentum
 * is here: an element that waits for a hundred rounds has all their momentum when it is sent.
 */
import type { Arena } from '@paceline/kernels';
import { DEFAULT_DENSITY, DEFAULT_MOMENTUM, dgcDensity, type CodecSpec } from '@paceline/spec';
import type { Codec } from './codec.js';
import { COUNT_BYTES, countOf, encodeLargest, gatheredDecoding, mostGathered, valuesOf } from './gathered.js';

const FLOAT_BYTES = 4;
const HALF_BYTES = 2;
const VALUES = valuesOf('bf16');

export function dgc(spec: CodecSpec): Codec {
  const { density: least = DEFAULT_DENSITY } = spec;
  // As many as a round sends, or more: those of the first round of a warm-up.
  const decoding = gatheredDecoding(VALUES, (count, n) => count >= countOf(n, least) && count <= countOf(n, dgcDensity(spec, 0)));
  const at = (round: number, most: number): Codec => ({
    number: 10,
    leavesSome: true,
    at: (next) => at(next, most),
    // What is not shorter than the chunk, which is then sent as it is, has room for it.
    maxBytes: (n) => mostGathered(countOf(n, most)),
    isLength: (n, bytes) => bytes >= COUNT_BYTES + HALF_BYTES + 1 && bytes < FLOAT_BYTES * n,
    encode: (arena, from, to, n, key) => encodeLargest(arena, from, to, n, countOf(n, dgcDensity(spec, round)), VALUES, key),
    ...decoding,
  });
  return at(Number.MAX_SAFE_INTEGER, dgcDensity(spec, 0));
}

/** What a replica keeps from one round to the next, beside what is gathered: its velocity. */
export class Velocity {
  private readonly momentum: number;

  constructor(
    private readonly spec: CodecSpec,
    private readonly arena: Arena,
    private readonly length: number,
    private readonly replicas: number,
  ) {
    this.momentum = spec.momentum ?? DEFAULT_MOMENTUM;
  }

  /**
   * Puts the velocity in place of a gradient, and at `after`.
   * @param before that of the round before; undefined: none
   * @param growth examples of this round for each of the one before
   * @param sumOfSquares of the whole gradient, of which this may be a part
   */
  put(gradient: number, before: number | undefined, after: number, growth: number, examples: number, sumOfSquares: number): void {
    const { kernels } = this.arena;
    this.clip(gradient, examples, sumOfSquares);
    // gradient += before · momentum · growth
    if (before !== undefined) kernels.sgd(gradient, gradient, before, this.length, 1, -this.momentum * growth);
    kernels.copy(after, gradient, this.length);
  }

  /** Section 3.2 of the paper: the mean gradient of R replicas is bounded where the part of each is, by 1/sqrt(R) of it. @param examples of the round */
  private clip(gradient: number, examples: number, sumOfSquares: number): void {
    const { clipNorm } = this.spec;
    if (clipNorm === undefined || examples === 0) return;
    const norm = Math.sqrt(sumOfSquares) / examples;
    const bound = clipNorm / Math.sqrt(this.replicas);
    if (norm > bound && Number.isFinite(norm)) this.arena.kernels.scaleInto(gradient, gradient, this.length, bound / norm);
  }
}
