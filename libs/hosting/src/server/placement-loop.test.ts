import {
  LOADING_AT_MOST_MS,
  type ControlFields,
  type HeldJob,
  type PlacementJob,
  type Report,
  type ServerAddress,
} from '@paceline/control-plane';
import type { Checkpoints } from '@paceline/storage';
import { expect, test } from 'vitest';
import { virtualTime } from '../virtual-time.fixture.js';
import { PlacementLoop, type PlacedRun } from './placement-loop.js';

const address = (index: number) => ({ index, serverId: `ps-${index}`, host: 'h', port: 1, unixPath: null });

/** One of two servers: it has nothing to load, and waits for the other. */
function setUp() {
  const { clock, run } = virtualTime();
  const job = { kind: 'placement', runId: '00000000-0000-4000-8000-000000000001', attempt: 1, index: 1, role: 'primary' } as PlacementJob;
  const yes = () => Promise.resolve(true);
  const jobs: HeldJob<PlacementJob>[] = [{ id: 'place', payload: job, keep: yes, complete: yes, giveBack: yes }];
  const control: ControlFields = {};
  const reports: Report[] = [];
  const begun: string[] = [];
  const silent = () => undefined;
  const none = () => Promise.resolve();
  const loop = new PlacementLoop<PlacedRun>({
    queue: { take: () => Promise.resolve(jobs.shift()), peek: () => Promise.resolve(undefined), close: none },
    address: { serverId: 'ps-1', host: 'h', port: 1, unixPath: null },
    context: {
      serverId: 'ps-1',
      clock,
      log: { debug: silent, info: silent, warn: silent, error: silent },
      controlPlane: {
        readControl: () => Promise.resolve({ ...control }),
        sendReport: (report) => Promise.resolve(void reports.push(report)),
      },
      checkpoints: { store: { identity: () => Promise.resolve('store') } } as unknown as Checkpoints,
    },
    createRun: (_, onGone) => {
      const part = {
        job,
        isOver: false,
        prepare: none,
        shutdown: none,
        flush: none,
        stop: silent,
        start: (servers: readonly ServerAddress[]) => Promise.resolve(void begun.push(...servers.map(({ serverId }) => serverId))),
        drop: () => {
          part.isOver = true;
          onGone(part);
        },
      };
      return part;
    },
  });
  loop.start();
  const failures = () => reports.flatMap((report) => (report.kind === 'server.failed' ? [report.code] : []));
  return { run, loop, control, begun, failures };
}

test('a server that has loaded waits as long as another may load', async () => {
  const { run, control, begun, failures } = setUp();
  await run(180_000);
  await run(LOADING_AT_MOST_MS);
  expect(failures()).toEqual([]);
  control.start = JSON.stringify({ attempt: 1, servers: [address(0), address(1)] });
  await run(1_000);
  expect(begun).toEqual(['ps-0', 'ps-1']);
});

test('a server lets go of a part of an attempt that is over: it was cancelled, or the next one has begun before anybody said so', async () => {
  const servers = [address(0), address(1)];
  const words: ControlFields[] = [
    { action: '1:cancel' },
    { action: '2:pause' },
    { start: JSON.stringify({ attempt: 2, servers }) },
    { claims: JSON.stringify({ attempt: 2, claims: [] }) },
  ];
  for (const word of words) {
    const { run, loop, control, begun } = setUp();
    control.claims = JSON.stringify({ attempt: 1, claims: [] });
    control.action = '0:cancel';
    await run(1_000);
    expect(loop.runs.size).toBe(1);
    Object.assign(control, word);
    await run(1_000);
    expect(loop.runs.size, JSON.stringify(word)).toBe(0);
    expect(begun).toEqual([]);
  }
});

test('a server that the control plane has forgotten gives its part up', async () => {
  const { run, loop, failures } = setUp();
  await run(2 * LOADING_AT_MOST_MS + 10_000);
  expect(failures()).toEqual(['NOT_STARTED']);
  expect(loop.runs.size).toBe(0);
});

/** A loop that is handed jobs, and what becomes of them. */
function handed(stop: () => void, memory?: { readonly bytes: number; needs(job: PlacementJob): number }) {
  const { clock, run } = virtualTime();
  const jobs: HeldJob<PlacementJob>[] = [];
  const became: string[] = [];
  const silent = () => undefined;
  const none = () => Promise.resolve();
  const hand = (runId: string, attempt: number): void => {
    const payload = { kind: 'placement', runId, attempt, index: 0, role: 'primary' } as PlacementJob;
    const say = (what: string) => () => Promise.resolve(Boolean(became.push(`${runId}/${attempt} ${what}`)));
    jobs.push({ id: 'place', payload, keep: say('kept'), complete: say('completed'), giveBack: say('given back') });
  };
  const loop = new PlacementLoop<PlacedRun>({
    queue: { take: () => Promise.resolve(jobs.shift()), peek: () => Promise.resolve(undefined), close: none },
    address: { serverId: 'ps-1', host: 'h', port: 1, unixPath: null },
    context: {
      serverId: 'ps-1',
      clock,
      log: { debug: silent, info: silent, warn: silent, error: silent },
      controlPlane: { readControl: () => Promise.resolve({}), sendReport: none },
      checkpoints: { store: { identity: () => Promise.resolve('store') } } as unknown as Checkpoints,
    },
    memory,
    createRun: (job) => ({ job, isOver: false, prepare: none, shutdown: none, flush: none, stop, start: silent, drop: silent }),
  });
  loop.start();
  return { run, loop, hand, became };
}

test('a job that cannot be taken because something is thrown waits again, for another server', async () => {
  const { run, hand, became } = handed(() => {
    throw new Error('the attempt before cannot be stopped');
  });
  hand('a', 1);
  await run(1_000);
  hand('a', 2);
  await run(1_000);
  expect(became).toEqual(['a/1 completed', 'a/2 given back']);
});

test('the part that was taken last is the last of the parts, though an older attempt of its run was here before another run', async () => {
  const { run, loop, hand } = handed(() => undefined);
  for (const [runId, attempt] of [
    ['a', 1],
    ['b', 1],
    ['a', 2],
  ] as const) {
    hand(runId, attempt);
    await run(1_000);
  }
  expect([...loop.runs.values()].at(-1)?.job).toMatchObject({ runId: 'a', attempt: 2 });
});

test('a part that does not fit beside those of other runs waits for another server or for room, and lets smaller ones pass', async () => {
  const bytes: Readonly<Record<string, number>> = { huge: 200, large: 60, small: 40 };
  const { run, loop, hand, became } = handed(() => undefined, { bytes: 100, needs: ({ runId }) => bytes[runId]! });
  hand('huge', 1);
  await run(1_000);
  expect(became, 'who is alone is taken').toEqual(['huge/1 completed']);
  hand('small', 1);
  await run(1_000);
  expect(became.splice(0)).toEqual(['huge/1 completed', 'small/1 given back']);
  loop.runs.delete('huge');
  for (const runId of ['small', 'large']) hand(runId, 1);
  await run(1_000);
  expect(became.splice(0)).toEqual(['small/1 completed', 'large/1 completed']);
  // A later attempt of a run that is here takes the room of the one before.
  hand('large', 2);
  hand('huge', 1);
  hand('small', 2);
  await run(1_000);
  expect(became.splice(0)).toEqual(['large/2 completed', 'small/2 completed', 'huge/1 given back']);
});
