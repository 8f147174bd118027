/**
 * What a two-phase round decides before anything is applied (docs/protocol.md §9.5): leave the round out, or scale its gradient down.
 *
 * Norms are of the mean gradient. Squares come per chunk and variable, summed there in a fixed lane order; here they are added
 * over chunks in index order by the rule of the reduction tree, in float64: any number of servers gives the same bits.
 * Clipping is Keras 3's: by the norm of each variable first, then by the norm of all, each only where the norm is larger.
 */
import { split } from './tree.js';

export interface ChunkScalars {
  readonly chunk: number;
  /** No NaN and no infinity in the gradient of the chunk. */
  readonly isFinite: boolean;
  /** Σ g² over the part of each variable that lies in the chunk; empty for state. */
  readonly squares: readonly (readonly [variable: number, sum: number])[];
  /** Σ w² the same way; for the trust ratios of trust.ts. */
  readonly weights?: readonly (readonly [variable: number, sum: number])[] | undefined;
}

export interface ClipRules {
  readonly clipNorm?: number | undefined;
  readonly clipGlobalNorm?: number | undefined;
}

export interface RoundVerdict {
  /** Some chunk is not finite. */
  readonly isFinite: boolean;
  /** Multiplies the gradient of every variable; 1 when nothing is clipped. */
  readonly scale: number;
  /** Multiplies the gradient of one variable, beside `scale`; those that are not here are left alone. */
  readonly variables: readonly (readonly [variable: number, scale: number])[];
  /** L2 norm of the mean gradient before clipping. */
  readonly norm: number;
}

/** @param examples of the round: the gradients are sums over them */
export function judgeRound(scalars: readonly ChunkScalars[], examples: number, rules: ClipRules): RoundVerdict {
  if (scalars.some(({ isFinite }) => !isFinite)) return { isFinite: false, scale: 1, variables: [], norm: NaN };
  const inOrder = [...scalars].sort((a, b) => a.chunk - b.chunk);
  const parts = new Map<number, number[]>();
  for (const { squares } of inOrder) for (const [variable, sum] of squares) parts.set(variable, [...(parts.get(variable) ?? []), sum]);
  const norms = [...parts].map(([variable, sums]) => ({ variable, norm: Math.sqrt(treeSum(sums)) / examples }));
  const { clipNorm = Infinity, clipGlobalNorm = Infinity } = rules;
  const clipped = norms.map(({ variable, norm }) => ({
    variable,
    norm: Math.min(norm, clipNorm),
    scale: norm > clipNorm ? clipNorm / norm : 1,
  }));
  const total = Math.sqrt(treeSum(clipped.map(({ norm }) => norm * norm)));
  return {
    isFinite: true,
    scale: total > clipGlobalNorm ? clipGlobalNorm / total : 1,
    variables: clipped.flatMap(({ variable, scale }) => (scale === 1 ? [] : [[variable, scale] as const])),
    norm: Math.sqrt(treeSum(norms.map(({ norm }) => norm * norm))),
  };
}

/** Added as the reduction tree adds: [lo, hi) splits at the largest power of two below its size. */
export function treeSum(values: readonly number[]): number {
  const sum = (lo: number, hi: number): number => {
    if (hi - lo === 1) return values[lo]!;
    const middle = split(lo, hi);
    return sum(lo, middle) + sum(middle, hi);
  };
  return values.length === 0 ? 0 : sum(0, values.length);
}
