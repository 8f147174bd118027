import { expect, test } from 'vitest';
import { GrantedWindow, TakenCredits } from './credit-window.js';

test('a base is told when half of the window is used up, until everything may be sent, and anew in the next round', () => {
  const told = (size: number, chunks: number): number[] => {
    const window = new GrantedWindow(size, chunks);
    return Array.from({ length: chunks + 1 }, (_, base) => base).filter((base) => window.mustTell(base));
  };
  expect(told(4, 11)).toEqual([2, 4, 6, 8]);
  expect(told(1, 4)).toEqual([1, 2, 3]);
  expect([told(4, 4), told(1, 0)]).toEqual([[], []]);
  const window = new GrantedWindow(2, 5);
  expect([window.mustTell(3), window.mustTell(3)]).toEqual([true, false]);
  window.reset();
  expect([window.mustTell(0), window.mustTell(1)]).toEqual([false, true]);
  expect(() => new GrantedWindow(0, 3)).toThrow('a window of 0 chunks');
});

test('a member sends as far as it was granted, of the next round the first window, and of an older one nothing', () => {
  const credits = new TakenCredits();
  expect(credits.limit(0, 3)).toBe(0);
  credits.welcome(0, { round: 3, base: 2, window: 4, isApplied: (place) => place === 2 });
  expect([2, 3, 4].map((round) => credits.limit(0, round))).toEqual([0, 6, 4]);
  credits.credit(0, 3, 5);
  credits.credit(0, 3, 4);
  credits.credit(0, 2, 9);
  expect(credits.limit(0, 3)).toBe(9);
  expect([credits.isApplied(0, 3, 2), credits.isApplied(0, 3, 3), credits.isApplied(0, 4, 2)]).toEqual([true, false, false]);
  // What WELCOME has said of chunks holds for its round alone.
  credits.credit(0, 4, 1);
  expect([credits.limit(0, 3), credits.limit(0, 4), credits.isApplied(0, 4, 2)]).toEqual([0, 5, false]);
});
