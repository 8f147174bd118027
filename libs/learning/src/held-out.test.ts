import fc from 'fast-check';
import { expect, test } from 'vitest';
import { HeldOut } from './held-out.js';

test('every example is either held out or trained on, once, and those that are trained on keep their order', () => {
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 300 }), fc.double({ min: 0, max: 1, noNaN: true }), fc.nat(), (examples, share, seed) => {
      const held = new HeldOut(seed, examples, Math.min(examples - 1, Math.floor(share * examples)));
      const trained = Array.from({ length: examples - held.rows.length }, (_, i) => held.trainingRow(i));
      expect(trained).toEqual([...trained].sort((a, b) => a - b));
      expect([...held.rows, ...trained].sort((a, b) => a - b)).toEqual(Array.from({ length: examples }, (_, i) => i));
    }),
    { numRuns: 200, seed: 11 },
  );
});

test('what is held out is that of the seed, in every release', () => {
  expect([...new HeldOut(42, 60_000, 6).rows]).toEqual([894, 10_928, 20_972, 23_616, 24_308, 37_550]);
  expect([...new HeldOut(43, 60_000, 6).rows]).not.toEqual([...new HeldOut(42, 60_000, 6).rows]);
  expect(() => new HeldOut(42, 6, 6)).toThrow(RangeError);
});
