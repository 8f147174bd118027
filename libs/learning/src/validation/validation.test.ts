import { expect, test } from 'vitest';
import { isBetter, NOTHING_WATCHED, stopReason, watchForStop, type StoppingRule, type StoppingState } from './early-stopping.js';
import { FULL_RATE, judgePlateau, type PlateauRule, type PlateauState } from './plateau.js';

const RULE: StoppingRule = { metric: 'val_loss', better: 'lower', minDelta: 0, patience: 2, startFromRound: 0 };

/** The rows that a run of values takes, up to the one that ends it. */
function rowsOf(rule: StoppingRule, values: readonly (number | null)[]): string[] {
  const rows: string[] = [];
  let state: StoppingState = NOTHING_WATCHED;
  for (const [i, value] of values.entries()) {
    const taken = watchForStop(rule, state, i + 1, value);
    rows.push(taken.row);
    state = taken.state;
    if (taken.row === 'stops') break;
  }
  return rows;
}

test('early stopping ends after `patience` validations that are not better, counted from the best', () => {
  expect(rowsOf(RULE, [3, 2, 2, 1, 1.5, 1, 0])).toEqual(['improved', 'improved', 'waits', 'improved', 'waits', 'stops']);
  // Keras: patience 0 and 1 both end with the first that is not better.
  for (const patience of [0, 1]) expect(rowsOf({ ...RULE, patience }, [3, 3])).toEqual(['improved', 'stops']);
});

test('what improves by no more than minDelta does not improve, and the best stays what it was', () => {
  // By 0.04 each: the second time they are more than 0.05 below the best.
  expect(rowsOf({ ...RULE, minDelta: 0.05 }, [1, 0.96, 0.92, 0.91, 0.9])).toEqual(['improved', 'waits', 'improved', 'waits', 'stops']);
  expect(isBetter(0.5, 0.25, { better: 'higher', minDelta: 0.25 })).toBe(false);
  expect(isBetter(0.625, 0.25, { better: 'higher', minDelta: 0.25 })).toBe(true);
});

test('nothing is watched before startFromRound, and what is no number is not better', () => {
  expect(rowsOf({ ...RULE, startFromRound: 3 }, [0, 0, 5, 6, 7])).toEqual(['notYet', 'notYet', 'improved', 'waits', 'stops']);
  expect(rowsOf(RULE, [null, Number.NaN])).toEqual(['waits', 'stops']);
  expect(rowsOf(RULE, [null, 7, Number.POSITIVE_INFINITY, null])).toEqual(['waits', 'improved', 'waits', 'stops']);
});

test('what is not better than the baseline becomes the best and uses up patience, as in Keras', () => {
  const rule = { ...RULE, baseline: 0.5 };
  expect(rowsOf(rule, [0.8, 0.7, 0.6, 0.65, 0.4])).toEqual(['improved', 'improved', 'improved', 'stops']);
  expect(rowsOf(rule, [0.8, 0.4, 0.45, 0.45])).toEqual(['improved', 'improved', 'waits', 'stops']);
  expect(stopReason(rule, { best: 0.6, generation: 3, wait: 4 }, 4)).toBe(
    'stopped early at round 4: val_loss has not come to be better than the baseline 0.5 in 4 validations (best 0.6 at round 3)',
  );
  expect(stopReason(rule, { best: 0.4, generation: 2, wait: 2 }, 4)).toContain('has not improved in 2 validations');
});

test('the reason says what was watched, for how long, and the best', () => {
  const state = { best: 0.210_04, generation: 40, wait: 3 };
  expect(stopReason({ ...RULE, minDelta: 0.001 }, state, 55)).toBe(
    'stopped early at round 55: val_loss has not improved by 0.001 in 3 validations (best 0.21 at round 40)',
  );
});

const PLATEAU: PlateauRule = { metric: 'val_loss', better: 'lower', factor: 0.5, patience: 2, minDelta: 0, cooldown: 0, minFactor: 0 };

function factorsOf(rule: PlateauRule, values: readonly (number | null)[]): [string, number][] {
  let state: PlateauState = FULL_RATE;
  return values.map((value) => {
    const taken = judgePlateau(rule, state, value);
    state = taken.state;
    return [taken.row, state.factor];
  });
}

test('the rate falls after `patience` validations that are not better, and never below the minimum', () => {
  expect(factorsOf({ ...PLATEAU, minFactor: 0.3 }, [1, 1, 1, 1, 1, 1, 1, 0.5])).toEqual([
    ['improved', 1],
    ['waits', 1],
    ['reduced', 0.5],
    ['waits', 0.5],
    ['reduced', 0.3],
    ['waits', 0.3],
    ['atMinimum', 0.3],
    ['improved', 0.3],
  ]);
});

test('validations of the cooldown do not count, but the last of them does, as in Keras', () => {
  expect(factorsOf({ ...PLATEAU, patience: 1, cooldown: 2 }, [1, 1, 1, 1, 1]).map(([row]) => row)).toEqual([
    'improved',
    'reduced',
    'cools',
    'reduced',
    'cools',
  ]);
});
