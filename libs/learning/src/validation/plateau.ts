/**
 * The learning rate falls where a metric stands still, as ReduceLROnPlateau of Keras has it (keras/src/callbacks/reduce_lr_on_plateau.py), as a pure function.
 * What is decided is a factor beside the schedule: the rate of a round is the optimizer's × the schedule's × this one.
 *
 *   row        when                                                        best                wait      cooldown       factor
 *   improved   better than the best by more than minDelta                  becomes the value   0         − 1, at least 0  stays
 *   cools      not better, and the cooldown is not over                    stays               0         − 1            stays
 *   waits      not better, and wait + 1 < patience                         stays               wait + 1  0              stays
 *   reduced    not better, wait + 1 ≥ patience, the rate is above minimum  stays               0         as the rule    × factor, at least the minimum
 *   atMinimum  the same, and the rate is the minimum                       stays               wait + 1  0              stays
 */
import { isBetter } from './early-stopping.js';

export type PlateauRow = 'improved' | 'cools' | 'waits' | 'reduced' | 'atMinimum';

export interface PlateauRule {
  readonly metric: string;
  readonly better: 'higher' | 'lower';
  readonly factor: number;
  readonly patience: number;
  readonly minDelta: number;
  /** Validations after a reduction that do not count. */
  readonly cooldown: number;
  /** Least factor: the least rate divided by the rate of the optimizer. */
  readonly minFactor: number;
}

export interface PlateauState {
  readonly best: number | null;
  readonly wait: number;
  readonly cooldown: number;
  readonly factor: number;
}

export const FULL_RATE: PlateauState = { best: null, wait: 0, cooldown: 0, factor: 1 };

export function judgePlateau(
  rule: PlateauRule,
  state: PlateauState,
  value: number | null,
): { readonly row: PlateauRow; readonly state: PlateauState } {
  const { best, factor } = state;
  const isCooling = state.cooldown > 0;
  const cooldown = isCooling ? state.cooldown - 1 : 0;
  const waited = isCooling ? 0 : state.wait;
  if (isBetter(value, best, rule)) return { row: 'improved', state: { best: value, wait: 0, cooldown, factor } };
  // Keras counts the cooldown down first: its last validation is one that counts again.
  if (cooldown > 0) return { row: 'cools', state: { best, wait: 0, cooldown, factor } };
  const wait = waited + 1;
  if (wait < rule.patience) return { row: 'waits', state: { best, wait, cooldown, factor } };
  if (factor <= rule.minFactor) return { row: 'atMinimum', state: { best, wait, cooldown, factor } };
  return { row: 'reduced', state: { best, wait: 0, cooldown: rule.cooldown, factor: Math.max(factor * rule.factor, rule.minFactor) } };
}
