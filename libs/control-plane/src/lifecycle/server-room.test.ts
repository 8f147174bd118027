import { describe, expect, it } from 'vitest';
import { PLACES_PER_SERVER } from './fair-share.js';
import { IN_THE_WAY_WITHIN_MS, LOADING_AT_MOST_MS } from './placing.js';
import { beforeStart, decide, fleet, lostEnd, NOW, run, RUN_ID, server, unclaimed } from './reconcile.fixture.js';
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
  expect(of(401)).toEqual({ neededBytes: 401, freeBytes: 400, memoryBytes: 1000, runs: 1, olderWaitsSinceMs: undefined });
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

describe('runs that hold some of their parts and wait for each other', () => {
  const some = (runId: string, serverId: string, bytes: number): HeldPart => ({ runId, serverId, bytes, waitsSinceMs: 7 });
  const equal = ['s1', 's2', 's3'].map((id) => ({ id, memoryBytes: 100 }));
  /** Runs that have to let go. */
  const inTheWay = (parts: readonly HeldPart[], there = equal): string[] => {
    const unplaced = [
      ...new Map(
        parts.filter(({ waitsSinceMs }) => waitsSinceMs !== undefined).map(({ runId, bytes }) => [runId, { runId, bytes }]),
      ).values(),
    ];
    return [...memoryWaits(unplaced, there, parts)].flatMap(([runId, wait]) => (wait.olderWaitsSinceMs === 7 ? [runId] : []));
  };

  it('the younger one lets go, whichever server holds what', () => {
    const two = equal.slice(0, 2);
    expect(inTheWay([some('a', 's1', 60), some('b', 's2', 60)], two)).toEqual(['b']);
    expect(inTheWay([some('b', 's1', 60), some('a', 's2', 60)], two)).toEqual(['b']);
    expect(inTheWay([some('a', 's1', 60), some('b', 's2', 60), some('c', 's3', 60)])).toEqual(['b']);
  });

  it('nobody lets go for a run that gains nothing by it: it has room, holds nothing, is younger, or waits for one that has begun', () => {
    expect(inTheWay([some('a', 's1', 60), some('b', 's2', 60)]), 's3 is free').toEqual([]);
    const waits = memoryWaits(
      [
        { runId: 'a', bytes: 60 },
        { runId: 'b', bytes: 60 },
      ],
      equal.slice(0, 2),
      [part('x', 's1', 60), some('b', 's2', 60)],
    );
    expect(['a', 'b'].map((id) => waits.get(id)?.olderWaitsSinceMs)).toEqual([undefined, undefined]);
    expect(inTheWay([part('x', 's1', 60), some('a', 's2', 60), some('b', 's3', 60), part('x', 's3', 35)]), 'b leaves, and x stays').toEqual(
      ['b'],
    );
    expect(inTheWay([part('x', 's1', 60), some('a', 's2', 60), some('b', 's3', 30), part('x', 's3', 60)]), 'x fills s3').toEqual([]);
  });

  it('as few let go as make room, the youngest first, and those of the oldest run alone', () => {
    const wide = [
      { id: 's1', memoryBytes: 100 },
      { id: 's2', memoryBytes: 100 },
    ];
    expect(inTheWay([some('a', 's1', 60), some('b', 's2', 45), some('c', 's2', 45)], wide)).toEqual(['b', 'c']);
    expect(inTheWay([some('a', 's1', 50), part('x', 's1', 50), some('b', 's2', 50), some('c', 's2', 50)], wide)).toEqual(['c']);
  });
});

it('a run lets its servers go when an older one has waited for a while, or before they give up by themselves, if it waits for memory', () => {
  const wait = { neededBytes: 60, freeBytes: 40, memoryBytes: 100, runs: 1 };
  const after = (waitedMs: number, olderWaitedMs?: number | 'nobody', claims = true) => {
    const claim = { ...server.claim, atMs: NOW - waitedMs };
    const servers = [claims ? { ...server, claim } : unclaimed, { ...unclaimed, index: 1, madeAtMs: NOW }];
    const olderWaitsSinceMs = typeof olderWaitedMs === 'number' ? NOW - olderWaitedMs : undefined;
    const memory = olderWaitedMs === undefined ? {} : { memory: new Map([[RUN_ID, { ...wait, olderWaitsSinceMs }]]) };
    const actions = decide(run({ ...beforeStart, serversNeeded: 2, servers }), fleet({}, memory));
    return actions.filter(({ kind }) => kind === 'end-attempt');
  };
  const inTheWay = 'it waited for memory, and an older run waits for that of its servers; its other servers are free again';
  expect(after(5_000, IN_THE_WAY_WITHIN_MS)).toEqual([]);
  expect(after(5_000, IN_THE_WAY_WITHIN_MS + 1)).toEqual(lostEnd('NO_MEMORY', inTheWay));
  expect(after(LOADING_AT_MOST_MS, 'nobody')).toEqual([]);
  expect(after(LOADING_AT_MOST_MS + 1, 'nobody')).toEqual(lostEnd('NO_MEMORY', expect.stringContaining('within 10 minutes')));
  expect(after(LOADING_AT_MOST_MS + 1), 'it waits for something else').toEqual([]);
  expect(after(LOADING_AT_MOST_MS + 1, 'nobody', false), 'it holds nothing').toEqual([]);
});
