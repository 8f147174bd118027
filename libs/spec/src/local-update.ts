/**
 * What a run with local updates divides between workers and servers: workers apply `optimizer` with its schedule and its clipping, once per local step;
 * servers apply the outer optimizer, once per round, to the mean difference of the weights. Every other strategy leaves all of it to the servers.
 */
import type { LearningRateSpec } from './learning-rate.js';
import type { OptimizerSpec } from './optimizer-spec.js';
import type { StrategySpec } from './strategy.js';

interface Distributed {
  readonly strategy: StrategySpec;
}

interface Clipping {
  readonly clipNorm?: number | undefined;
  readonly clipGlobalNorm?: number | undefined;
  readonly clipValue?: number | undefined;
}

/** What is applied to a gradient, and at which rate. */
interface Applied<NonFinite extends string> {
  readonly optimizer: OptimizerSpec;
  readonly gradient: Clipping & { readonly nonFinite: NonFinite };
  readonly learningRate?: LearningRateSpec | undefined;
}

/** Batches of a replica in a round, except in the last round of an epoch, which may have fewer. */
export const localSteps = ({ strategy }: Distributed): number => (strategy.kind === 'local-update' ? strategy.localSteps : 1);

/** Examples of a round over all replicas: the last one of an epoch may have fewer. */
export const roundExamples = (spec: Distributed & { readonly globalBatch: number }): number => spec.globalBatch * localSteps(spec);

/** What the servers of a run apply to the gradient of a round. */
export function appliedByServers<NonFinite extends string>(spec: Distributed & Applied<NonFinite>): Applied<NonFinite> {
  const { strategy, gradient } = spec;
  if (strategy.kind !== 'local-update') return spec;
  return { optimizer: outerOptimizer(strategy), gradient: { nonFinite: gradient.nonFinite } };
}

function outerOptimizer({
  outerOptimizer: name,
  outerLearningRate,
  outerMomentum = 0.9,
}: Extract<StrategySpec, { kind: 'local-update' }>): OptimizerSpec {
  if (name === 'sgd') return { name, learningRate: outerLearningRate ?? 1 };
  return { name: 'momentum', learningRate: outerLearningRate ?? 0.7, momentum: outerMomentum, nesterov: name === 'nesterov' };
}
