/**
 * Chunks of the flat vector as servers and workers hold them.
 */
import type { Arena } from '@paceline/kernels';

/** A gradient node in memory that the compute thread filled: sums of the replicas [lo, hi), flat layout. */
export interface GradientNode {
  readonly round: number;
  readonly lo: number;
  readonly hi: number;
  /** The whole flat vector, trainable and state, as bytes over shared memory. */
  readonly bytes: Uint8Array;
  /** Gives the memory back to the compute thread. Called once, after COMMIT and when no socket reads it any more. */
  release(): void;
}

export interface MemberChunk {
  readonly index: number;
  /** Byte offset and length in the flat vector. */
  readonly byteOffset: number;
  readonly byteLength: number;
  /** Server that owns it. */
  readonly server: number;
}

export interface OwnedChunk {
  /** Index in the layout's grid. */
  readonly index: number;
  /** Float32 elements. */
  readonly length: number;
  /** Parameters, slots and gradients of a chunk lie in one arena. */
  readonly arena: Arena;
}
