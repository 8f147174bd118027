/** The strategy whose replicas take several steps alone before their parameters are averaged. */
import { ArgumentError, UnsupportedError } from './errors.js';
import type { GroupThread } from './members/group-link.js';
import { communicationOf, planned } from './multi-worker.js';
import { asRun, type RunStrategy } from './run-options.js';
import { Strategy } from './strategy.js';
import type { LocalUpdateOptions } from './strategy-options.js';
import type { FragmentRules } from './threads/fragments.js';
import { isStreaming, type LocalTraining } from './threads/exchange-options.js';
import { ThreadExchange } from './threads/thread-exchange.js';
import { LOCAL_STEPS, nameOfRule, type OuterRule, type UpdateRule } from './update-rule.js';

const NAME = 'LocalUpdateStrategy';
const STEPS_MOST = 1_000_000;
const MIXING = 0.5;
const ELASTIC_SHARE = 0.9;
const OPTIMIZERS = 'an optimizer for each replica';
const KEPT_BY_OUTER = { average: undefined, nesterov: 'an outer velocity', elastic: 'a copy of the parameters for each replica' } as const;
const OWN = [
  'localSteps',
  'syncSteps',
  'outer',
  'innerState',
  'fragments',
  'delay',
  'mixing',
  'outerLearningRate',
  'outerMomentum',
  'movingRate',
];
const OF_CLUSTER = ['cluster', 'secret', 'joinDeadlineMs', 'transport', 'listenHost', 'communication', 'hosts'];
const KNOWN = ['threads', 'replicas', 'seed', 'deadlineMs', ...OWN, ...OF_CLUSTER];

/**
 * Every replica takes its rows of each batch and trains a copy of the model by itself, with the model's optimizer. After `localSteps` batches, and whenever the program
 * reads the weights, evaluates or predicts, the copies and the states of their optimizers are averaged. Over several processes nothing is sent in between.
 */
export class LocalUpdateStrategy extends Strategy {
  /** Type and index of this process's task. */
  readonly task: { readonly type: string; readonly index: number };
  private readonly local: LocalTraining;
  private readonly processes: number;
  private readonly group: GroupThread | undefined;

  /**
   * @throws ArgumentError for an option that has no meaning
   * @throws ClusterConfigError for a cluster, a task or a secret that has none
   */
  constructor(options: LocalUpdateOptions = {}) {
    let local: LocalTraining | undefined;
    const { exchange, task, processes } = planned(options, NAME, KNOWN, (replicas) => [(local = localOf(options, replicas))]);
    local ??= localOf(options, exchange.replicas);
    super(Object.assign(new ThreadExchange(Object.assign({}, exchange, { loadsEarly: false, local })), { checkRule }), options);
    this.local = local;
    this.processes = processes;
    this.task = task;
    this.group = exchange.group;
  }

  /** How the processes exchange what they have computed, for the models that have been trained so far, and what was measured for it. */
  get communication(): ReturnType<typeof communicationOf> {
    return communicationOf(this.group);
  }

  /** What the strategy keeps from one exchange to the next beside the model and its optimizer; undefined for nothing. */
  get kept(): string | undefined {
    if (isStreaming(this.local)) return OPTIMIZERS;
    const ofOuter = KEPT_BY_OUTER[this.local.outer.name];
    return this.local.keepsSlots ? [ofOuter, OPTIMIZERS].filter((each) => each !== undefined).join(', and ') : ofOuter;
  }

  /** Over several processes: as many workers, which hold the shards as the processes here do. */
  override toRun(): RunStrategy {
    const { steps, fragments } = this.local;
    const localSteps = Math.ceil(steps / fragments); // a round of a run exchanges one fragment; steps that cannot be divided so are refused
    const phases = { localSteps, innerState: 'keep', outerOptimizer: 'sgd' } as const;
    const members = this.processes > 1 ? { workers: this.processes } : {};
    const strategy = { kind: 'local-update', ...phases, ...members } as const;
    return asRun(NAME, this.options, { strategy, replicas: this.numReplicasInSync });
  }
}

/** @throws UnsupportedError */
function checkRule(rule: UpdateRule): void {
  if (nameOfRule(rule) === 'ftrl')
    throw new UnsupportedError(
      `the optimizer ftrl with ${NAME}`,
      'it makes weights from its sums alone, and would not go on from the average of the replicas: take another one, such as adamw or adagrad',
    );
}

