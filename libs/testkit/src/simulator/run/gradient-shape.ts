/**
 * What a simulated run does with gradients before they are applied (docs/protocol.md §9.5): clipping, what follows from NaN and infinity, backup
 * replicas.
 */
import type { Random } from '../world/random.js';

export interface GradientShape {
  readonly clipNorm?: number;
  readonly clipGlobalNorm?: number;
  readonly nonFinite: 'fail' | 'skip' | 'rollback';
  readonly backupReplicas: number;
}

export interface LocalShape {
  readonly localSteps: number;
  /** Rounds of one step before them. */
  readonly syncSteps?: number | undefined;
  /** Each round exchanges one of so many parts. */
  readonly fragments?: number | undefined;
  readonly outerOptimizer: 'sgd' | 'momentum' | 'nesterov' | 'elastic';
  readonly innerState: 'reset' | 'keep';
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
