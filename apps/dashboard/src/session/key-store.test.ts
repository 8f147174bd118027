import { describe, expect, it } from 'vitest';
import { broughtKey, cleanKey, forgetKey, keyInFragment, readKey, writeKey } from './key-store.js';

function storage(): Storage {
  const items = new Map<string, string>();
  return {
    getItem: (name: string) => items.get(name) ?? null,
    setItem: (name: string, value: string) => void items.set(name, value),
    removeItem: (name: string) => void items.delete(name),
    get length() {
      return items.size;
    },
  } as Storage;
}

describe('the key of this browser', () => {
  it('is kept in the tab unless it is to be remembered, and never in both places', () => {
    const places = { session: storage(), local: storage() };
    writeKey({ key: 'a', remembered: false }, places);
    expect([places.session.length, places.local.length, readKey(places)]).toEqual([1, 0, { key: 'a', remembered: false }]);
    writeKey({ key: 'b', remembered: true }, places);
    expect([places.session.length, places.local.length, readKey(places)]).toEqual([0, 1, { key: 'b', remembered: true }]);
    forgetKey(places);
    expect([places.session.length, places.local.length, readKey(places)]).toEqual([0, 0, undefined]);
  });
  it('is taken out of the fragment and leaves the rest of it', () => {
    expect(keyInFragment('#key=pl_abc')).toEqual({ key: 'pl_abc', rest: '' });
    expect(keyInFragment('#a=1&key=pl%5Fabc')).toEqual({ key: 'pl_abc', rest: '#a=1' });
    expect(keyInFragment('#key=')).toEqual({ key: '', rest: '' });
    expect(keyInFragment('#other')).toBeUndefined();
    expect(keyInFragment('')).toBeUndefined();
  });
  it('is remembered as before when a link brings the same one', () => {
    const places = { session: storage(), local: storage() };
    writeKey({ key: 'a', remembered: true }, places);
    expect([broughtKey('a', places), broughtKey('b', places)]).toEqual([
      { key: 'a', remembered: true },
      { key: 'b', remembered: false },
    ]);
  });
  it('can stand in a header, or is none', () => {
    expect(cleanKey('  pl_abc\n')).toBe('pl_abc');
    expect([cleanKey(''), cleanKey('two words'), cleanKey('kéy'), cleanKey('x'.repeat(201))]).toEqual([
      undefined,
      undefined,
      undefined,
      undefined,
    ]);
  });
});
