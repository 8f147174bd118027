/**
 * Where the gradients of a worker lie. A large flat vector does not fit into one WebAssembly memory together with the others that are held at once, so
 * the vector is cut at chunks into parts, and each part has an arena, in which that part of all vectors lies:
 *
 *   arena 0   [ chunks 0..k of vector A | chunks 0..k of vector B | … ]
 *   arena 1   [ chunks k+1.. of A | chunks k+1.. of B | … ]
 *
 * Vectors are added part by part, each inside its arena; elements do not depend on each other, so the cut changes no bit. One thing spans the parts:
 * the norm that codec.clipNorm bounds is one of the whole vector, added up over its parts in their order. Which parts there are depends on the run alone.
 * The compute thread allocates, the main thread attaches the arenas and reads (`GradientReader`). With several compute threads the main thread allocates,
 * and lends each thread the vectors of its step (`LentVectors`), so that the sum of two threads lies in the memory of both.
 */
import { GradientEncoder, type Codec, type ResidualLoss } from '@paceline/codecs';
import type { ChunkBytes, MemberChunk } from '@paceline/exchange';
import { Arena, ARENA_MAXIMUM_BYTES, type SharedMemory } from '@paceline/kernels';
import type { Layout, Node } from '@paceline/learning';
import {
  GRADIENT_ARENA_BYTES,
  GRADIENT_ARENA_SLACK_BYTES,
  GRADIENT_ARENA_VECTORS,
  gradientVectors,
  type CodecSpec,
  type RunSpec,
} from '@paceline/spec';

const FLOAT_BYTES = Float32Array.BYTES_PER_ELEMENT;
/** What an allocator rounds blocks up to. */
const ALIGNMENT_BYTES = 64;

/** A range of the flat vector. Offsets and lengths count float32 elements. */
export interface PartRange {
  readonly offset: number;
  readonly length: number;
  /** Index of its first chunk in the layout. */
  readonly firstChunk: number;
  readonly chunks: number;
}

/** Elements of a flat vector. */
export interface ElementRange {
  readonly offset: number;
  readonly length: number;
}

/** Where some variables lie in a flat vector, neighbours as one range. @param paths of the variables */
export function rangesOf({ variables }: Pick<Layout, 'variables'>, paths: readonly string[]): ElementRange[] {
  const wanted = new Set(paths);
  const ranges: { offset: number; length: number }[] = [];
  for (const { path, offset, length } of variables) {
    if (!wanted.has(path)) continue;
    const last = ranges.at(-1);
    if (last && last.offset + last.length === offset) last.length += length;
    else ranges.push({ offset, length });
  }
  return ranges;
}

/** Where a vector begins in the arena of each part. */
export type Vector = readonly number[];

/** A node with where its sum lies. */
export interface PlacedNode extends Node {
  readonly vector: Vector;
}

/** Chunk `firstChunk + i` of a part: its codec, and where its bytes lie from the part's pointer on. */
export interface EncodedPart {
  readonly codecs: Uint8Array;
  readonly offsets: Uint32Array;
  readonly lengths: Uint32Array;
}

export interface EncodedGradient {
  readonly vector: Vector;
  readonly parts: readonly EncodedPart[];
  /** In one of its parts at least. */
  readonly lost: ResidualLoss | undefined;
}

/**
 * Cuts the flat vector so that so many of each part fit into an arena.
 * @param vectors that are held at once
 * @param arenaBytes a part of a single chunk may take more
 */
export function partsOf({ chunks }: Pick<Layout, 'chunks'>, vectors: number, arenaBytes = GRADIENT_ARENA_BYTES): PartRange[] {
  const most = (arenaBytes - GRADIENT_ARENA_SLACK_BYTES) / vectors;
  const parts: PartRange[] = [];
  let first = 0;
  for (let end = 1; end <= chunks.length; end++) {
    const [from, last] = [chunks[first]!, chunks[end - 1]!];
    const next = chunks[end];
    if (next && (next.offset + next.length - from.offset) * FLOAT_BYTES + ALIGNMENT_BYTES <= most) continue;
    parts.push({ offset: from.offset, length: last.offset + last.length - from.offset, firstChunk: first, chunks: end - first });
    first = end;
  }
  return parts;
}

/** Vectors that a worker holds at once. @param threads that it computes in: a spec that leaves them out is planned with as many as any worker may have */
export const gradientVectorsOf = (spec: RunSpec, threads: number): number =>
  gradientVectors(Object.assign({}, spec, { strategy: Object.assign({}, spec.strategy, { threads }) }));

