import { expect, it } from 'vitest';
import { matchesPatterns } from './variable-patterns.js';

it.each([
  ['conv*', 'conv2d_1/kernel', true],
  ['conv*', 'my_conv/kernel', false],
  ['dense_1', 'dense_1/kernel', true],
  ['dense_1', 'dense_10/kernel', false],
  ['*/bias', 'dense_1/bias', true],
  ['*/bias', 'dense_1/bias_1', false],
  ['dense_1/*', 'dense_1/kernel', true],
  ['a*a', 'a/kernel', false],
  ['block*norm', 'block_3_norm/gamma', true],
  ['*', 'any/thing', true],
])('%s on %s: %s', (pattern, path, expected) => {
  expect(matchesPatterns([pattern], path)).toBe(expected);
  expect(matchesPatterns(undefined, path)).toBe(false);
});
