/** For how long a place asks the arbiter, on both sides of a shard. */
import { describe, expect, test } from 'vitest';
import type { Connection } from '../connection.js';
import { RoundReplication } from '../sync/round-replication.js';
import { Standby, type Follower } from './standby.js';

const numbers = { attempt: 1, term: 1, view: 1, round: 3 };
const none = (): void => undefined;
const connection = { queuedBytes: 0, sendMessage: none, close: none } as unknown as Connection;
const END = { type: 'end', outcome: 'finished', message: '' } as const;

/** The link between the two has just broken, 50 ms after a tick. */
function primary() {
  const clock = { now: 0 };
  const over: string[] = [];
  const machine = new RoundReplication({
    replicas: 2,
    chunkIndices: () => [],
    now: () => clock.now,
    coordinator: { tell: none },
    place: { numbers: () => numbers, askToDrop: none, ready: none, deposed: (why: string) => void over.push(why) },
  });
  machine.join('standby', connection);
  clock.now = 50;
  machine.closed(connection, 'it broke');
  const answered = (): void => machine.answered({ isPrimary: true, hasStandby: false });
  const stands = (): void => machine.answered({ isPrimary: true, hasStandby: true });
  return { clock, over, machine, answered, stands };
}

function standby() {
  const clock = { now: 0 };
  const over: string[] = [];
  const shard = { ...numbers, promote: none } as unknown as Follower;
  const machine = new Standby({
    attempt: 1,
    shard,
    now: () => clock.now,
    place: { askToPromote: none, promoted: none, standbyOver: (why: string) => void over.push(why) },
  });
  machine.linked(connection);
  clock.now = 50;
  machine.closed(connection, 'it broke');
  const answered = (): void => machine.answered({ isPrimary: true, isStandby: false, term: 2 });
  const stands = (): void => machine.answered({ isPrimary: false, isStandby: true, term: 1 });
  return { clock, over, machine, answered, stands };
}

describe.each([
  ['a primary', primary, 'DEPOSED', 'drop the standby', 'ALONE'],
  ['a standby', standby, 'OVER', 'promote this standby', 'PROMOTED'],
] as const)('%s', (_, make, gone, asked, led) => {
  const begin = () => {
    const place = make();
    const run = (forMs: number): void => {
      for (const until = place.clock.now + forMs; place.clock.now < until;) {
        place.clock.now += 100;
        place.machine.tick();
      }
    };
    return { ...place, run };
  };

  test('that is not answered gives its place up after 330 s, no sooner, and says what it asked', () => {
    const { machine, over, run, stands } = begin();
    run(200_000);
    stands(); // what stood before it asked is no answer
    run(130_000);
    expect([machine.table.state, over]).toEqual(['ASKING', []]);
    run(100);
    const message = `the arbiter has not answered for 330 s: it was asked to ${asked} (its link closed: it broke)`;
    expect([machine.table.state, over]).toEqual([gone, [message]]);
    expect(machine.table.taken.get('unanswered')).toBe(1);
    run(1_000);
    expect(over).toHaveLength(1);
  });

  test('that is answered in the last moment keeps its place', () => {
    const { machine, over, run, answered } = begin();
    run(330_000);
    answered();
    run(600_000);
    expect([machine.table.state, over]).toEqual([led, []]);
  });

  test('that stood still itself asks for as long as if it had not', () => {
    const { machine, clock, run } = begin();
    run(100_000);
    clock.now += 3_600_000;
    machine.tick();
    run(230_000);
    expect(machine.table.state).toBe('ASKING');
    run(100);
    expect(machine.table.state).toBe(gone);
  });
});

test('a primary beside which the attempt has ended waits for the deadline of that', () => {
  const { machine, clock, over } = primary();
  let final = 0;
  machine.conclude(END, () => final++);
  for (; clock.now < 400_000; clock.now += 100) machine.tick();
  expect([machine.table.state, over, final]).toEqual(['ASKING', [], 0]);
});
