/**
 * Early stopping as Keras has it (keras/src/callbacks/early_stopping.py), as a pure function of what was and what was measured. Which row is taken decides all:
 *
 *   row        when                                              best                wait      the run
 *   notYet     before startFromRound                             stays               stays     goes on
 *   improved   better than the best by more than minDelta        becomes the value   0         goes on; with restoreBest a checkpoint is kept
 *   waits      not better, or no number, and wait + 1 < patience stays               wait + 1  goes on
 *   stops      not better, or no number, and wait + 1 ≥ patience stays               wait + 1  ends with this generation
 *
 * The first number is better than none. With a baseline an improvement that is not better than that leaves wait + 1, and the run goes on.
 */
export type StoppingRow = 'notYet' | 'improved' | 'waits' | 'stops';

export interface StoppingRule {
  /** Name of the metric as in the spec: `val_loss`. */
  readonly metric: string;
  readonly better: 'higher' | 'lower';
  readonly minDelta: number;
  readonly patience: number;
  readonly baseline?: number | undefined;
  /** Committed rounds before which nothing is watched. */
  readonly startFromRound: number;
}

export interface StoppingState {
  readonly best: number | null;
  /** The best generation; 0 if there is none. */
  readonly generation: number;
  /** Validations since that were not better. */
  readonly wait: number;
}

export const NOTHING_WATCHED: StoppingState = { best: null, generation: 0, wait: 0 };

/** Whether a value is better than another by more than `minDelta`. */
export function isBetter(
  value: number | null,
  than: number | null,
  { better, minDelta }: Pick<StoppingRule, 'better' | 'minDelta'>,
): boolean {
  if (value === null || !Number.isFinite(value)) return false;
  if (than === null) return true;
  return better === 'lower' ? value + minDelta < than : value - minDelta > than;
}

export function watchForStop(
  rule: StoppingRule,
  state: StoppingState,
  generation: number,
  value: number | null,
): { readonly row: StoppingRow; readonly state: StoppingState } {
  if (generation < rule.startFromRound) return { row: 'notYet', state };
  const wait = state.wait + 1;
  if (isBetter(value, state.best, rule)) {
    const counts = rule.baseline === undefined || isBetter(value, rule.baseline, rule);
    return { row: 'improved', state: { best: value, generation, wait: counts ? 0 : wait } };
  }
  return { row: wait >= rule.patience ? 'stops' : 'waits', state: { best: state.best, generation: state.generation, wait } };
}

/** Why the run ends with `generation`. */
export function stopReason(rule: StoppingRule, { best, generation: bestOf, wait }: StoppingState, generation: number): string {
  const { metric, minDelta, baseline } = rule;
  const isBelow = baseline !== undefined && !isBetter(best, baseline, rule);
  const by = minDelta > 0 ? ` by ${minDelta}` : '';
  const known = best === null ? 'it never was a number' : `best ${shownNumber(best)} at round ${bestOf}`;
  return `stopped early at round ${generation}: ${metric} has not ${isBelow ? `come to be better than the baseline ${shownNumber(baseline)}` : `improved${by}`} in ${wait} validation${wait === 1 ? '' : 's'} (${known})`;
}

/** A number in a sentence: four digits of it. */
export const shownNumber = (value: number): string => String(Number(value.toPrecision(4)));
