import { chunksOf, Member, AsyncMember, memoryPair, type Clock, type Connection } from '@paceline/exchange';
import type { ServerAddress, StepTaskJob } from '@paceline/control-plane';
import { layoutHash, type Layout } from '@paceline/learning';
import { ProtocolError, type Message } from '@paceline/protocol';
import { runSpecSchema } from '@paceline/spec';
import { expect, test } from 'vitest';
import { SeatSession, parameterBytes, type SeatCompute, type SeatComputeEvents, type SessionEnd } from './seat-session.js';

const NUMBERS = { attempt: 1, term: 1, view: 0, round: 0 };
const LAYOUT: Layout = {
  variables: [{ path: 'v', shape: [4], section: 'trainable', offset: 0, length: 4 }],
  chunks: [{ index: 0, section: 'trainable', offset: 0, length: 4 }],
  trainableLength: 4,
  stateLength: 0,
  totalLength: 4,
};

function virtualTime() {
  let nowMs = 0;
  const timers = new Set<{ atMs: number; everyMs?: number; act: () => void }>();
  const add = (timer: { atMs: number; everyMs?: number; act: () => void }) => {
    timers.add(timer);
    return () => void timers.delete(timer);
  };
  const clock: Clock = {
    now: () => nowMs,
    after: (ms, act) => add({ atMs: nowMs + ms, act }),
    every: (ms, act) => add({ atMs: nowMs + ms, everyMs: ms, act }),
    soon: (act) => queueMicrotask(act),
  };
  /** What is on its way inside the process arrives, then the clock goes on. */
  const pass = async (ms: number): Promise<void> => {
    for (const untilMs = nowMs + ms; ;) {
      for (let turn = 0; turn < 6; turn++) await new Promise((resolve) => setImmediate(resolve));
      const next = [...timers].sort((a, b) => a.atMs - b.atMs)[0];
      if (!next || next.atMs > untilMs) return void (nowMs = untilMs);
      nowMs = next.atMs;
      if (next.everyMs === undefined) timers.delete(next);
      else next.atMs += next.everyMs;
      next.act();
    }
  };
  return { clock, pass, timers };
}

type Answer = (hello: Message & { type: 'hello' }, connection: Connection) => void;
const welcome: Answer = (_, connection) =>
  connection.sendMessage(
    { type: 'welcome', id: 'ps', server: 0, round: 0, view: 0, term: 1, applied: '', window: 1, base: 0, phase: 'waiting' },
    NUMBERS,
  );

/** A session with an engine that only remembers, and one server that answers HELLO. @param answer null: the server cannot be reached */
async function setUp(answer: Answer | null = welcome, mode: 'sync' | 'async' = 'sync') {
  const { clock, pass, timers } = virtualTime();
  const heard: Message[] = [];
  const closed: string[] = [];
  const ends: SessionEnd[] = [];
  const errors: string[] = [];
  const asked: string[] = [];
  let says!: SeatComputeEvents;
  let stopped!: () => void;
  let server!: Connection;
  const compute: SeatCompute = {
    fingerprint: 'an engine',
    progress: 7,
    step: () => asked.push('step'),
    item: () => asked.push('item'),
    evaluate: () => asked.push('evaluate'),
    committed: () => asked.push('committed'),
    listen: (events) => void (says = events),
    stop: () => (asked.push('stop'), new Promise<void>((resolve) => (stopped = resolve))),
  };
  const spec = runSpecSchema.parse({
    model: 'mlp',
    globalBatch: 4,
    replicas: 2,
    length: { rounds: 2 },
    strategy: { kind: 'parameter-server', mode },
  });
  const address: ServerAddress = { index: 0, serverId: 'ps', host: 'h', port: 1, unixPath: null };
  const job = {
    kind: 'step-task',
    runId: '00000000-0000-4000-8000-000000000001',
    attempt: 1,
    seat: 1,
    incarnation: 2,
    token: 'a token',
    spec,
    data: { trainExamples: 8 },
    servers: [address],
  } as unknown as StepTaskJob;
  const session = new SeatSession({
    job,
    workerId: 'w',
    host: 'here',
    compute,
    layout: LAYOUT,
    clock,
    parameters: new ArrayBuffer(parameterBytes(spec, LAYOUT)),
    log: { error: (_, message) => errors.push(message) },
    connect: () => {
      if (!answer) return Promise.reject(new Error('nobody listens'));
      const [near, far] = memoryPair({ clock });
      server = far;
      far.setReceiver({
        payloadFor: ({ length }) => new Uint8Array(length),
        data: () => undefined,
        message: (message) => {
          heard.push(message);
          if (message.type === 'hello') answer(message, far);
        },
        closed: ({ description }) => closed.push(description),
      });
      return Promise.resolve(near);
    },
  });
  void session.ended.then((end) => ends.push(end));
  session.begin();
  await pass(0);
  const types = () => heard.map(({ type }) => type);
  return {
    session,
    heard,
    types,
    closed,
    ends,
    errors,
    asked,
    timers,
    pass,
    says: (): SeatComputeEvents => says,
    stopped: () => stopped(),
    server: () => server,
  };
}

