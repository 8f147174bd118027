/**
 * Where the optimizers of tf.js 4.22 keep their numbers and their values (tfjs-core/src/optimizers): the fields of each class, and the rule that they
 * make. Fields are private in tf.js; the tests compare them with what tf.js computes.
 */
import type * as tfc from '@tensorflow/tfjs-core';
import { ArgumentError, UnsupportedError } from '../errors.js';
import type { RunOptimizer, WithExclusions } from '../optimizers.js';
import type { NamedWeight } from './tf-model.js';
import { slotNames, type UpdateRule } from '../update-rule.js';

/** A value that tf.js keeps for one variable. */
export interface TfSlot {
  readonly originalName: string;
  readonly variable: tfc.Variable;
}

export interface TfOptimizer extends tfc.Optimizer {
  readonly learningRate: number;
  readonly [field: string]: unknown;
}

/** The slots of an optimizer in the order of `initialSlots`: the field, and what its variables are called after the weight. */
export type SlotField = readonly [field: string, suffix: string];

const SLOT_FIELDS: Readonly<Record<Exclude<UpdateRule['name'], 'run'>, readonly SlotField[]>> = {
  sgd: [],
  momentum: [['accumulations', 'momentum']],
  adam: [
    ['accumulatedFirstMoment', 'm'],
    ['accumulatedSecondMoment', 'v'],
  ],
  adamax: [
    ['accumulatedFirstMoment', 'm'],
    ['accumulatedWeightedInfNorm', 'v'],
  ],
  adagrad: [['accumulatedGrads', 'accumulator']],
  adadelta: [
    ['accumulatedGrads', 'accum_grad'],
    ['accumulatedUpdates', 'accum_var'],
  ],
  rmsprop: [
    ['accumulatedMeanSquares', 'rms'],
    ['accumulatedMoments', 'momentum'],
    ['accumulatedMeanGrads', 'mg'],
  ],
};

export function slotFields(rule: UpdateRule): readonly SlotField[] {
  if (rule.name === 'run') return slotNames(rule).map((name) => [name, name]);
  return rule.name === 'rmsprop' && !rule.centered ? SLOT_FIELDS.rmsprop.slice(0, 2) : SLOT_FIELDS[rule.name];
}

/** Scalars that tf.js counts on with every step: the field, and its value after so many steps. */
export function countedFields(rule: UpdateRule): readonly (readonly [field: string, valueAfter: (steps: number) => number])[] {
  switch (rule.name) {
    case 'adam':
      return [
        ['accBeta1', (steps) => rule.beta1 ** (steps + 1)],
        ['accBeta2', (steps) => rule.beta2 ** (steps + 1)],
      ];
    case 'adamax':
      return [
        ['accBeta1', (steps) => rule.beta1 ** (steps + 1)],
        ['iteration', (steps) => steps],
      ];
    default:
      return [];
  }
}

/** Epsilon of Adagrad, whose constructor takes none: that of the backends with float32. */
const EPSILON = 1e-7;

/** The names are inherited: a class that extends one of tf.js, or an object with a method of its own (to clip gradients, say), has other updates. */
const isOfTfjs = (optimizer: tfc.Optimizer): boolean =>
  Object.hasOwn(optimizer.constructor, 'className') &&
  !['applyGradients', 'computeGradients', 'minimize'].some((method) => Object.hasOwn(optimizer, method));

/** @throws UnsupportedError for an optimizer that tf.js does not have */
export function ruleOf(optimizer: tfc.Optimizer): UpdateRule {
  const name = isOfTfjs(optimizer) ? optimizer.getClassName() : `${optimizer.constructor.name} (with methods of its own)`;
  const { momentum, useNesterov, beta1, beta2, epsilon, decay, rho, centered, initialAccumulatorValue } = optimizer as unknown as Record<
    string,
    never
  >;
  // Of tf.js every optimizer is an instance of every class of optimizers (Symbol.hasInstance).
  const { rule } = optimizer as Partial<RunOptimizer>;
  if (rule?.name === 'run' && isOfTfjs(optimizer)) return rule;
  switch (name) {
    case 'SGD':
      return { name: 'sgd' };
    case 'Momentum':
      return { name: 'momentum', momentum, nesterov: useNesterov };
    case 'Adam':
      return { name: 'adam', beta1, beta2, epsilon };
    case 'Adamax':
      return { name: 'adamax', beta1, beta2, epsilon, decay: decay ?? 0 };
    case 'Adagrad':
      return { name: 'adagrad', epsilon: EPSILON, initialAccumulator: initialAccumulatorValue };
    case 'Adadelta':
      return { name: 'adadelta', rho, epsilon };
    case 'RMSProp':
      return { name: 'rmsprop', rho: decay, momentum, epsilon, centered };
    default:
      throw new UnsupportedError(
        `optimizer ${name}`,
        'an optimizer of your own cannot run in a compute thread: use one of tf.train, that is sgd, momentum, adam, adamax, adagrad, adadelta or rmsprop, or one of `optimizers` of paceline, such as adamw',
      );
  }
}

/**
 * The same for the weights of a model: an optimizer of runs may exclude some from its weight decay.
 * @throws ArgumentError for a pattern that names no weight
 */
export function ruleFor(optimizer: tfc.Optimizer, named: readonly NamedWeight[]): UpdateRule {
  const rule = ruleOf(optimizer);
  if (rule.name !== 'run') return rule;
  const keeps = (patterns?: readonly string[]): string[] =>
    named.filter(({ weight }) => (optimizer as RunOptimizer).keepsWeight(weight.name, patterns)).map(({ path }) => path);
  for (const pattern of (rule.spec as WithExclusions).weightDecayExclude ?? [])
    if (keeps([pattern]).length === 0)
      throw new ArgumentError(
        `weightDecayExclude: ${pattern} names no weight of the model: it has ${named.map(({ weight }) => weight.name).join(', ')}`,
      );
  return { ...rule, undecayed: keeps() };
}
