import { expect, it } from 'vitest';
import { areOn, neighbour, shortcutOf, turn } from './shortcut-keys.js';

const press = (key: string, held: object = {}) => ({ key, ctrlKey: false, metaKey: false, altKey: false, ...held });

it('leaves keys alone that belong to a field, to the browser, or to nobody', () => {
  expect(shortcutOf(press('j'), false)).toBe('j');
  expect([shortcutOf(press('j'), true), shortcutOf(press('r', { ctrlKey: true }), false), shortcutOf(press('x'), false)]).toEqual([
    undefined,
    undefined,
    undefined,
  ]);
});

it('goes from run to run and stays at the ends', () => {
  expect([neighbour(-1, 1, 3), neighbour(-1, -1, 3), neighbour(2, 1, 3), neighbour(0, -1, 3), neighbour(-1, 1, 0)]).toEqual([
    0,
    2,
    2,
    0,
    undefined,
  ]);
});

it('can be turned off for good', () => {
  const items = new Map<string, string>();
  const storage = {
    getItem: (name: string) => items.get(name) ?? null,
    setItem: (name: string, value: string) => void items.set(name, value),
    removeItem: (name: string) => void items.delete(name),
  };
  expect(areOn(storage)).toBe(true);
  turn(false, storage);
  expect(areOn(storage)).toBe(false);
  turn(true, storage);
  expect(areOn(storage)).toBe(true);
});
