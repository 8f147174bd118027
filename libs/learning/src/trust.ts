/**
 * Trust ratios of LAMB and LARS: how far a variable may go, by the norms of its weights and of its step. As with clipping the squares come per chunk and
 * variable, and are added over chunks in index order by the rule of the reduction tree, in float64: any number of servers gives the same bits.
 */
import type { OptimizerSpec } from '@paceline/spec';
import { treeSum, type ChunkScalars, type RoundVerdict } from './clip.js';

type Trust = Pick<RoundVerdict, 'isFinite' | 'scale' | 'variables'>;

/**
 * @param scalars `squares` of the sum gradients (lars) or of the steps (lamb), `weights` of the weights
 * @param examples of the round
 */
export function judgeTrust(scalars: readonly ChunkScalars[], examples: number, spec: OptimizerSpec): Trust {
  if (scalars.some(({ isFinite }) => !isFinite)) return { isFinite: false, scale: 1, variables: [] };
  const inOrder = [...scalars].sort((a, b) => a.chunk - b.chunk);
  const [steps, weights] = [normsOf(inOrder.map(({ squares }) => squares)), normsOf(inOrder.map((chunk) => chunk.weights ?? []))];
  const variables = [...steps].map(([variable, step]) => [variable, ratioOf(spec, weights.get(variable) ?? 0, step, examples)] as const);
  return { isFinite: true, scale: 1, variables: variables.filter(([, ratio]) => ratio !== 1) };
}

type Sums = readonly (readonly [variable: number, sum: number])[];

function normsOf(chunks: readonly Sums[]): Map<number, number> {
  const parts = new Map<number, number[]>();
  for (const sums of chunks) {
    for (const [variable, sum] of sums) {
      const list = parts.get(variable);
      if (list) list.push(sum);
      else parts.set(variable, [sum]);
    }
  }
  return new Map([...parts].map(([variable, sums]) => [variable, Math.sqrt(treeSum(sums))]));
}

/** 1 where one of the norms is 0, as in Keras. */
function ratioOf(spec: OptimizerSpec, weight: number, step: number, examples: number): number {
  if (!(weight > 0 && step > 0)) return 1;
  if (spec.name !== 'lars') return Math.min(weight / step, LARGEST);
  return Math.min((spec.trustCoefficient * weight) / (step / examples + spec.weightDecay * weight + spec.epsilon), LARGEST);
}

/** About the largest float32. */
const LARGEST = 3.4e38;
