import { expect, it } from 'vitest';
import { PendingSockets } from './pending-sockets.js';

it('a flood from one address pushes out its own sockets', () => {
  const pending = new PendingSockets<string>({ inAll: 10, perSource: 4 }, () => 0);
  expect([1, 2, 3, 4].map((n) => pending.add(`flood ${n}`, 'a'))).toEqual([undefined, undefined, undefined, undefined]);
  expect(pending.add('other', 'b')).toBeUndefined();
  expect(pending.add('flood 5', 'a')).toBe('flood 1');
  expect(pending.add('flood 6', 'a')).toBe('flood 2');
  expect(pending.size).toBe(5);
});

it('when all places are taken, the address that has the most gives one', () => {
  const pending = new PendingSockets<string>({ inAll: 5, perSource: 4 }, () => 0.99);
  for (const [socket, source] of ['a1 a', 'a2 a', 'a3 a', 'b1 b', 'b2 b'].map((text) => text.split(' ') as [string, string]))
    pending.add(socket, source);
  expect(pending.add('c1', 'c')).toBe('a3');
  pending.delete('b1');
  pending.delete('b1');
  expect(pending.add('c2', 'c')).toBeUndefined();
  expect(pending.size).toBe(5);
});
