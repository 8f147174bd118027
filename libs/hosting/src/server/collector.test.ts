import type { Clock, Connection } from '@paceline/exchange';
import type { Layout } from '@paceline/learning';
import { Codec, FrameType, type FrameHeader } from '@paceline/protocol';
import { expect, test } from 'vitest';
import { WeightsCollector } from './collector.js';
import type { WeightsFiles } from './server-context.js';

const LAYOUT: Layout = {
  variables: [{ path: 'v', shape: [4], section: 'trainable', offset: 0, length: 4 }],
  chunks: [{ index: 0, section: 'trainable', offset: 0, length: 4 }],
  trainableLength: 4,
  stateLength: 0,
  totalLength: 4,
};

/** One chunk of one server. `stall`: the clock leaps ahead, as after a suspension. @param stepMs in which time moves @param rate of the clock that the collector reads @param files where the weights are written; left out they are not */
function collecting({ stepMs = 1, rate = 1, files }: { stepMs?: number; rate?: number; files?: WeightsFiles } = {}) {
  let nowMs = 0;
  const timers = new Set<{ atMs: number; act: () => void }>();
  const clock: Clock = {
    now: () => nowMs * rate,
    after: (ms, act) => {
      const timer = { atMs: Math.floor((nowMs + ms / rate) / stepMs) * stepMs, act };
      timers.add(timer);
      return () => void timers.delete(timer);
    },
    every: () => () => undefined,
    soon: (act) => queueMicrotask(act),
  };
  const state = { pulls: 0, isOpen: true, isOver: false, delays: [] as string[] };
  const connection = {
    get isOpen() {
      return state.isOpen;
    },
    sendMessage: () => void state.pulls++,
  } as unknown as Connection;
  const collector = new WeightsCollector({
    layout: LAYOUT,
    clock,
    files: files!,
    generation: 3,
    file: files ? 'weights' : null,
    metadata: {},
    deadlineMs: 60_000,
    serverOfChunk: new Map([[0, 0]]),
    servers: new Map([[0, connection]]),
    machine: { numbers: () => ({ attempt: 1, term: 1, view: 1, round: 3 }) },
    isOver: () => state.isOver,
    delayed: (why) => void state.delays.push(why),
  });
  let end: string | undefined;
  void collector.collect().then(
    () => (end = 'collected'),
    (error: Error) => (end = error.message),
  );
  const turns = async (): Promise<void> => {
    for (let turn = 0; turn < 4; turn++) await new Promise((resolve) => setImmediate(resolve));
  };
  const pass = async (ms: number): Promise<void> => {
    let left = 1_000;
    for (const untilMs = nowMs + ms; ; await turns()) {
      if (--left === 0) throw new Error('timers come to no end');
      await turns();
      const [next] = [...timers].sort((a, b) => a.atMs - b.atMs);
      if (!next || next.atMs > untilMs) return void (nowMs = Math.max(nowMs, untilMs));
      nowMs = Math.max(nowMs, next.atMs);
      timers.delete(next);
      next.act();
    }
  };
  const arrive = (): void => {
    const header = { type: FrameType.parameters, codec: Codec.none, round: 3, chunk: 0, length: 16 } as FrameHeader;
    collector.data(header, collector.payloadFor(header));
  };
  return { collector, state, pass, arrive, stall: (ms: number) => void (nowMs += ms), turns, timers, end: () => end };
}

test('a chunk that does not come from a server that is there is not waited for longer than the deadline', async () => {
  const { pass, end } = collecting();
  await pass(59_000);
  expect(end()).toBeUndefined();
  await pass(1_500);
  expect(end()).toBe('chunk 0 did not come from parameter server 0 within 60000 ms');
});

test('the deadline comes where the clock does not tell such short times apart', async () => {
  const { pass, end } = collecting({ stepMs: 0.125, rate: 0.9 });
  await pass(90_000);
  expect(end()).toBe('chunk 0 did not come from parameter server 0 within 60000 ms');
});

test('what came while this process stood still is read before the deadline is looked at', async () => {
  const { pass, stall, arrive, turns, end } = collecting();
  await pass(2_000);
  stall(70_000);
  await pass(200);
  expect(end()).toBeUndefined();
  arrive();
  await turns();
  expect(end()).toBe('collected');
});

test('whose server is away is the coordinator to wait for; a server that is back is asked again', async () => {
  const { collector, state, pass, arrive, turns, end } = collecting();
  await pass(30_000);
  state.isOpen = false;
  await pass(200_000);
  state.isOpen = true;
  collector.askAgain(0);
  expect(state.pulls).toBe(2);
  await pass(50_000);
  expect(end()).toBeUndefined();
  arrive();
  await turns();
  expect(end()).toBe('collected');
});

test('nothing is waited for when the attempt has ended', async () => {
  const { state, pass, end, timers } = collecting();
  state.isOpen = false;
  await pass(5_000);
  state.isOver = true;
  await pass(1_000);
  expect(end()).toBe('the attempt ended before chunk 0 came from parameter server 0');
  expect(timers.size).toBe(0);
});

/** A disk that is full as long as `isFull` is true. */
function fullDisk() {
  const disk = { isFull: true, begun: 0, aborted: 0, finished: 0 };
  const files: WeightsFiles = {
    pathOf: () => 'weights',
    create: () => {
      disk.begun++;
      return Promise.resolve({
        append: () =>
          disk.isFull
            ? Promise.reject(Object.assign(new Error('ENOSPC: no space left on device, write'), { code: 'ENOSPC' }))
            : Promise.resolve(),
        finish: () => Promise.resolve(void disk.finished++),
        abort: () => {
          disk.aborted++;
          return Promise.reject(new Error('the beginning of the file stays'));
        },
      });
    },
  };
  return { disk, files };
}

test('a file that cannot be written is begun again until it can be', async () => {
  const { disk, files } = fullDisk();
  const { state, pass, arrive, turns, end } = collecting({ files });
  for (const pauseMs of [1_000, 2_000, 4_000]) {
    await turns();
    arrive();
    await pass(pauseMs);
  }
  expect(end()).toBeUndefined();
  expect(disk).toMatchObject({ begun: 4, aborted: 3 });
  expect(state.delays).toEqual(Array<string>(3).fill('ENOSPC: no space left on device, write'));
  disk.isFull = false;
  arrive();
  await turns();
  expect(end()).toBe('collected');
  expect(disk).toMatchObject({ begun: 4, finished: 1 });
});

test('a file that can never be written is given up after half an hour of pauses, with the reason', async () => {
  const { disk, files } = fullDisk();
  const { state, pass, arrive, turns, end } = collecting({ files });
  for (let i = 0; i < 200 && end() === undefined; i++) {
    await turns();
    if (disk.begun > disk.aborted) arrive();
    await pass(10_000);
  }
  expect(end()).toBe('ENOSPC: no space left on device, write');
  expect(state.delays.length).toBeGreaterThan(60);
});

test('nothing is written any more when the attempt has ended', async () => {
  const { disk, files } = fullDisk();
  const { state, pass, arrive, turns, end } = collecting({ files });
  await turns();
  arrive();
  await turns();
  state.isOver = true;
  await pass(1_000);
  expect(end()).toBe('the attempt ended before the weights were written');
  expect(disk.begun).toBe(1);
});
