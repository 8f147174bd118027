/**
 * What a simulated run does with gradients before they are applied (docs/protocol.md §9.5): its plan, clipping, what follows from NaN and
 * infinity, backup replicas; and the same arithmetic for the reference, beside that of ParameterStore.
 */
import type { Kernels } from '@paceline/kernels';
import type { RoundVerdict } from '@paceline/learning';
import type { Random } from './random.js';
import type { TinyRun } from './tiny-run.js';

export interface GradientShape {
  readonly clipNorm?: number;
  readonly clipGlobalNorm?: number;
  readonly nonFinite: 'fail' | 'skip' | 'rollback';
  readonly backupReplicas: number;
}

/** Plan streaming. */
export const STREAMING: GradientShape = { nonFinite: 'fail', backupReplicas: 0 };

export function randomGradient(random: Random, replicas: number): GradientShape {
  const nonFinite = random.pick(['fail', 'skip', 'rollback'] as const);
  if (random.chance(0.6)) return { nonFinite: nonFinite === 'skip' ? 'fail' : nonFinite, backupReplicas: 0 };
  const norms = (): number => random.pick([0.05, 0.5, 2, 50]);
  return {
    ...(random.chance(0.4) ? { clipNorm: norms() } : {}),
    ...(random.chance(0.4) ? { clipGlobalNorm: norms() } : {}),
    nonFinite,
    backupReplicas: replicas > 1 && random.chance(0.4) ? random.int(1, Math.min(2, replicas - 1)) : 0,
  };
}

export const isTwoPhase = ({ clipNorm, clipGlobalNorm, nonFinite, backupReplicas }: GradientShape): boolean =>
  clipNorm !== undefined || clipGlobalNorm !== undefined || nonFinite === 'skip' || backupReplicas > 0;

/** Pairs of chunks make a variable: some lie on two servers. */
export const variableOf = (chunk: number): number => chunk >> 1;

/** What the reference has of a chunk of a sum, as ParameterStore.measure. */
export function measure(run: TinyRun, kernels: Kernels, chunk: number, pointer: number) {
  const { length, section } = run.layout.chunks[chunk]!;
  const isFinite = kernels.allFinite(pointer, length);
  const squares: [number, number][] =
    isFinite && section === 'trainable' ? [[variableOf(chunk), kernels.sumOfSquares(pointer, length)]] : [];
  return { isFinite, squares };
}

/** Scales the gradient of a chunk as was decided for its variable; returns what the optimizer scales it with. */
export function scaled(
  run: TinyRun,
  kernels: Kernels,
  chunk: number,
  pointer: number,
  { examples, scale, variables }: Pick<RoundVerdict, 'scale' | 'variables'> & { readonly examples: number },
): number {
  const mean = Math.fround(1 / examples);
  const { length, section } = run.layout.chunks[chunk]!;
  if (section === 'state') return mean;
  const factor = variables.find(([variable]) => variable === variableOf(chunk))?.[1];
  if (factor !== undefined) kernels.scaleInto(pointer, pointer, length, Math.fround(factor));
  return Math.fround(mean * Math.fround(scale));
}
