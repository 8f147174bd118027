/** The codec of a run: how gradients travel from workers to servers, and parameters back. */
import { z } from 'zod';
import { LIMITS } from './limits.js';
import { backupReplicasOf } from './strategy.js';

export const CODECS = [
  'none',
  'fp16',
  'bf16',
  'int8',
  'int4',
  'int2',
  'sign',
  'top-k',
  'threshold',
  'random-k',
  'dgc',
  'power-sgd',
  'auto',
] as const;
/** How parameters travel from servers to workers. */
export const PARAMETER_CODECS = ['float32', 'fp16', 'bf16', 'int8', 'delta-int4', 'delta-int2', 'delta-top-k'] as const;
export const DEFAULT_PARAMETER_DENSITY = 0.05;
/** How the elements travel that a sparse codec sends. */
export const VALUE_KINDS = ['float32', 'bf16', 'int8', 'int4', 'int2'] as const;
export type ValueKind = (typeof VALUE_KINDS)[number];
const SPARSE = ['top-k', 'threshold', 'random-k'] as const satisfies readonly (typeof CODECS)[number][];
export const DEFAULT_DENSITY = 0.01;
const MOST_TOP_K = 0.5;
/** What a replica keeps with error feedback: what was left out, or the estimate of its gradient that the servers have too. */
export const FEEDBACK_RULES = ['residual', 'ef21'] as const;
export const DEFAULT_MOMENTUM = 0.9;
export const DEFAULT_RANK = 1;
/** With dgc: the share that a warm-up begins with. */
const DGC_FIRST_DENSITY = 0.25;

export const codecSchema = z.strictObject({
  kind: z
    .enum(CODECS)
    .describe(
      'How a gradient is encoded: none sends float32; fp16 and bf16 halve it; int8, int4 and int2 round at random; sign sends one bit; top-k, threshold and random-k send some elements; dgc sends the largest ones of gradients whose momentum is kept at the replica; power-sgd sends two thin factors of each matrix; auto measures the first rounds and picks none, fp16, int8 or int4, for parameters too.',
    )
    .default('none'),
  density: z
    .number()
    .gt(0)
    .max(1)
    .describe('With top-k, random-k and dgc: the share of the elements that is sent. Left out: 0.01.')
    .optional(),
  threshold: z
    .number()
    .gt(0)
    .max(1e6)
    .describe('With threshold: elements of the mean gradient of a replica are sent from this magnitude on.')
    .optional(),
  values: z
    .enum(VALUE_KINDS)
    .describe(
      'With top-k, threshold and random-k: how the elements that are sent travel. int8 and int4 round at random with a step for each 512 of them; int2 sends the sign and one of two magnitudes of their 512. Left out: float32.',
    )
    .optional(),
  momentum: z.number().min(0).lt(1).describe('With dgc: the momentum that each replica keeps. Left out: 0.9.').optional(),
  warmupRounds: z
    .int()
    .min(0)
    .max(1_000_000)
    .describe('With dgc: rounds in which the share that is sent falls from a quarter to `density`. Left out: 0.')
    .optional(),
  clipNorm: z
    .number()
    .gt(0)
    .max(1e6)
    .describe(
      'With dgc: bound on the norm of the mean gradient; each replica cuts its own gradient to the part of one of as many replicas.',
    )
    .optional(),
  rank: z
    .int()
    .min(1)
    .max(LIMITS.codecRank)
    .describe('With power-sgd: columns of the two factors that are sent of each matrix. Left out: 1.')
    .optional(),
  errorFeedback: z
    .boolean()
    .describe(
      'Keep what the encoding leaves out of the gradient of a replica, by `feedbackRule`; without one it is added to its next gradient (Karimireddy et al. 2019).',
    )
    .default(false),
  feedbackRule: z
    .enum(FEEDBACK_RULES)
    .describe(
      'With errorFeedback. residual: what the encoding left out is added to the next gradient. ef21: the difference of the gradient to an estimate is sent, which the replica keeps, and the servers add up (Richtárik, Sokolov and Fatkhullin 2021). Left out: residual.',
    )
    .optional(),
  parameters: z
    .enum(PARAMETER_CODECS)
    .describe(
      'How parameters are sent to workers. fp16, bf16 and int8: servers keep them as float32, and all workers compute with the same rounded ones. delta-int4, delta-int2 and delta-top-k: what workers have is brought nearer to them by an encoded difference. Left out: float32.',
    )
    .optional(),
  parameterDensity: z
    .number()
    .gt(0)
    .max(MOST_TOP_K)
    .describe('With parameters delta-top-k: the share of the elements whose difference is sent. Left out: 0.05.')
    .optional(),
});

export type CodecSpec = z.output<typeof codecSchema>;

