import { createOptimizer } from '@paceline/learning';
import { optimizerSlots, type OptimizerSpec } from '@paceline/spec';

/** The optimizers of tf.js with the numbers that each has. What they compute stands in threads/updates.ts; where tf.js keeps their values, in model/optimizer-fields.ts. */
export type UpdateRule =
  | { readonly name: 'sgd' }
  | { readonly name: 'momentum'; readonly momentum: number; readonly nesterov: boolean }
  | { readonly name: 'adam'; readonly beta1: number; readonly beta2: number; readonly epsilon: number }
  | { readonly name: 'adamax'; readonly beta1: number; readonly beta2: number; readonly epsilon: number; readonly decay: number }
  | { readonly name: 'adagrad'; readonly epsilon: number; readonly initialAccumulator: number }
  | { readonly name: 'adadelta'; readonly rho: number; readonly epsilon: number }
  | {
      readonly name: 'rmsprop';
      readonly rho: number;
      readonly momentum: number;
      readonly epsilon: number;
      readonly centered: boolean;
    }
  | RunRule;

/** One of the optimizers of runs (optimizers.ts). */
export interface RunRule {
  readonly name: 'run';
  readonly spec: OptimizerSpec;
  /** Variables whose weights do not decay, by path; empty where nothing decays. */
  readonly undecayed: readonly string[];
}

/** For people. */
export const nameOfRule = (rule: UpdateRule): string => (rule.name === 'run' ? rule.spec.name : rule.name);

/** Variables whose weights do not decay, where those of others do. */
export const undecayedOf = (rule: UpdateRule): readonly string[] => (rule.name === 'run' ? rule.undecayed : []);

/** Slots of an optimizer of runs. */
export const slotNames = ({ spec }: RunRule): readonly string[] => optimizerSlots(spec);

/** Steps between two averages, where the program says none. */
export const LOCAL_STEPS = 8;

/** What an average of replicas that train alone does to the common parameters. */
export type OuterRule =
  | { readonly name: 'average' }
  | { readonly name: 'nesterov'; readonly learningRate: number; readonly momentum: number }
  /** Every replica keeps its parameters: an average pulls these and the common ones towards each other. */
  | { readonly name: 'elastic'; readonly movingRate: number };

/** What the slots of a rule begin with, one number for each. */
export function initialSlots(rule: UpdateRule): number[] {
  switch (rule.name) {
    case 'sgd':
      return [];
    case 'momentum':
      return [0];
    case 'adam':
    case 'adamax':
    case 'adadelta':
      return [0, 0];
    case 'adagrad':
      return [rule.initialAccumulator];
    case 'rmsprop':
      return rule.centered ? [0, 0, 0] : [0, 0];
    case 'run':
      return createOptimizer(rule.spec).slots.map(({ initialValue }) => initialValue);
  }
}
