import { expect, it } from 'vitest';
import { PLACES_PER_SERVER } from './fair-share.js';
import { memoryWaits, type HeldPart } from './server-room.js';

const servers = [
  { id: 'a', memoryBytes: 1000 },
  { id: 'b', memoryBytes: 2000 },
];
const part = (runId: string, serverId: string, bytes: number): HeldPart => ({ runId, serverId, bytes });
const held = [part('x', 'a', 600), part('y', 'b', 900), part('z', 'b', 800)];
const of = (bytes: number, parts: readonly HeldPart[] = held, there: Parameters<typeof memoryWaits>[1] = servers) =>
  memoryWaits([{ runId: 'new', bytes }], there, parts).get('new');

it('a part waits when it fits beside the runs of no server, and the roomiest one is named', () => {
  expect(of(401)).toEqual({ neededBytes: 401, freeBytes: 400, memoryBytes: 1000, runs: 1 });
  expect(of(400)).toBeUndefined();
});

it('a server that holds nothing takes what comes, and so may one that does not say what it has', () => {
  expect(of(5000, held.slice(1))).toBeUndefined();
  expect(of(5000, held, [...servers, { id: 'c', memoryBytes: undefined }])).toBeUndefined();
});

it('a server with another part of the run, or without a place, is no candidate', () => {
  expect(of(300, [...held, part('new', 'a', 300)])).toBeUndefined(); // fits on b
  expect(of(301, [...held, part('new', 'a', 300)])).toMatchObject({ freeBytes: 300, memoryBytes: 2000, runs: 2 });
  expect(
    of(
      1,
      Array.from({ length: PLACES_PER_SERVER }, (_, i) => part(`${i}`, 'a', 1)),
      servers.slice(0, 1),
    ),
    'it waits for a place',
  ).toBe(undefined);
});
