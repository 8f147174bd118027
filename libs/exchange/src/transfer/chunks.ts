/** Chunks of the flat vector, as servers and workers hold them. Offsets and lengths count float32 elements. */
import type { Arena } from '@paceline/kernels';
import { Codec } from '@paceline/protocol';
import { bytesOf } from '../attempt/regions.js';

/** A chunk at the server that owns it. */
export interface OwnedChunk {
  /** Index in the layout's grid. */
  readonly index: number;
  readonly length: number;
  /** Parameters, slots and gradients of a chunk lie in one arena. */
  readonly arena: Arena;
  /** It is a group of rows: its gradients come by rows, and its parameters are asked for. */
  readonly rows?: { readonly count: number; readonly width: number } | undefined;
}

/** A chunk at a worker. */
export interface MemberChunk {
  readonly index: number;
  /** In the flat vector. */
  readonly offset: number;
  readonly length: number;
  /** Server that owns it. */
  readonly server: number;
}

/** A chunk as it is sent. */
export interface ChunkBytes {
  readonly codec: number;
  /** They must not change before `onFlushed`, as in Connection.sendData. */
  readonly bytes: Uint8Array;
}

/** A gradient node in memory that the compute thread filled: sums of the replicas [lo, hi). */
export interface GradientNode {
  readonly round: number;
  readonly lo: number;
  readonly hi: number;
  /** A chunk of it, trainable or state, over shared memory: as float32, or as encoded. */
  chunk(chunk: Pick<MemberChunk, 'index' | 'offset' | 'length'>): ChunkBytes;
  /** Gives the memory back to the compute thread. Called once, when the machine has let go of it and no socket reads it any more. */
  release(): void;
}

/** The chunks of a flat vector that lies in one piece. */
export const chunksOf =
  (vector: Uint8Array): GradientNode['chunk'] =>
  (chunk) => ({ codec: Codec.none, bytes: partOf(vector, chunk) });

/** The bytes of a chunk in the flat vector. */
export const partOf = (vector: Uint8Array, { offset, length }: Pick<MemberChunk, 'offset' | 'length'>): Uint8Array =>
  vector.subarray(bytesOf(offset), bytesOf(offset + length));
