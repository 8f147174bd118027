/**
 * Runs whose rounds have several steps, and what is applied where. With local-update workers apply `optimizer` with its schedule and its clipping, once per local
 * step; servers apply the outer optimizer, once per round, to the mean difference of the weights. With tpu the threads of the worker apply `optimizer` in each step,
 * and the shard takes over what they have come to. Every other strategy leaves all of it to the servers.
 */
import { keepsEstimate, type CodecSpec } from './codec-spec.js';
import type { LearningRateSpec } from './learning-rate.js';
import type { OptimizerSpec } from './optimizer-spec.js';
import type { AppliedOptimizer } from './optimizer-slots.js';
import type { RoundGridOptions } from './round-grid.js';
import type { StrategySpec } from './strategy.js';

interface Distributed {
  readonly strategy: StrategySpec;
}

/** The part of the way to the mean of the replicas that the servers go in a round of elastic averaging by default (Zhang et al. 2015, beta). */
const ELASTIC_SHARE = 0.9;

interface Clipping {
  readonly clipNorm?: number | undefined;
  readonly clipGlobalNorm?: number | undefined;
  readonly clipValue?: number | undefined;
}

/** What is applied to a gradient, and at which rate. */
interface Applied<NonFinite extends string> {
  readonly optimizer: AppliedOptimizer;
  readonly gradient: Clipping & { readonly nonFinite: NonFinite };
  readonly learningRate?: LearningRateSpec | undefined;
}

/** Steps of a round, each with a batch, except in the last round of an epoch, which may have fewer: of each replica by itself, or with tpu of all together. */
export function stepsOfRound({ strategy }: Distributed): number {
  if (strategy.kind === 'tpu') return strategy.stepsPerExecution;
  return strategy.kind === 'local-update' ? strategy.localSteps : 1;
}

/** Examples of a round over all replicas: the last one of an epoch may have fewer. */
export const roundExamples = (spec: Distributed & { readonly globalBatch: number }): number => spec.globalBatch * stepsOfRound(spec);

/** Rounds at the beginning of the run that have one local step; 0 without them. */
export const syncSteps = ({ strategy }: Distributed): number => (strategy.kind === 'local-update' ? (strategy.syncSteps ?? 0) : 0);

/** Local steps of whole rounds before a round: by this random layers draw, so the synchronous steps draw as a run without local updates does. */
export function stepsBefore(spec: Distributed, round: number): number {
  const first = Math.min(round, syncSteps(spec));
  return first + (round - first) * stepsOfRound(spec);
}

/** How the examples of a run are divided into rounds. @param examples of the training split */
export function roundsOf(
  spec: Distributed & { readonly globalBatch: number; readonly dropRemainder: boolean },
  examples: number,
): RoundGridOptions {
  const { globalBatch, dropRemainder } = spec;
  // What is dropped with tpu is the rest of a batch: a round with fewer batches stays.
  if (spec.strategy.kind === 'tpu' && dropRemainder)
    return { examples: examples - (examples % globalBatch), globalBatch: roundExamples(spec), dropRemainder: false };
  const rounds = syncSteps(spec);
  return { examples, globalBatch: roundExamples(spec), dropRemainder, first: rounds > 0 ? { rounds, globalBatch } : undefined };
}

/** Parts of the parameters of which each round exchanges one, in turn; 1 where each exchanges all. */
export const fragmentsOf = ({ strategy }: Distributed): number => (strategy.kind === 'local-update' ? (strategy.fragments ?? 1) : 1);

/** What the servers of a run apply to the gradient of a round. */
export function appliedByServers<NonFinite extends string>(
  spec: Distributed & Applied<NonFinite> & { readonly replicas: number; readonly codec?: CodecSpec | undefined },
): Applied<NonFinite> {
  const { strategy, gradient, replicas } = spec;
  // The slots are those of the optimizer, and nothing is applied.
  if (strategy.kind === 'tpu')
    return {
      optimizer: Object.assign({}, spec.optimizer, { isApplied: true as const }),
      gradient: { nonFinite: gradient.nonFinite },
    };
  const estimated = (optimizer: OptimizerSpec): AppliedOptimizer =>
    keepsEstimate(spec) ? Object.assign({}, optimizer, { keepsEstimate: true as const }) : optimizer;
  if (strategy.kind === 'local-update')
    return { optimizer: estimated(outerOptimizer(strategy, replicas)), gradient: { nonFinite: gradient.nonFinite } };
  return keepsEstimate(spec) ? Object.assign({}, spec, { optimizer: estimated(spec.optimizer) }) : spec;
}

/**
 * With elastic averaging (Zhang, Choromanska and LeCun 2015): the part of the difference between a replica and the weights of the servers by which both go
 * towards each other in a round. Undefined where every replica begins its rounds with the weights of the servers.
 */
export function movingRate({ strategy, replicas }: Distributed & { readonly replicas: number }): number | undefined {
  if (strategy.kind !== 'local-update' || strategy.outerOptimizer !== 'elastic') return undefined;
  return strategy.movingRate ?? ELASTIC_SHARE / replicas;
}

function outerOptimizer(strategy: Extract<StrategySpec, { kind: 'local-update' }>, replicas: number): OptimizerSpec {
  const { outerOptimizer: name, outerLearningRate, outerMomentum = 0.9 } = strategy;
  // Each replica pulls by its moving rate, so all of them together by so many times that, towards their mean.
  if (name === 'elastic')
    return { name: 'sgd', learningRate: strategy.movingRate === undefined ? ELASTIC_SHARE : strategy.movingRate * replicas };
  if (name === 'sgd') return { name, learningRate: outerLearningRate ?? 1 };
  return { name: 'momentum', learningRate: outerLearningRate ?? 0.7, momentum: outerMomentum, nesterov: name === 'nesterov' };
}
