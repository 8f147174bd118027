/** What a codec is: a pure function of a chunk and a key, and its inverse as far as there is one. */
import type { Arena } from '@paceline/kernels';

/** What a replica keeps from one round to the next for its encoding, `warmFloats` of them, in the memory of the chunk. */
export interface WarmStart {
  /** Where what the round before has left lies; undefined: nothing is kept. */
  readonly before: number | undefined;
  /** Where what this round leaves is written. */
  readonly after: number;
}

/** Where the elements of a chunk lie, and what they are encoded under. */
export interface Codec {
  /** In the header of a frame; 0 is the chunk as it is. */
  readonly number: number;
  /** Leaves chunks as they are that would be longer. */
  readonly leavesSome: boolean;
  /** How a round encodes, where that depends on it. What it writes is decoded as that of any other. */
  at?(round: number): Codec;
  /** How the chunk of this index is encoded and decoded, where that depends on the variables in it. */
  of?(chunk: number): Codec;
  /** Elements that a replica keeps of a chunk of n, where it does. */
  warmFloats?(n: number): number;
  /** Bytes that `encode` writes at most. @param n float32 elements */
  maxBytes(n: number): number;
  /** Whether n elements can take so many bytes. It is asked before a payload is read. */
  isLength(n: number, bytes: number): boolean;
  /**
   * Writes n float32 elements at `from` as bytes at `to`. Random numbers are a function of `key` alone. An element that is not finite is decoded as one.
   * @param examples that the gradient is a sum over
   * @returns the bytes written; 0 when the chunk is shorter as it is, and has to be sent so
   */
  encode(arena: Arena, from: number, to: number, n: number, key: number, examples: number, warm?: WarmStart): number;
  /** Whether so many bytes are some that `encode` writes, as far as `decode` looks. It decodes nothing: what is taken may wait as it is. */
  takes(arena: Arena, from: number, bytes: number, n: number): boolean;
  /** Writes n float32 elements at `to`. @returns false when the bytes are none that `encode` writes; what lies at `to` is open then */
  decode(arena: Arena, from: number, bytes: number, to: number, n: number, key: number): boolean;
  /** Adds to n elements at `to` what `decode` writes: the bits are those of decoding first and adding then. @param bytes that `takes` has taken */
  add(arena: Arena, from: number, bytes: number, to: number, n: number, key: number): void;
}

const P1 = 0x9e3779b1;
const P2 = 0x85ebca77;

/** The key of a chunk of a replica's gradient: 32 bits that nothing else in the run has, as far as 32 bits can say. */
export function codecKey(seed: number, round: number, replica: number, chunk: number): number {
  let key = 0;
  for (const part of [seed, round, replica, chunk]) {
    key = Math.imul(key ^ part, P1);
    key = Math.imul(key ^ (key >>> 15), P2);
    key ^= key >>> 13;
  }
  return key >>> 0;
}
