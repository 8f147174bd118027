/** Sums between processes in fewer bytes: the codecs that write as many bytes for as many elements. */
import { codecKey, codecOf } from '@paceline/codecs';
import type { Packing } from '@paceline/collectives';
import { Arena } from '@paceline/kernels';

/** Codecs that write as many bytes for as many elements, and keep nothing from step to step. */
export const SUM_CODECS = ['fp16', 'bf16', 'int8'] as const;
export type SumCodec = (typeof SUM_CODECS)[number];
/** A codec whose sums take two all-reduces: low-rank-exchange.ts. */
export const LOW_RANK = 'power-sgd';
/** How sums of gradients may travel between processes. */
export type MemberCodec = SumCodec | typeof LOW_RANK | 'none';
/** Codecs that write as many bytes too, and leave so much out that it is kept and added to the next sum (error feedback). */
export const FEEDBACK_CODECS = ['int4', 'sign'] as const;
export type GradientCodecKind = SumCodec | (typeof FEEDBACK_CODECS)[number];
export const keepsRest = (kind: GradientCodecKind | 'none'): boolean => FEEDBACK_CODECS.some((name) => name === kind);

/** A member has far fewer nodes than this. The sum of all has −1 in place of the node: the last place of the member before. */
const PLACES = 1 << 16;

/**
 * @param length elements that are packed: the trainable ones
 * @param place the arena that pieces lie in, or a function that returns it when a piece is packed; without it only `bytes` may be asked
 */
export function packedSums(
  kind: GradientCodecKind | 'none',
  seed: number,
  length: number,
  place?: Arena | (() => Arena),
): Packing | undefined {
  if (kind === 'none') return undefined;
  const codec = codecOf({ kind, errorFeedback: false })!;
  const memory = (): Arena => {
    const arena = typeof place === 'function' ? place() : place;
    if (arena) return arena;
    throw new Error('a packing without an arena packs nothing');
  };
  return {
    number: codec.number,
    length,
    bytes: (elements) => codec.maxBytes(elements),
    pack: (from, into, [step = 0, member = 0, node = 0, piece = 0]) =>
      void codec.encode(
        memory(),
        from.byteOffset,
        into.byteOffset,
        from.length,
        codecKey(seed, step, Math.imul(member, PLACES) + node, piece),
        1,
      ),
    unpack: (from, into) => codec.decode(memory(), from.byteOffset, from.length, into.byteOffset, into.length, 0),
  };
}