/** Options that do not belong to the codec, or that the codec does not go with. */
export function codecConflicts({
  codec,
  strategy,
  gradient,
  optimizer,
}: {
  codec?: CodecSpec | undefined;
  strategy: { kind?: string; mode: string; backupReplicas?: number | undefined; standby?: number | undefined; outerOptimizer?: string };
  gradient: { nonFinite: string };
  optimizer: { name: string; emaOverwriteRounds?: number | undefined };
}): [field: string, message: string][] {
  if (!codec) return [];
  const { kind, density, threshold } = codec;
  if (kind === 'auto') return autoConflicts(codec, strategy);
  const conflicts: [string, string][] = [];
  if (sendsEncodedParameters({ codec }) && strategy.mode !== 'sync')
    conflicts.push([
      'codec.parameters',
      `needs mode sync, where all workers have the parameters of a round in the same bytes; the mode is ${strategy.mode}: leave it out`,
    ]);
  if (sendsDeltas({ codec }) && (strategy.standby ?? 0) > 0)
    conflicts.push([
      'codec.parameters',
      `${codec.parameters} does not go with standby: a server that takes over would not know what workers have; set strategy.standby to 0, or take int8`,
    ]);
  if (sendsDeltas({ codec }) && optimizer.emaOverwriteRounds !== undefined)
    conflicts.push([
      'optimizer.emaOverwriteRounds',
      `does not go with codec.parameters ${codec.parameters}: weights that become their averages at once are far from what workers have, for many rounds; leave it out, or take parameters int8`,
    ]);
  if (codec.parameterDensity !== undefined && codec.parameters !== 'delta-top-k')
    conflicts.push(['codec.parameterDensity', 'belongs to parameters delta-top-k: leave it out']);
  if (density !== undefined && kind !== 'top-k' && kind !== 'random-k' && kind !== 'dgc')
    conflicts.push(['codec.density', `belongs to top-k, random-k and dgc; the codec is ${kind}: leave it out`]);
  if (kind === 'top-k' && (density ?? 0) > MOST_TOP_K)
    conflicts.push([
      'codec.density',
      `must be at most ${MOST_TOP_K} with top-k: an element takes five bytes and more, and more of them would be longer than the gradient`,
    ]);
  if (threshold !== undefined && kind !== 'threshold')
    conflicts.push(['codec.threshold', `belongs to the codec threshold; the codec is ${kind}: leave it out`]);
  if (threshold === undefined && kind === 'threshold')
    conflicts.push(['codec.threshold', 'is needed by the codec threshold: give the magnitude from which on an element is sent']);
  if (codec.values !== undefined && !SPARSE.some((sparse) => sparse === kind))
    conflicts.push(['codec.values', `belongs to top-k, threshold and random-k; the codec is ${kind}: leave it out`]);
  if (codec.rank !== undefined && kind !== 'power-sgd')
    conflicts.push(['codec.rank', `belongs to power-sgd; the codec is ${kind}: leave it out`]);
  if (codec.feedbackRule !== undefined && !codec.errorFeedback)
    conflicts.push(['codec.feedbackRule', 'belongs to errorFeedback: set that to true, or leave this out']);
  if (kind === 'power-sgd' && codec.errorFeedback) conflicts.push(['codec.errorFeedback', 'is part of power-sgd: leave it out']);
  if (kind === 'dgc') conflicts.push(...dgcConflicts(codec, strategy, optimizer));
  else
    for (const option of ['momentum', 'warmupRounds', 'clipNorm'] as const)
      if (codec[option] !== undefined) conflicts.push([`codec.${option}`, `belongs to dgc; the codec is ${kind}: leave it out`]);
  if (!keepsRest(codec)) return conflicts;
  const [field, what] = hasOwnFeedback(kind) ? (['codec.kind', `${kind} `] as const) : (['codec.errorFeedback', ''] as const);
  if (strategy.outerOptimizer === 'elastic')
    conflicts.push([
      field,
      `${what}does not go with outerOptimizer elastic: what a round leaves out of a difference of weights is in that of the next round anyway, and would count twice; take a codec without error feedback`,
    ]);
  if (kind === 'none') conflicts.push(['codec.errorFeedback', 'needs a codec that leaves something out; the codec is none']);
  if (strategy.mode !== 'sync')
    conflicts.push([field, `${what}needs mode sync, where a replica has one gradient per round; the mode is ${strategy.mode}`]);
  if (backupReplicasOf(strategy) > 0)
    conflicts.push([field, `${what}does not go with backupReplicas: what a replica that is left out has sent would be lost`]);
  if (gradient.nonFinite === 'skip')
    conflicts.push([field, `${what}does not go with nonFinite skip: what was sent in a round that is left out would be lost`]);
  return conflicts;
}

/** What auto picks goes both ways and keeps nothing, so it has no options. */
function autoConflicts(codec: CodecSpec, { mode, standby = 0 }: { mode: string; standby?: number | undefined }): [string, string][] {
  const conflicts: [string, string][] = [];
  if (mode !== 'sync')
    conflicts.push(['codec.kind', `auto needs mode sync, where all workers change to a codec in one round; the mode is ${mode}`]);
  if (standby > 0)
    conflicts.push([
      'codec.kind',
      'auto does not go with standby: a coordinator that takes over would not know what was picked; name a codec, or leave standby out',
    ]);
  for (const option of [
    'density',
    'threshold',
    'values',
    'momentum',
    'warmupRounds',
    'clipNorm',
    'rank',
    'parameters',
    'parameterDensity',
    'feedbackRule',
  ] as const)
    if (codec[option] !== undefined) conflicts.push([`codec.${option}`, 'is picked by auto, or belongs to another codec: leave it out']);
  if (codec.errorFeedback)
    conflicts.push(['codec.errorFeedback', 'does not go with auto, which picks codecs that keep nothing: leave it out']);
  return conflicts;
}

