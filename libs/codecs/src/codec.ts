/** What a codec is: a pure function of a chunk and a key, and its inverse as far as there is one. */
import type { Arena } from '@paceline/kernels';

/** Where the elements of a chunk lie, and what they are encoded under. */
export interface Codec {
  /** In the header of a frame; 0 is the chunk as it is. */
  readonly number: number;
  /** Bytes that `encode` writes at most. @param n float32 elements */
  maxBytes(n: number): number;
  /** Whether n elements can take so many bytes. It is asked before a payload is read. */
  isLength(n: number, bytes: number): boolean;
  /**
   * Writes n float32 elements at `from` as bytes at `to`. Random numbers are a function of `key` alone. An element that is not finite is decoded as one.
   * @param examples that the gradient is a sum over
   * @returns the bytes written; 0 when the chunk is shorter as it is, and has to be sent so
   */
  encode(arena: Arena, from: number, to: number, n: number, key: number, examples: number): number;
  /** Writes n float32 elements at `to`. @returns false when the bytes are none that `encode` writes; what lies at `to` is open then */
  decode(arena: Arena, from: number, bytes: number, to: number, n: number, key: number): boolean;
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