/** Encodes vectors of a memory, part by part. */
export interface VectorEncoder {
  /** The caller keeps `vector`, which has the residual in it afterwards; the result is the caller's to free. */
  encode(round: number, replica: number, vector: Vector): EncodedGradient;
  /** What a round has left of a replica; undefined when it is not here. */
  residual(round: number, replica: number): Float32Array<ArrayBuffer> | undefined;
  /** The same, that the next round goes on from. @throws ArenaFullError */
  takeResidual(round: number, replica: number, values: Float32Array): void;
}

interface EncoderOptions {
  readonly seed: number;
  readonly replicas: number;
  /** Examples of a round, over all replicas. */
  readonly examplesOf: (round: number) => number;
}

/** What may be done with vectors wherever they come from. */
class GradientVectors {
  constructor(
    readonly parts: readonly PartRange[],
    protected readonly arenas: readonly Arena[],
    protected readonly layout: Pick<Layout, 'chunks'>,
  ) {}

  /** Its parts, which lie one behind the other in the flat vector. */
  pieces(vector: Vector): Float32Array[] {
    return this.parts.map(({ length }, i) => this.arenas[i]!.f32(vector[i]!, length));
  }

  /** into += from. */
  add(into: Vector, from: Vector): void {
    for (const [i, { length }] of this.parts.entries()) this.arenas[i]!.kernels.add(into[i]!, from[i]!, length);
  }

  /** into += from, in one chunk. */
  addChunk(into: Vector, from: Vector, chunk: number): void {
    const { offset, length } = this.layout.chunks[chunk]!;
    const i = this.parts.findIndex(({ firstChunk, chunks }) => chunk < firstChunk + chunks);
    const bytes = (offset - this.parts[i]!.offset) * FLOAT_BYTES;
    this.arenas[i]!.kernels.add(into[i]! + bytes, from[i]! + bytes, length);
  }

  /** into += from, in some ranges. */
  addRanges(into: Vector, from: Vector, ranges: readonly ElementRange[]): void {
    this.eachPart(ranges, (i, bytes, length) => this.arenas[i]!.kernels.add(into[i]! + bytes, from[i]! + bytes, length));
  }

  clearRanges(vector: Vector, ranges: readonly ElementRange[], value = 0): void {
    this.eachPart(ranges, (i, bytes, length) => this.arenas[i]!.kernels.fill(vector[i]! + bytes, length, value));
  }

  clear(vector: Vector): void {
    for (const [i, { length }] of this.parts.entries()) this.arenas[i]!.kernels.fill(vector[i]!, length, 0);
  }

  allFinite(vector: Vector): boolean {
    return this.parts.every(({ length }, i) => this.arenas[i]!.kernels.allFinite(vector[i]!, length));
  }

  /** @param act gets the number of a part, and which elements of it lie in the ranges: from which byte on, and how many */
  private eachPart(ranges: readonly ElementRange[], act: (part: number, bytes: number, length: number) => void): void {
    for (const [i, part] of this.parts.entries())
      for (const { offset, length } of ranges) {
        const [from, to] = [Math.max(offset, part.offset), Math.min(offset + length, part.offset + part.length)];
        if (from < to) act(i, (from - part.offset) * FLOAT_BYTES, to - from);
      }
  }
}

/** Arenas of another thread: what a reader or a borrower needs of them. */
export interface AttachedMemory {
  readonly memories: readonly SharedMemory[];
  readonly parts: readonly PartRange[];
}

export class GradientMemory extends GradientVectors {
  /** @param vectors that are held at once, at most, by what the run is */
  constructor(layout: Pick<Layout, 'chunks'>, vectors: number, arenaBytes?: number) {
    const most = Math.max(GRADIENT_ARENA_VECTORS, vectors);
    const parts = partsOf(layout, most, arenaBytes);
    // A view that changes within a round may ask for more than was planned: only address space is reserved for that.
    const arenas = parts.map(({ length }) =>
      Arena.create({
        initialBytes: length * FLOAT_BYTES * GRADIENT_ARENA_VECTORS + GRADIENT_ARENA_SLACK_BYTES,
        maximumBytes: ARENA_MAXIMUM_BYTES,
      }),
    );
    super(parts, arenas, layout);
  }

  /** To be attached by another thread, in the order of the parts. */
  get memories(): SharedMemory[] {
    return this.arenas.map(({ memory }) => memory);
  }

  /** Where all of a vector lies. @throws Error when there are several arenas */
  get onlyArena(): Arena {
    const [arena, ...others] = this.arenas;
    if (!arena || others.length > 0) throw new Error(`vectors lie in ${this.arenas.length} arenas, not in one`);
    return arena;
  }

  /** Bytes of all vectors that were allocated and not given back. */
  get bytesInUse(): number {
    return this.arenas.reduce((sum, { bytesInUse }) => sum + bytesInUse, 0);
  }

