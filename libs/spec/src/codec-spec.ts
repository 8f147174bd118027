/** The codec of a run: how gradients travel from workers to servers. */
import { z } from 'zod';

export const CODECS = ['none', 'fp16', 'bf16', 'int8', 'int4', 'int2', 'sign', 'top-k', 'threshold', 'random-k'] as const;
export const DEFAULT_DENSITY = 0.01;
const MOST_TOP_K = 0.5;

export const codecSchema = z.strictObject({
  kind: z
    .enum(CODECS)
    .describe(
      'How a gradient is encoded: none sends float32; fp16 and bf16 halve it; int8, int4 and int2 round at random; sign sends one bit; top-k, threshold and random-k send some elements.',
    ),
  density: z.number().gt(0).max(1).describe('With top-k and random-k: the share of the elements that is sent. Left out: 0.01.').optional(),
  threshold: z
    .number()
    .gt(0)
    .max(1e6)
    .describe('With threshold: elements of the mean gradient of a replica are sent from this magnitude on.')
    .optional(),
  errorFeedback: z
    .boolean()
    .describe('Keep what the encoding left out, and add it to the next gradient of the replica (Karimireddy et al. 2019).')
    .default(false),
});

export type CodecSpec = z.output<typeof codecSchema>;

/** Options that do not belong to the codec, or that the codec does not go with. */
export function codecConflicts({
  codec,
  strategy,
  gradient,
}: {
  codec?: CodecSpec | undefined;
  strategy: { mode: string; backupReplicas: number };
  gradient: { nonFinite: string };
}): [field: string, message: string][] {
  if (!codec) return [];
  const { kind, density, threshold, errorFeedback } = codec;
  const conflicts: [string, string][] = [];
  if (density !== undefined && kind !== 'top-k' && kind !== 'random-k')
    conflicts.push(['codec.density', `belongs to top-k and random-k; the codec is ${kind}: leave it out`]);
  if (kind === 'top-k' && (density ?? 0) > MOST_TOP_K)
    conflicts.push([
      'codec.density',
      `must be at most ${MOST_TOP_K} with top-k: an element takes five bytes and more, and more of them would be longer than the gradient`,
    ]);
  if (threshold !== undefined && kind !== 'threshold')
    conflicts.push(['codec.threshold', `belongs to the codec threshold; the codec is ${kind}: leave it out`]);
  if (threshold === undefined && kind === 'threshold')
    conflicts.push(['codec.threshold', 'is needed by the codec threshold: give the magnitude from which on an element is sent']);
  if (!errorFeedback) return conflicts;
  if (kind === 'none') conflicts.push(['codec.errorFeedback', 'needs a codec that leaves something out; the codec is none']);
  if (strategy.mode !== 'sync')
    conflicts.push(['codec.errorFeedback', `needs mode sync, where a replica has one gradient per round; the mode is ${strategy.mode}`]);
  if (strategy.backupReplicas > 0)
    conflicts.push(['codec.errorFeedback', 'does not go with backupReplicas: what a replica that is left out has sent would be lost']);
  if (gradient.nonFinite === 'skip')
    conflicts.push(['codec.errorFeedback', 'does not go with nonFinite skip: what was sent in a round that is left out would be lost']);
  return conflicts;
}

/** Whether gradients are encoded: every replica is a leaf of its own then. */
export const isEncoded = ({ codec }: { readonly codec?: CodecSpec | undefined }): boolean => codec !== undefined && codec.kind !== 'none';

/** Bits that an element takes at most once it is encoded, of a chunk of more than a few elements. */
export function encodedBits({ kind, density = DEFAULT_DENSITY }: CodecSpec): number {
  switch (kind) {
    case 'none':
    case 'threshold':
      return 32;
    case 'fp16':
    case 'bf16':
      return 16.1;
    case 'int8':
      return 8.2;
    case 'int4':
      return 4.2;
    case 'int2':
      return 2.2;
    case 'sign':
      return 1.2;
    case 'top-k':
      return 72 * density;
    case 'random-k':
      return 32 * density;
  }
}
