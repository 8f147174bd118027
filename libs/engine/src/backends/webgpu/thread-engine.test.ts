import { expect, it } from 'vitest';
import { specOf } from '../../run.fixture.js';
import { answerDeadlineMs, trainedPart } from './thread-engine.js';

it('an answer has a minute, however short a step may be, and as long as a step where that is longer', () => {
  expect([undefined, 1_000, 60_000, 600_000].map((stepDeadlineMs) => answerDeadlineMs(stepDeadlineMs))).toEqual([
    60_000, 60_000, 60_000, 600_000,
  ]);
});

it('the GPU thread hears which variables are frozen', () => {
  expect(trainedPart(specOf({ freeze: ['dense_1'] }))).toMatchObject({ freeze: ['dense_1'] });
});
