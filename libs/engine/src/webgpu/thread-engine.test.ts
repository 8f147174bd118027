import { expect, it } from 'vitest';
import { answerDeadlineMs } from './thread-engine.js';

it('an answer has a minute, however short a step may be, and as long as a step where that is longer', () => {
  expect([undefined, 1_000, 60_000, 600_000].map((stepDeadlineMs) => answerDeadlineMs(stepDeadlineMs))).toEqual([
    60_000, 60_000, 60_000, 600_000,
  ]);
});
