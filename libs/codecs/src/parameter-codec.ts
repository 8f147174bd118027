/**
 * The way back: parameters from servers to workers in fewer bytes. A server keeps them as float32 and encodes each generation of a chunk once, so nothing
 * that is rounded away adds up, and all workers decode the same bytes. What is sent is a function of (seed, generation, chunk) and the values: a standby,
 * another number of servers and an attempt that begins with a checkpoint publish the same.
 */
import type { Arena } from '@paceline/kernels';
import type { CodecSpec } from '@paceline/spec';
import { codecKey, type Codec } from './codec.js';
import { codecOf } from './codecs.js';

/** In place of the replica in a key: that of no gradient. */
const PARAMETERS = -1;
const FLOAT_BYTES = 4;

export interface ParameterCodec extends Pick<Codec, 'number' | 'isLength'> {
  /** @returns memory of the caller, and the bytes that are used of it */
  encode(arena: Arena, from: number, n: number, generation: number, chunk: number): { pointer: number; length: number; bytes: number };
  /** Writes n float32 elements at `to`. @returns false when the bytes are none that `encode` writes */
  decode(arena: Arena, from: number, bytes: number, to: number, n: number, generation: number, chunk: number): boolean;
}

/** Undefined where parameters travel as float32, or as differences (parameter-deltas.ts). */
export function parameterCodecOf(spec: CodecSpec | undefined, seed: number): ParameterCodec | undefined {
  const kind = spec?.parameters;
  if (kind !== 'fp16' && kind !== 'bf16' && kind !== 'int8') return undefined;
  const codec = codecOf({ kind, errorFeedback: false })!;
  const keyOf = (generation: number, chunk: number): number => codecKey(seed, generation, PARAMETERS, chunk);
  return {
    number: codec.number,
    isLength: (n, bytes) => codec.isLength(n, bytes),
    encode(arena, from, n, generation, chunk) {
      const length = Math.ceil(codec.maxBytes(n) / FLOAT_BYTES);
      const pointer = arena.alloc(length * FLOAT_BYTES);
      return { pointer, length, bytes: codec.encode(arena, from, pointer, n, keyOf(generation, chunk), 1) };
    },
    decode: (arena, from, bytes, to, n, generation, chunk) => codec.decode(arena, from, bytes, to, n, keyOf(generation, chunk)),
  };
}
