/** Chunks of the flat vector, as servers and workers hold them. Offsets and lengths count float32 elements. */
import type { Arena } from '@paceline/kernels';

/** A chunk at the server that owns it. */
export interface OwnedChunk {
  /** Index in the layout's grid. */
  readonly index: number;
  readonly length: number;
  /** Parameters, slots and gradients of a chunk lie in one arena. */
  readonly arena: Arena;
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

/** Chunk i has `lengths[i]` bytes from `offsets[i]` on, in the codec of that number. */
export interface EncodedParts {
  readonly codecs: Uint8Array;
  readonly offsets: Uint32Array;
  readonly lengths: Uint32Array;
}

/** A gradient node in memory that the compute thread filled: sums of the replicas [lo, hi), flat layout. */
export interface GradientNode {
  readonly round: number;
  readonly lo: number;
  readonly hi: number;
  /** The flat vector, trainable and state, as bytes over shared memory; or its chunks as encoded. */
  readonly bytes: Uint8Array;
  /** Where `bytes` has each chunk, by its index, when they are encoded. */
  readonly encoded?: EncodedParts | undefined;
  /** Gives the memory back to the compute thread. Called once, when the machine has let go of it and no socket reads it any more. */
  release(): void;
}
