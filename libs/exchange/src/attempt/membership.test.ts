import type { MessageOf } from '@paceline/protocol';
import { expect, test } from 'vitest';
import type { Connection } from '../connection.js';
import { Membership } from './membership.js';

const helloOf = (id: string, seat: number): MessageOf<'hello'> => ({ id, host: id, seat, incarnation: 0 }) as MessageOf<'hello'>;

function membersOf(replicas: Readonly<Record<string, number[]>>, leaving?: string): Membership {
  const members = new Membership(Object.values(replicas).flat().length, () => 0);
  for (const [seat, [id, own]] of Object.entries(replicas).entries()) {
    members.add(helloOf(id, seat), {} as Connection);
    members.get(id)!.replicas = own;
  }
  if (leaving !== undefined) members.get(leaving)!.leaving = 'it leaves';
  return members;
}
const held = (members: Membership) => Object.fromEntries(members.all().map(({ id, replicas }) => [id, replicas]));

test('who leaves takes over nothing of those that are lost, and keeps what it has to the end of the round', () => {
  const idle = membersOf({ leaver: [], lost: [0, 1], other: [2, 3] }, 'leaver');
  idle.remove('lost');
  expect(idle.cover()).toBe(true);
  expect(held(idle)).toEqual({ leaver: [], other: [0, 1, 2, 3] });
  const busy = membersOf({ leaver: [0], lost: [1, 2], other: [3] }, 'leaver');
  busy.remove('lost');
  busy.cover();
  expect(held(busy)).toEqual({ leaver: [0], other: [1, 2, 3] });
});

test('where nobody else is there it does', () => {
  const members = membersOf({ leaver: [], lost: [0, 1] }, 'leaver');
  members.remove('lost');
  members.cover();
  expect(held(members)).toEqual({ leaver: [0, 1] });
});

test('with EF21 who is away keeps its replicas until it is lost, and others none of them', () => {
  for (const waitsForAway of [true, false]) {
    const members = new Membership(3, () => 0, waitsForAway);
    for (const [seat, id] of ['away', 'here'].entries()) members.add(helloOf(id, seat), {} as Connection);
    members.get('away')!.replicas = [0];
    members.get('here')!.replicas = [1, 2];
    members.get('away')!.awaySinceMs = 1;
    expect(members.cover()).toBe(!waitsForAway);
    expect(held(members)).toEqual(waitsForAway ? { away: [0], here: [1, 2] } : { away: [], here: [0, 1, 2] });
    members.remove('away');
    expect(members.cover()).toBe(waitsForAway);
    expect(held(members)).toEqual({ here: [0, 1, 2] });
  }
});