function dgcConflicts(
  { density = DEFAULT_DENSITY, errorFeedback }: CodecSpec,
  { kind }: { kind?: string },
  { name }: { name: string },
): [string, string][] {
  const conflicts: [string, string][] = [];
  if (kind === 'local-update')
    conflicts.push([
      'codec.kind',
      'dgc does not go with local-update, whose replicas have an optimizer of their own: take top-k with errorFeedback',
    ]);
  else if (name !== 'sgd')
    conflicts.push([
      'codec.kind',
      `dgc keeps the momentum at the replicas, where it counts what waits to be sent; the optimizer ${name} would apply one of its own to gradients that come late: take the optimizer sgd, and codec.momentum`,
    ]);
  if (density > DGC_FIRST_DENSITY) conflicts.push(['codec.density', `must be at most ${DGC_FIRST_DENSITY} with dgc`]);
  if (errorFeedback) conflicts.push(['codec.errorFeedback', 'is part of dgc: leave it out']);
  return conflicts;
}

/** Whether replicas keep what the encoding has left out. */
export const keepsRest = ({ kind, errorFeedback }: CodecSpec): boolean => errorFeedback || hasOwnFeedback(kind);

/** EF21: the servers keep the sum of the estimates of all replicas, which each round adds to. */
export const keepsEstimate = ({ codec }: { readonly codec?: CodecSpec | undefined }): boolean =>
  codec?.errorFeedback === true && codec.feedbackRule === 'ef21';

/** Error feedback is a part of it. */
const hasOwnFeedback = (kind: CodecSpec['kind']): boolean => kind === 'dgc' || kind === 'power-sgd';

/** With dgc: the share of the elements that a round sends (Lin et al. 2018, section 3.3), from a quarter on in equal factors. */
export function dgcDensity({ density = DEFAULT_DENSITY, warmupRounds = 0 }: CodecSpec, round: number): number {
  if (round >= warmupRounds) return density;
  return DGC_FIRST_DENSITY * (density / DGC_FIRST_DENSITY) ** (round / warmupRounds);
}

/** Whether the coordinator picks the codec. Until then, and where it picks none, gradients travel as without one. */
export const picksCodec = ({ codec }: { readonly codec?: CodecSpec | undefined }): boolean => codec?.kind === 'auto';

/** Whether gradients are encoded, or may be: with auto from some round on. Every replica that is encoded is a leaf of its own. */
export const isEncoded = ({ codec }: { readonly codec?: CodecSpec | undefined }): boolean => codec !== undefined && codec.kind !== 'none';

/** Whether parameters are encoded for the workers, or may be. */
export const sendsEncodedParameters = ({ codec }: { readonly codec?: CodecSpec | undefined }): boolean =>
  codec?.kind === 'auto' || (codec?.parameters !== undefined && codec.parameters !== 'float32');

/** Whether workers get the differences to what they have. */
export const sendsDeltas = ({ codec }: { readonly codec?: CodecSpec | undefined }): boolean =>
  codec?.parameters?.startsWith('delta-') === true;

/** Bits that a parameter takes at most in the encoded generation that servers keep for the workers; 0 where there is none. */
export function encodedParameterBits({ codec }: { readonly codec?: CodecSpec | undefined }): number {
  if (!codec || !sendsEncodedParameters({ codec })) return 0;
  // Beside a difference what workers have.
  return sentParameterBits(codec) + (sendsDeltas({ codec }) ? 32 : 0);
}

/** Bits of a parameter on its way to a worker, at most. With auto those of the largest that it may pick, beside none. */
export function sentParameterBits(codec: CodecSpec): number {
  const bits = (kind: CodecSpec['kind'], density = 1): number => encodedBits({ kind, density, errorFeedback: false });
  if (!sendsEncodedParameters({ codec })) return 32;
  switch (codec.parameters) {
    case 'int8':
      return bits('int8');
    case 'delta-int4':
      return bits('int4');
    case 'delta-int2':
      return bits('int2');
    case 'delta-top-k':
      return bits('top-k', codec.parameterDensity ?? DEFAULT_PARAMETER_DENSITY);
    default:
      return bits('fp16');
  }
}

/** Bits that an element takes at most once it is encoded, of a chunk of more than a few elements. */
export function encodedBits({ kind, density = DEFAULT_DENSITY, warmupRounds = 0 }: CodecSpec): number {
  switch (kind) {
    case 'none':
    case 'threshold':
    case 'power-sgd':
      return 32;
    case 'fp16':
    case 'bf16':
    case 'auto':
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
    case 'dgc':
      return 72 * (warmupRounds > 0 ? DGC_FIRST_DENSITY : density);
  }
}
