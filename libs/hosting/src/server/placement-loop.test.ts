import type { Clock } from '@paceline/exchange';
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
import { PlacementLoop, type PlacedRun } from './placement-loop.js';

const address = (index: number) => ({ index, serverId: `ps-${index}`, host: 'h', port: 1, unixPath: null });

function virtualTime(): { clock: Clock; run(forMs: number): Promise<void> } {
  let nowMs = 0;
  const timers = new Set<{ atMs: number; act: () => void; everyMs?: number }>();
  const add = (timer: { atMs: number; act: () => void; everyMs?: number }) => {
    timers.add(timer);
    return () => void timers.delete(timer);
  };
  const clock: Clock = {
    now: () => nowMs,
    after: (ms, act) => add({ atMs: nowMs + ms, act }),
    every: (ms, act) => add({ atMs: nowMs + ms, act, everyMs: ms }),
    soon: (act) => queueMicrotask(act),
  };
  const run = async (forMs: number): Promise<void> => {
    for (const untilMs = nowMs + forMs; ;) {
      await new Promise((resolve) => setImmediate(resolve));
      const next = [...timers].sort((a, b) => a.atMs - b.atMs)[0];
      if (!next || next.atMs > untilMs) return;
      nowMs = next.atMs;
      if (next.everyMs === undefined) timers.delete(next);
      else next.atMs += next.everyMs;
      next.act();
    }
  };
  return { clock, run };
}

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

test('a server that the control plane has forgotten gives its part up', async () => {
  const { run, loop, failures } = setUp();
  await run(2 * LOADING_AT_MOST_MS + 10_000);
  expect(failures()).toEqual(['NOT_STARTED']);
  expect(loop.runs.size).toBe(0);
});
