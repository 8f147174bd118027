import { PROTOCOL_VERSION } from '@paceline/protocol';
import { expect, it } from 'vitest';
import { queuedReason, waitsForPlaces, waitsForServers, type FleetCounts } from './waiting-reason.js';

const counts = (changes: Partial<FleetCounts>): FleetCounts => ({
  liveServers: 0,
  liveWorkers: 0,
  idleWorkers: 0,
  incompatible: [],
  ...changes,
});

it.each<[string, Partial<FleetCounts>, number, number, string]>([
  [
    'nothing is there',
    {},
    1,
    0,
    'waits for 1 parameter server: none is connected; waits for a worker: none is connected; start one with `paceline up`',
  ],
  [
    'nothing is there, and the only worker is of another release',
    { incompatible: [{ role: 'worker', id: 'w1', protocolVersion: PROTOCOL_VERSION + 1 }] },
    1,
    0,
    `waits for 1 parameter server: none is connected; start one with \`paceline up\`; waits for a worker: worker w1 speaks protocol ${PROTOCOL_VERSION + 1}, this control plane speaks ${PROTOCOL_VERSION}; run the same release everywhere`,
  ],
  ['no worker', { liveServers: 1 }, 1, 1, 'waits for a worker: none is connected; start one with `paceline up`'],
  ['no server', { liveWorkers: 2 }, 2, 0, 'waits for 2 parameter servers: none is connected; start one with `paceline up`'],
  [
    'too few servers',
    { liveServers: 1, liveWorkers: 1 },
    3,
    0,
    'waits for 3 parameter servers: only one is connected; start more, or ask for fewer (strategy.servers)',
  ],
  ['claims under way', { liveServers: 3, liveWorkers: 1 }, 3, 2, 'waits for 3 parameter servers to get ready: 2 of 3 are'],
  ['everything is there', { liveServers: 1, liveWorkers: 1 }, 1, 1, 'is about to be set up'],
  [
    'a worker of another release',
    { liveServers: 1, incompatible: [{ role: 'worker', id: 'w1', protocolVersion: PROTOCOL_VERSION + 1 }] },
    1,
    1,
    `waits for a worker: worker w1 speaks protocol ${PROTOCOL_VERSION + 1}, this control plane speaks ${PROTOCOL_VERSION}; run the same release everywhere`,
  ],
])('says it when %s', (_, changes, serversNeeded, claimed, reason) => {
  expect(queuedReason(counts(changes), { serversNeeded, standby: 0 }, claimed)).toBe(reason);
});

it('names a server of another release too', () => {
  expect(
    waitsForServers(counts({ incompatible: [{ role: 'server', id: 's1', protocolVersion: 9 }] }), { serversNeeded: 1, standby: 0 }, 0),
  ).toContain('server s1 speaks protocol 9');
});

it('counts processes where shards have standbys', () => {
  const needed = { serversNeeded: 4, standby: 1 };
  expect(waitsForServers(counts({ liveServers: 3 }), needed, 0)).toBe(
    'waits for 2 parameter servers with a standby each: needs 4 server processes, 3 are free; start more, or ask for fewer (strategy.servers, strategy.standby)',
  );
  expect(waitsForServers(counts({ liveServers: 4 }), needed, 3)).toBe(
    'waits for 2 parameter servers with a standby each to get ready: 3 of 4 are',
  );
});

it('says who holds the places, without naming a team, and how many runs come before', () => {
  const needed = { serversNeeded: 1, standby: 0 };
  const wait = { ahead: 2, places: 16, held: 16, heldByOwnTeam: 2, why: 'places', most: Infinity } as const;
  expect(waitsForPlaces(needed, wait)).toBe(
    'waits for 1 parameter server: other runs hold all 16 places, 14 of them of other teams; 2 runs are before it',
  );
  expect(waitsForPlaces(needed, { ...wait, ahead: 0 })).toMatch(/of other teams; it is next$/);
  expect(waitsForPlaces(needed, { ...wait, why: 'share', heldByOwnTeam: 12, held: 14, most: 10, ahead: 1 })).toBe(
    'waits for 1 parameter server: the team holds 12 of 16 places, and one team may hold 10 while others hold 2; 1 run of the team is before it',
  );
  expect(waitsForPlaces(needed, { ...wait, why: 'limit', heldByOwnTeam: 4, most: 4, ahead: 0 })).toBe(
    'waits for 1 parameter server: the team holds 4 of the 4 places that its limit allows (serverPlaces); it is next',
  );
  const everything = counts({ liveServers: 1, liveWorkers: 1 });
  expect(queuedReason(everything, needed, 0, [], { wait })).toMatch(/2 runs are before it$/);
  expect(queuedReason(everything, needed, 1, [], { wait })).toBe('is about to be set up');
});

it('says which memory a part waits for, with the numbers, while no server has it beside what it holds', () => {
  const needed = { serversNeeded: 2, standby: 0 };
  const memory = { neededBytes: 2.4e9, freeBytes: 9e8, memoryBytes: 4e9, runs: 3 };
  const everything = counts({ liveServers: 2, liveWorkers: 1 });
  const advice =
    'It begins when one of them ends or another server is connected; with more servers (strategy.servers) each part is smaller';
  expect(queuedReason(everything, needed, 1, [], { memory })).toBe(
    `waits for a parameter server with 2400 MB free (1 of 2 is ready): the one with the most has 900 of 4000 MB beside 3 runs. ${advice}`,
  );
  // Standbys make no part smaller.
  const withStandby = { serversNeeded: 4, standby: 1 };
  const four = counts({ liveServers: 4, liveWorkers: 1 });
  expect(queuedReason(four, withStandby, 2, [], { memory })).toBe(
    `waits for a parameter server with 2400 MB free (2 of 4 are ready): the one with the most has 900 of 4000 MB beside 3 runs. ${advice}`,
  );
  expect(queuedReason(everything, needed, 0, [], { memory: { ...memory, runs: 1 } })).toContain(
    'beside 1 run. It begins when that run ends or another server is connected; ',
  );
  // What is missing altogether is said first.
  expect(queuedReason(counts({ liveServers: 1, liveWorkers: 1 }), needed, 0, [], { memory })).toContain('only one is connected');
  const wait = { ahead: 0, places: 16, held: 16, heldByOwnTeam: 2, why: 'places', most: Infinity } as const;
  expect(queuedReason(everything, needed, 0, [], { wait, memory })).toContain('16 places');
});
