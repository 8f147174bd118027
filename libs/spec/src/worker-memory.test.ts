import { expect, test } from 'vitest';
import { LIMITS } from './limits.js';
import { gradientVectors, largestModel, tooLargeFor } from './worker-memory.js';

const sync = (replicas: number, backupReplicas = 0) => ({ replicas, strategy: { mode: 'sync' as const, backupReplicas } });

test.each([
  [1, 1],
  [2, 2],
  [3, 2],
  [4, 3],
  [5, 3],
  [7, 3],
  [8, 4],
  [64, 7],
  [1024, 11],
])('a worker that has all of %i replicas holds %i gradients at once', (replicas, vectors) => {
  expect(gradientVectors(sync(replicas))).toBe(vectors);
});

test('the largest model follows from the arena: replicas, backup replicas and the mode count', () => {
  expect(largestModel(sync(1))).toBe(89_391_104);
  expect(largestModel(sync(4))).toBe(89_391_104);
  expect(largestModel(sync(8))).toBe(67_043_328);
  expect(largestModel(sync(16, 1))).toBe(16_760_832);
  expect(largestModel({ replicas: 64, strategy: { mode: 'async', backupReplicas: 0 } })).toBe(89_391_104);
  expect(LIMITS.modelParameters).toBe(largestModel(sync(1)));
});

test('a model that does not fit is refused with the numbers, and with what helps', () => {
  expect(tooLargeFor(sync(8), 67_043_328)).toBeUndefined();
  expect(tooLargeFor(sync(8), 70_000_000)).toBe(
    'has 70000000 parameters (state included); at most 67043328 train here: a worker that has all 8 replicas holds 4 gradients of it at once, ' +
      'in 1024 MiB with room for 3 at least; use a smaller model, or fewer replicas',
  );
  expect(tooLargeFor(sync(1), 200_015_690)).toMatch(/at most 89391104 train here.*use a smaller model$/);
  expect(tooLargeFor(sync(16, 2), 20_000_000)).toMatch(/with backup replicas, holds 16 gradients/);
});