test('HELLO names the seat, the engine and the layout; then heartbeats carry the progress of the engine', async () => {
  const { heard, types, pass, session } = await setUp();
  expect(heard[0]).toEqual({
    type: 'hello',
    token: 'a token',
    run: session.job.runId,
    role: 'worker',
    id: 'w',
    host: 'here',
    seat: 1,
    incarnation: 2,
    fingerprint: 'an engine',
    layout: layoutHash(LAYOUT),
  });
  await pass(1_000);
  expect(types().slice(1)).toEqual(['heartbeat', 'heartbeat']); // what a server owes it sends by itself
  expect(heard[1]).toMatchObject({ progress: 8 }); // 7, and one beat of rest
});

test.each([
  ['sync', Member],
  ['async', AsyncMember],
] as const)('mode %s has its machine, with memory for its generations', async (mode, kind) => {
  const { session } = await setUp(welcome, mode);
  expect(session.member).toBeInstanceOf(kind);
  expect(parameterBytes(session.job.spec, LAYOUT)).toBe(mode === 'sync' ? 32 : 16);
});

test('a leave that nobody answers ends at its deadline, and not before the engine has stopped', async () => {
  const { session, types, ends, asked, closed, timers, stopped, pass } = await setUp();
  session.leave('going home', 3_000);
  await pass(2_900);
  expect(types()).toContain('leave');
  expect(asked).toEqual([]);
  await pass(200);
  expect(asked).toEqual(['stop']);
  expect(closed).toHaveLength(1);
  expect(session.member.table.state).toBe('OVER');
  expect(ends).toEqual([]);
  stopped();
  await pass(1_100); // the linger of the connection
  expect(ends).toEqual([{ kind: 'ended', outcome: 'finished', message: 'left without an answer after 3000 ms: going home' }]);
  expect(timers.size).toBe(0);
});

test('a leave that is granted ends with the word of the coordinator; the deadline does nothing any more', async () => {
  const { session, ends, asked, server, stopped, pass } = await setUp();
  session.leave('going home', 3_000);
  await pass(100);
  server().sendMessage({ type: 'end', outcome: 'finished', message: 'it left' }, NUMBERS);
  await pass(100);
  stopped();
  await pass(5_000);
  expect(ends).toEqual([{ kind: 'ended', outcome: 'finished', message: 'it left' }]);
  expect(asked).toEqual(['stop']);
});

test('an engine that fails is told to the coordinator, and the seat is given up once, whatever it says afterwards', async () => {
  const { session, heard, types, ends, errors, asked, says, stopped, pass } = await setUp();
  says().failed('ENGINE_CRASHED', 'out of memory', 0, -1);
  says().failed('ENGINE_EXITED', 'code 1', 0, -1);
  let released = 0;
  says().contribution(0, 0, 2, [1, 2]);
  says().node({ round: 0, lo: 0, hi: 1, chunk: chunksOf(new Uint8Array(16)), release: () => released++ });
  session.leave('too late', 10);
  await pass(100);
  stopped();
  await pass(1_000);
  expect(heard.filter(({ type }) => type === 'failed')).toMatchObject([{ code: 'ENGINE_CRASHED', message: 'out of memory' }]);
  expect(ends).toEqual([{ kind: 'given-up', code: 'ENGINE_CRASHED', message: 'out of memory', serverIndex: null }]);
  expect([errors.length, released]).toEqual([1, 1]);
  expect(asked).toEqual(['stop']);
  expect(types().slice(types().indexOf('failed'))).toEqual(['failed']);
});

test('a refusal gives the seat up with its code and the server', async () => {
  const { ends, asked, stopped, pass } = await setUp((_, connection) => connection.close(new ProtocolError('SEAT_TAKEN')));
  await pass(10);
  expect(asked).toEqual(['stop']);
  stopped();
  await pass(0);
  expect(ends).toMatchObject([{ kind: 'given-up', code: 'SEAT_TAKEN', serverIndex: 0 }]);
});

test('a server out of reach is tried for three seconds; then the seat is given up', async () => {
  const { ends, asked, stopped, pass } = await setUp(null);
  await pass(2_900);
  expect(asked).toEqual([]);
  await pass(400);
  expect(asked).toEqual(['stop']);
  stopped();
  await pass(0);
  expect(ends).toMatchObject([{ kind: 'given-up', code: 'SERVER_UNREACHABLE', serverIndex: 0 }]);
});
