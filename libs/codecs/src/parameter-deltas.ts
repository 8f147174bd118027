/**
 * The way back as differences, with error feedback at the server: all workers have the same reference of a chunk, and each generation moves it towards the
 * exact parameters by an encoded difference.
 *
 *   difference = parameters(k+1) - reference(k) ── encoded ──> every worker that has reference(k)
 *   reference(k+1) = reference(k) + what the difference is decoded to          at the server and at each worker, in the same float32 addition
 *
 * What the encoding leaves out is in the next difference: nothing is lost, only late. A worker that does not have reference(k) gets reference(k+1) as it
 * is. The first reference of an attempt are the exact parameters.
 */
import type { Arena } from '@paceline/kernels';
import { DEFAULT_PARAMETER_DENSITY, type CodecSpec } from '@paceline/spec';
import { codecKey, type Codec } from './codec.js';
import { codecOf, levelsCodec } from './codecs.js';

/** In place of the replica in a key, as that of parameters. */
const PARAMETERS = -1;
const FLOAT_BYTES = 4;
const NUMBER = 12;

/** A difference, and the reference that it leads to: memory of the caller. */
export interface Advance {
  readonly difference: { readonly pointer: number; readonly length: number; readonly bytes: number };
  readonly reference: number;
}

export interface ParameterDeltas extends Pick<Codec, 'number' | 'isLength'> {
  /** @param reference that all have. @returns undefined where the chunk is shorter as it is, or not finite: the reference is then the chunk itself */
  advance(arena: Arena, values: number, reference: number, n: number, generation: number, chunk: number): Advance | undefined;
  /** Writes the difference, n float32 elements, at `to`. @returns false when the bytes are none that `advance` writes */
  decode(arena: Arena, from: number, bytes: number, to: number, n: number, generation: number, chunk: number): boolean;
}

function differenceCodec({ parameters, parameterDensity = DEFAULT_PARAMETER_DENSITY }: CodecSpec): Codec | undefined {
  switch (parameters) {
    case 'delta-int4':
      return codecOf({ kind: 'int4', errorFeedback: false });
    case 'delta-int2':
      return levelsCodec;
    case 'delta-top-k':
      return codecOf({ kind: 'top-k', density: parameterDensity, values: 'int2', errorFeedback: true });
    default:
      return undefined;
  }
}

/** Undefined where parameters travel whole. */
export function parameterDeltasOf(spec: CodecSpec | undefined, seed: number): ParameterDeltas | undefined {
  const codec = spec && differenceCodec(spec);
  if (!codec) return undefined;
  const keyOf = (generation: number, chunk: number): number => codecKey(seed, generation, PARAMETERS, chunk);
  return {
    number: NUMBER,
    isLength: (n, bytes) => codec.isLength(n, bytes),
    advance(arena, values, reference, n, generation, chunk) {
      const { kernels } = arena;
      const next = arena.alloc(FLOAT_BYTES * n);
      const length = Math.ceil(codec.maxBytes(n) / FLOAT_BYTES);
      const pointer = arena.alloc(FLOAT_BYTES * length);
      const key = keyOf(generation, chunk);
      kernels.sgd(values, next, reference, n, 1, 1); // next = values - reference
      const bytes = kernels.allFinite(next, n) ? codec.encode(arena, next, pointer, n, key, 1) : 0;
      if (bytes > 0) {
        kernels.copy(next, reference, n);
        codec.add(arena, pointer, bytes, next, n, key);
        return { difference: { pointer, length, bytes }, reference: next };
      }
      arena.free(pointer);
      arena.free(next);
      return undefined;
    },
    decode: (arena, from, bytes, to, n, generation, chunk) => codec.decode(arena, from, bytes, to, n, keyOf(generation, chunk)),
  };
}
