/** The strategy whose replicas take several steps alone before their parameters are averaged. */
import { ArgumentError, UnsupportedError } from './errors.js';
import { Strategy, type RunStrategy } from './strategy.js';
import { countsOf, type ThreadStrategyOptions } from './thread-strategies.js';
import { ThreadExchange } from './threads/thread-exchange.js';
import type { OuterRule } from './update-rule.js';

export interface LocalUpdateOptions extends ThreadStrategyOptions {
  /** Steps that a replica takes between two averages; 8 by default. */
  readonly localSteps?: number;
  /**
   * What an average does: `average` makes it the common parameters; `nesterov` takes an outer step towards it, with Nesterov momentum (DiLoCo,
   * arXiv:2311.08105). `average` by default.
   */
  readonly outer?: 'average' | 'nesterov';
  /** Of the outer step; 0.7 by default. */
  readonly outerLearningRate?: number;
  /** Of the outer step; 0.9 by default. */
  readonly outerMomentum?: number;
}

const NAME = 'LocalUpdateStrategy';
const LOCAL_STEPS = 8;
const LOCAL_STEPS_MOST = 1_000_000;
const OWN = ['localSteps', 'outer', 'outerLearningRate', 'outerMomentum'] as const;
const KNOWN = ['threads', 'replicas', 'seed', 'deadlineMs', ...OWN];

/**
 * Every replica takes its rows of each batch and trains a copy of the model by itself, with the model's optimizer. After `localSteps` batches, and whenever the program
 * reads the weights, evaluates or predicts, the copies and the states of their optimizers are averaged.
 */
export class LocalUpdateStrategy extends Strategy {
  private readonly local: { readonly steps: number; readonly outer: OuterRule };

  /** @throws ArgumentError for an option that has no meaning */
  constructor(options: LocalUpdateOptions = {}) {
    const counts = countsOf(options, NAME, KNOWN);
    const { localSteps = LOCAL_STEPS } = options;
    if (!Number.isInteger(localSteps) || localSteps < 1 || localSteps > LOCAL_STEPS_MOST)
      throw new ArgumentError(`${NAME}: localSteps must be a whole number from 1 to ${LOCAL_STEPS_MOST}, not ${String(localSteps)}`);
    const local = { steps: localSteps, outer: outerOf(options) };
    refuseCluster();
    super(new ThreadExchange({ ...counts, updaters: counts.threads, loadsEarly: false, local }), options);
    this.local = local;
  }

  override toRun(): RunStrategy {
    const { steps: localSteps, outer } = this.local;
    const step =
      outer.name === 'average'
        ? { outerOptimizer: 'sgd' as const }
        : { outerOptimizer: 'nesterov' as const, outerLearningRate: outer.learningRate, outerMomentum: outer.momentum };
    return { strategy: { kind: 'local-update', localSteps, innerState: 'keep', ...step }, replicas: this.numReplicasInSync };
  }
}

function outerOf({ outer = 'average', outerLearningRate, outerMomentum }: LocalUpdateOptions): OuterRule {
  if (outer !== 'average' && outer !== 'nesterov')
    throw new ArgumentError(`${NAME}: outer must be average or nesterov, not ${String(outer)}`);
  if (outer === 'average' && (outerLearningRate !== undefined || outerMomentum !== undefined))
    throw new ArgumentError(`${NAME}: outerLearningRate and outerMomentum need outer: 'nesterov'`);
  const { learningRate, momentum } = { learningRate: outerLearningRate ?? 0.7, momentum: outerMomentum ?? 0.9 };
  if (!(Number.isFinite(learningRate) && learningRate > 0))
    throw new ArgumentError(`${NAME}: outerLearningRate must be a number above 0, not ${String(learningRate)}`);
  if (!(momentum >= 0 && momentum < 1))
    throw new ArgumentError(`${NAME}: outerMomentum must be a number from 0 to below 1, not ${String(momentum)}`);
  return outer === 'average' ? { name: 'average' } : { name: 'nesterov', learningRate, momentum };
}

/** A cluster would be trained as so many models that know nothing of each other. */
function refuseCluster(): void {
  let cluster: unknown;
  try {
    ({ cluster } = JSON.parse(process.env['TF_CONFIG'] ?? '{}') as { cluster?: unknown });
  } catch {
    return; // it is not for us
  }
  const workers = Object.values((cluster ?? {}) as Record<string, unknown>).flat().length;
  if (workers > 1)
    throw new UnsupportedError(NAME, `works in one process, and TF_CONFIG names ${workers}: use MultiWorkerMirroredStrategy`);
}
