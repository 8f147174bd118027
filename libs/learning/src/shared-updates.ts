/**
 * The update of a step that the threads of a process share (strategy tpu). Weights, slots and gradients lie in one arena, and each thread has some of the chunks. What it
 * does to an element is what a shard does (libs/hosting/src/server/parameter-store.ts), so a step ends in the same bits.
 *
 *     streaming      update
 *     with a norm    measure ── all threads have ──> judge (each the same) ──> update
 */
import type { Arena } from '@paceline/kernels';
import type { OptimizerSpec } from '@paceline/spec';
import { ChunkPieces, type VariablePiece } from './chunk-pieces.js';
import { judgeRound, type ClipRules, type RoundVerdict } from './clip.js';
import type { Layout } from './layout.js';
import { createOptimizer, rateOf, type Optimizer } from './optimizers.js';

const FLOAT_BYTES = Float32Array.BYTES_PER_ELEMENT;

export interface SharedUpdatesOptions {
  readonly arena: Arena;
  readonly layout: Layout;
  /** Chunks of this thread. */
  readonly chunks: readonly number[];
  /** By elements: neither lamb nor lars. */
  readonly optimizer: OptimizerSpec;
  readonly clip: ClipRules & { readonly clipValue?: number | undefined };
  /** Variables that keep their values; see matchesPatterns. */
  readonly freeze?: readonly string[] | undefined;
  /** Pointers: parameters and state, and a vector of the trainable section for each slot of the optimizer. */
  readonly weights: number;
  readonly slots: readonly number[];
  /** One float64 for each of `measures`, which all threads share; undefined where no norm is cut. */
  readonly measured: Float64Array | undefined;
}

export interface SharedStep {
  /** Pointer of the sum over the examples. It may be written to. */
  readonly gradient: number;
  readonly examples: number;
  /** From 1. */
  readonly step: number;
  readonly rateFactor: number;
  /** What the round began with: frozen variables keep its bits. */
  readonly start: Float32Array;
}

/** Numbers that a measurement has: for each piece of a trainable variable the sum of its squares. */
export const measures = (layout: Pick<Layout, 'variables' | 'chunks'>, optimizer: OptimizerSpec): number =>
  placesOf(new ChunkPieces({ layout, optimizer }), layout).flat().length;

interface Place extends VariablePiece {
  /** In what is measured. */
  readonly at: number;
}

function placesOf(pieces: ChunkPieces, { chunks }: Pick<Layout, 'chunks'>): Place[][] {
  let at = 0;
  return chunks.map((chunk) =>
    chunk.section === 'state' ? [] : pieces.piecesOf(chunk).map((piece) => Object.assign({ at: at++ }, piece)),
  );
}

export class SharedUpdates {
  private readonly optimizer: Optimizer;
  private readonly pieces: ChunkPieces;
  private readonly places: readonly (readonly Place[])[];

  constructor(private readonly options: SharedUpdatesOptions) {
    this.optimizer = createOptimizer(options.optimizer);
    this.pieces = new ChunkPieces(options);
    this.places = placesOf(this.pieces, options.layout);
  }

  /** Whether the chunks of this thread have no NaN and no infinity; where a norm is cut, the squares of their variables are written down. */
  measure(gradient: number): boolean {
    const { arena, layout, chunks, measured } = this.options;
    let isFinite = true;
    for (const index of chunks) {
      const { offset, length } = layout.chunks[index]!;
      const pointer = gradient + offset * FLOAT_BYTES;
      isFinite &&= arena.kernels.allFinite(pointer, length);
      if (!measured) continue;
      for (const { at, from, to } of this.places[index]!)
        measured[at] = arena.kernels.sumOfSquares(pointer + from * FLOAT_BYTES, to - from);
    }
    return isFinite;
  }

  /** What follows from the measurements of all threads. Undefined where no norm is cut. */
  judge(examples: number): RoundVerdict | undefined {
    const { measured, clip } = this.options;
    if (!measured) return undefined;
    const scalars = this.places.map((places, chunk) => {
      const squares = places.flatMap(({ at, variable }) => (this.pieces.isFrozen[variable] ? [] : [[variable, measured[at]!] as const]));
      return { chunk, isFinite: squares.every(([, sum]) => Number.isFinite(sum)), squares };
    });
    return judgeRound(scalars, examples, clip);
  }

  /** Moves weights and slots in the chunks of this thread. */
  update(step: SharedStep, verdict: RoundVerdict | undefined): void {
    for (const index of this.options.chunks) this.updateChunk(index, step, verdict);
  }

  private updateChunk(index: number, { gradient, examples, step, rateFactor, start }: SharedStep, verdict: RoundVerdict | undefined): void {
    const { arena, layout, optimizer: spec, clip, weights, slots } = this.options;
    const { kernels } = arena;
    const { offset, length, section } = layout.chunks[index]!;
    const at = offset * FLOAT_BYTES;
    const [grad, params] = [gradient + at, weights + at];
    const scale = Math.fround(1 / examples);
    if (section === 'state') kernels.scaleInto(params, grad, length, scale);
    else {
      if (verdict) this.clipVariables(index, grad, verdict);
      const gradScale = verdict ? Math.fround(scale * Math.fround(verdict.scale)) : scale;
      if (clip.clipValue !== undefined) kernels.clamp(grad, length, clip.clipValue / gradScale);
      this.decay(index, params, rateOf(spec, { rateFactor }));
      const own = { paramIn: params, paramOut: params, grad, slots: slots.map((pointer) => pointer + at) };
      this.optimizer.apply(kernels, Object.assign(own, { count: length, step, gradScale, rateFactor }));
    }
    this.keepFrozen(index, params, start.subarray(offset, offset + length));
  }

  private clipVariables(index: number, grad: number, { variables }: RoundVerdict): void {
    const scales = new Map(variables);
    for (const { variable, from, to } of this.places[index]!) {
      const scale = scales.get(variable);
      const pointer = grad + from * FLOAT_BYTES;
      if (scale !== undefined) this.options.arena.kernels.scaleInto(pointer, pointer, to - from, Math.fround(scale));
    }
  }

  private decay(index: number, params: number, rate: number): void {
    const { weightDecay, isFrozen, keepsWeight } = this.pieces;
    if (weightDecay === 0) return;
    for (const { variable, from, to } of this.places[index]!) {
      const pointer = params + from * FLOAT_BYTES;
      if (!isFrozen[variable] && !keepsWeight[variable])
        this.options.arena.kernels.decayWeights(pointer, pointer, to - from, weightDecay, rate);
    }
  }

  /** Copied bit by bit: an update may move them without a gradient. @param start of the chunk */
  private keepFrozen(index: number, params: number, start: Float32Array): void {
    const { isFrozen } = this.pieces;
    if (!isFrozen.includes(true)) return;
    for (const { variable, from, to } of this.pieces.piecesOf({ index }))
      if (isFrozen[variable]) this.options.arena.f32(params + from * FLOAT_BYTES, to - from).set(start.subarray(from, to));
  }
}
