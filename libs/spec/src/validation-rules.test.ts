import { expect, test } from 'vitest';
import type { RunData } from './datasets/run-data.js';
import { parseRunSpec } from './run-spec.js';
import { holdOut, validationExamples } from './validation-rules.js';

const DATA: RunData = {
  source: { kind: 'built-in', name: 'mnist' },
  format: { inputs: [{ name: 'x', shape: [1] }], targets: [{ name: 'y', kind: 'values', shape: [1] }], isWeighted: false },
  trainExamples: 60_000,
  evalExamples: 10_000,
  evaluateOn: 'test',
};

test('a share or a number of training examples is held out, and the evaluation split stays', () => {
  const held = (validation: object) => {
    const found = holdOut(DATA, validation);
    return found.ok ? [found.data.trainExamples, validationExamples(found.data), found.data.evalExamples] : found.issues;
  };
  expect(held({ rows: 5000 })).toEqual([55_000, 5000, 10_000]);
  expect(held({ split: 0.1 })).toEqual([54_000, 6000, 10_000]);
  expect(held({ split: 0.00001 })).toEqual([59_999, 1, 10_000]);
  expect(held({ everyEpochs: 2 })).toEqual([60_000, 10_000, 10_000]);
  expect(held({ rows: 60_000 })).toEqual([
    { path: 'validation.rows', message: 'holds out 60000 of 60000 training examples, and none is left to train on: hold out fewer' },
  ]);
  expect(held({ split: 0.999999 })).toMatchObject([{ path: 'validation.split' }]);
});

test.each([
  [{ split: 0.1, rows: 5 }, 'validation.rows', /together with split/],
  [{ split: 0 }, 'validation.split', /must be above 0/],
  [{ split: 1 }, 'validation.split', /must be below 1/],
  [{ rows: 0 }, 'validation.rows', /1/],
  [{ rows: 2.5 }, 'validation.rows', /whole|int/i],
])('%o is refused at %s', (validation, path, message) => {
  const parsed = parseRunSpec({ validation });
  expect(parsed).toMatchObject({ ok: false, issues: [{ path, message: expect.stringMatching(message) as string }] });
});
