import { expect, it } from 'vitest';
import { PoisonRounds } from './poison-rounds.js';

/** Loses replica 2 of round 7 once per cause, on one host after another. */
function lose(causes: readonly string[]) {
  const counter = new PoisonRounds();
  const verdicts = causes.map((why, i) => counter.count(7, [1, 2], `host ${i}`, i * 1000, why));
  expect(verdicts.slice(0, -1).every((verdict) => verdict === undefined)).toBe(true);
  return verdicts.at(-1);
}

it('says why the holders of a replica were lost: the one cause, or the most frequent one', () => {
  const [gradient, socket] = ['STEP_FAILED: Error in gradient of depthwiseConv2dNative', 'its socket closed and it did not come back'];
  expect(lose(Array<string>(5).fill(gradient))).toEqual({ replica: 1, cause: gradient, howOften: 'each time' });
  expect(lose([gradient, gradient, socket, gradient, socket])).toMatchObject({ cause: gradient, howOften: '3 times' });
  expect(lose(['a', 'b', 'c', 'd', 'e'])).toMatchObject({ cause: 'e', howOften: 'the last time' });
  expect(lose(Array<string>(5).fill('x'.repeat(3000)))?.cause).toHaveLength(500);
});