  /** A flat vector, with whatever was there before. @throws ArenaFullError */
  alloc(): Vector {
    const pointers: number[] = [];
    try {
      for (const [i, { length }] of this.parts.entries()) pointers.push(this.arenas[i]!.alloc(length * FLOAT_BYTES));
    } catch (error) {
      this.free(pointers);
      throw error;
    }
    return pointers;
  }

  free(vector: Vector): void {
    for (const [i, pointer] of vector.entries()) this.arenas[i]!.free(pointer);
  }

  /** What encodes vectors of this memory, into blocks of it. */
  encoder(codec: Codec, spec: CodecSpec, { seed, replicas, examplesOf }: EncoderOptions): VectorEncoder {
    const encoders = this.parts.map(({ offset, firstChunk, chunks }, i) => {
      const own = this.layout.chunks.slice(firstChunk, firstChunk + chunks).map((chunk) => ({
        index: chunk.index,
        offset: chunk.offset - offset,
        length: chunk.length,
        isEncoded: chunk.section === 'trainable',
      }));
      return new GradientEncoder(codec, this.arenas[i]!, own, seed, spec, replicas, examplesOf);
    });
    let kept = 0;
    const places = encoders.map(({ residualFloats: length }) => ({ from: kept, to: (kept += length) }));
    return {
      encode: (round, replica, vector) => {
        const squares = encoders.reduce((sum, encoder, i) => sum + encoder.sumOfSquares(vector[i]!), 0);
        const parts = encoders.map((encoder, i) => encoder.encode(round, replica, vector[i]!, squares));
        return {
          vector: parts.map(({ pointer }) => pointer),
          parts: parts.map(({ codecs, offsets, lengths }) => ({ codecs, offsets, lengths })),
          lost: parts.find((part) => part.lost)?.lost,
        };
      },
      residual: (round, replica) => {
        const values = new Float32Array(kept);
        const isHere = (encoder: GradientEncoder, i: number): boolean =>
          encoder.readResidual(round, replica, values.subarray(places[i]!.from, places[i]!.to));
        return kept > 0 && encoders.every((encoder, i) => isHere(encoder, i)) ? values : undefined;
      },
      takeResidual: (round, replica, values) => {
        if (values.length !== kept) throw new TypeError(`a residual of ${values.length} elements where ${kept} are kept`);
        for (const [i, encoder] of encoders.entries())
          encoder.takeResidual(round, replica, values.subarray(places[i]!.from, places[i]!.to));
      },
    };
  }
}

/** Vectors that the main thread has lent to a compute thread. Whoever is handed a node has its vector; the rest goes back at the end of the step. */
export class LentVectors extends GradientVectors {
  private unused: Vector[] = [];

  constructor(layout: Pick<Layout, 'chunks'>, { memories, parts }: AttachedMemory) {
    super(
      parts,
      memories.map((memory) => Arena.attach(memory)),
      layout,
    );
  }

  lend(vectors: readonly Vector[]): void {
    this.unused.push(...vectors);
  }

  /** With whatever was there before. @throws Error when the step takes more vectors than were lent for it */
  alloc(): Vector {
    const vector = this.unused.pop();
    if (!vector) throw new Error('a step takes more vectors than were lent for it');
    return vector;
  }

  free(vector: Vector): void {
    this.unused.push(vector);
  }

  giveBack(): Vector[] {
    return this.unused.splice(0);
  }
}

/** The vectors as the main thread sees them. */
export class GradientReader {
  private readonly arenas: readonly Arena[];

  constructor(
    memories: readonly SharedMemory[],
    private readonly parts: readonly PartRange[],
  ) {
    this.arenas = memories.map((memory) => Arena.attach(memory));
  }

  /** A chunk of a vector, as it is or as encoded. */
  chunk(
    vector: Vector,
    encoded: readonly EncodedPart[] | undefined,
    { index, offset, length }: Pick<MemberChunk, 'index' | 'offset' | 'length'>,
  ): ChunkBytes {
    // By its place: chunks of a table that is exchanged by rows are not counted here.
    const i = this.parts.findIndex((part) => offset < part.offset + part.length);
    const [arena, part, pointer] = [this.arenas[i]!, this.parts[i]!, vector[i]!];
    if (!encoded) return { codec: 0, bytes: arena.bytes(pointer + (offset - part.offset) * FLOAT_BYTES, length * FLOAT_BYTES) };
    const { codecs, offsets, lengths } = encoded[i]!;
    const at = index - part.firstChunk;
    return { codec: codecs[at]!, bytes: arena.bytes(pointer + offsets[at]!, lengths[at]!) };
  }
}