function localOf(options: LocalUpdateOptions, replicas: number): LocalTraining {
  const { localSteps: steps = LOCAL_STEPS, syncSteps = 0 } = options;
  requireSteps('localSteps', steps, 1);
  requireSteps('syncSteps', syncSteps, 0);
  const outer = outerOf(options, replicas);
  if (syncSteps > 0 && outer.name !== 'average')
    throw new ArgumentError(
      `${NAME}: syncSteps needs outer: 'average', not '${outer.name}': an outer step is one over several local steps`,
    );
  const rules = fragmentRules(options, steps, outer);
  return Object.assign({ steps, outer, syncSteps, keepsSlots: keepsSlots(options, rules, outer) }, rules);
}

/** Of an average of the whole model. */
function keepsSlots({ innerState }: LocalUpdateOptions, rules: Omit<FragmentRules, 'steps'>, outer: OuterRule): boolean {
  if (innerState !== undefined && innerState !== 'average' && innerState !== 'keep')
    throw new ArgumentError(`${NAME}: innerState must be average or keep, not ${String(innerState)}`);
  const stays = outer.name === 'elastic' ? 'elastic' : isStreaming({ ...rules, steps: 1 }) ? 'fragments and delay' : undefined;
  if (stays !== undefined && innerState === 'average')
    throw new ArgumentError(
      `${NAME}: innerState must be keep with ${stays}, with which the state of an optimizer stays with its replica: leave it out`,
    );
  return stays === undefined && innerState === 'keep';
}

function fragmentRules(options: LocalUpdateOptions, steps: number, outer: OuterRule): Omit<FragmentRules, 'steps'> {
  const { fragments = 1, delay = 0, mixing = delay > 0 ? MIXING : 0 } = options;
  requireSteps('fragments', fragments, 1);
  requireSteps('delay', delay, 0);
  if ((fragments > 1 || delay > 0) && outer.name === 'elastic')
    throw new ArgumentError(
      `${NAME}: fragments and delay need outer: 'average' or 'nesterov', as with elastic every copy keeps its parameters`,
    );
  if (fragments > steps)
    throw new ArgumentError(`${NAME}: fragments must be at most localSteps (${steps}), not ${fragments}: one is exchanged after a step`);
  const most = Math.floor(steps / fragments);
  if (delay > most)
    throw new ArgumentError(
      `${NAME}: delay must be at most ${most}, the steps between two exchanges (localSteps / fragments), not ${delay}: one exchange is under way at a time`,
    );
  if (options.mixing !== undefined && delay === 0)
    throw new ArgumentError(`${NAME}: mixing needs a delay: without one replicas take what is common`);
  if (!(mixing >= 0 && mixing < 1)) throw new ArgumentError(`${NAME}: mixing must be a number from 0 to below 1, not ${String(mixing)}`);
  return { fragments, delay, mixing };
}

function requireSteps(option: string, steps: number, least: number): void {
  if (Number.isInteger(steps) && steps >= least && steps <= STEPS_MOST) return;
  throw new ArgumentError(`${NAME}: ${option} must be a whole number from ${least} to ${STEPS_MOST}, not ${String(steps)}`);
}

function outerOf(options: LocalUpdateOptions, replicas: number): OuterRule {
  const { outer = 'average', outerLearningRate, outerMomentum, movingRate = ELASTIC_SHARE / replicas } = options;
  if (outer !== 'average' && outer !== 'nesterov' && outer !== 'elastic')
    throw new ArgumentError(`${NAME}: outer must be average, nesterov or elastic, not ${String(outer)}`);
  if (outer !== 'nesterov' && (outerLearningRate !== undefined || outerMomentum !== undefined))
    throw new ArgumentError(`${NAME}: outerLearningRate and outerMomentum need outer: 'nesterov'`);
  if (outer !== 'elastic' && options.movingRate !== undefined) throw new ArgumentError(`${NAME}: movingRate needs outer: 'elastic'`);
  const { learningRate, momentum } = { learningRate: outerLearningRate ?? 0.7, momentum: outerMomentum ?? 0.9 };
  if (!(Number.isFinite(learningRate) && learningRate > 0))
    throw new ArgumentError(`${NAME}: outerLearningRate must be a number above 0, not ${String(learningRate)}`);
  if (!(momentum >= 0 && momentum < 1))
    throw new ArgumentError(`${NAME}: outerMomentum must be a number from 0 to below 1, not ${String(momentum)}`);
  if (!(movingRate > 0 && movingRate * replicas <= 1 + 1e-9))
    throw new ArgumentError(
      `${NAME}: movingRate must be a number above 0 and at most 1 / replicas (${1 / replicas}), not ${String(movingRate)}: beyond that the common parameters would go farther than to the mean`,
    );
  if (outer === 'average') return { name: 'average' };
  return outer === 'nesterov' ? { name: 'nesterov', learningRate, momentum } : { name: 'elastic', movingRate };
}
