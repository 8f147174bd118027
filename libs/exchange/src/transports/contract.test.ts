/** One suite for every transport: what `Connection` promises, held by memory, Unix sockets, TCP, and both reading ways of sockets. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { encodeMessage, FrameType, HEADER_BYTES, ProtocolError, type FrameHeader, type Message } from '@paceline/protocol';
import { afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { Connection } from '../connection.js';
import { processClock } from '../clock.js';
import { connect } from './connect.js';
import { createCounters } from './counters.js';
import type { ConnectionOptions } from './limits.js';
import { Link } from './link.js';
import { listen } from './listen.js';
import { memoryPair } from './memory.js';
import { Recorder, WAIT_MS } from './recorder.fixture.js';
import type { TlsSettings } from './tls/identity.js';
import { StackFixture } from './tls/stack.fixture.js';

const HELLO: Message = {
  type: 'hello',
  token: 'token',
  run: '00000000-0000-4000-8000-000000000000',
  role: 'worker',
  id: 'worker-1',
  host: 'here',
  seat: 0,
  incarnation: 1,
  fingerprint: '',
  layout: '',
};
const NUMBERS = { attempt: 1, term: 0, view: 0, round: 0 };

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

interface Pair {
  readonly near: Connection;
  readonly far: Connection;
  readonly nearSees: Recorder;
  readonly farSees: Recorder;
}

type MakePair = (options?: ConnectionOptions) => Promise<Pair>;

let stack: StackFixture;
beforeAll(async () => {
  stack = await StackFixture.make('contract');
});

function tlsPair(directReads: boolean): MakePair {
  return socketPair('tcp', directReads, () => ({
    server: { identity: stack.identity('server'), peers: ['worker'] },
    worker: { identity: stack.identity('worker'), peers: ['server'] },
  }));
}

function socketPair(
  kind: 'unix' | 'tcp',
  directReads: boolean,
  tlsOf?: () => { readonly server: TlsSettings; readonly worker: TlsSettings },
): MakePair {
  return async (options = {}) => {
    const tls = tlsOf?.();
    const folder = mkdtempSync(join(tmpdir(), 'paceline-wire-'));
    cleanups.push(() => rmSync(folder, { recursive: true }));
    const farSees = new Recorder();
    let far!: Connection;
    const listener = await listen(
      kind === 'unix' ? { unixPath: join(folder, 's') } : { port: 0 },
      (connection) => {
        far = connection;
        connection.setReceiver(farSees);
      },
      { directReads, tls: tls?.server, ...options },
    );
    cleanups.push(() => listener.close());
    const near = await connect(
      { host: '127.0.0.1', port: listener.port ?? 0, unixPath: listener.unixPath },
      { deadlineMs: WAIT_MS, transport: kind, directReads, tls: tls?.worker, ...options },
    );
    const nearSees = new Recorder();
    near.setReceiver(nearSees);
    near.sendMessage(HELLO, NUMBERS);
    await farSees.until('the hello', () => farSees.messages.length === 1);
    farSees.messages.length = 0;
    return { near, far, nearSees, farSees };
  };
}

/** Fast, so that the tests are: it has to promise what any other connection does. */
const behindLink =
  (makePair: MakePair): MakePair =>
  (options) =>
    makePair({ ...options, link: new Link({ bytesPerSecond: 2e9, delayMs: 1 }, processClock) });

const memory: MakePair = async (options) => {
  const [near, far] = memoryPair(options);
  const nearSees = new Recorder();
  const farSees = new Recorder();
  near.setReceiver(nearSees);
  far.setReceiver(farSees);
  return { near, far, nearSees, farSees };
};

function dataFields(chunk: number): Omit<FrameHeader, 'length' | 'payloadChecksum' | 'flags'> {
  return { type: FrameType.gradient, codec: 0, attempt: 3, term: 4, view: 5, round: 6, nodeLo: 7, nodeHi: 8, chunk };
}

/** Of an encoded chunk. */
const encodedFields = (chunk: number) => ({ ...dataFields(chunk), codec: 7 });

/** `bytes` bytes of shared memory that follow from `seed`. */
function payloadOf(bytes: number, seed: number): Uint8Array {
  const payload = new Uint8Array(new SharedArrayBuffer(bytes));
  for (let i = 0, x = seed * 2654435761 + 1; i < bytes; i++, x = (x * 1103515245 + 12345) >>> 0) payload[i] = x >>> 16;
  return payload;
}

const same = (a: Uint8Array, b: Uint8Array): boolean => Buffer.from(a).equals(Buffer.from(b));

describe.each<[string, MakePair]>([
  ['memory', memory],
  ['unix', socketPair('unix', true)],
  ['tcp', socketPair('tcp', true)],
  ['tls', tlsPair(true)],
  ['unix by data events', socketPair('unix', false)],
  ['tcp by data events', socketPair('tcp', false)],
  ['tls by data events', tlsPair(false)],
  ['tcp behind a link', behindLink(socketPair('tcp', true))],
])('a connection over %s', (_name, makePair) => {
  it('brings frames and messages in the order they were sent, both ways at once', async () => {
    const pair = await makePair();
    const sizes = [0, 1, 43, 44, 4095, 4096, 4097, 65_536, 1 << 20, 3, 0, (1 << 20) + 5, 200_000];
    const payloads = sizes.map((bytes, i) => payloadOf(bytes, i));
    for (const connection of [pair.near, pair.far]) {
      payloads.forEach((payload, i) => {
        connection.sendData(dataFields(i), payload);
        connection.sendMessage({ type: 'heartbeat', progress: i }, NUMBERS, 'behind data');
      });
    }
    for (const sees of [pair.nearSees, pair.farSees]) {
      await sees.until('all frames', () => sees.messages.length === sizes.length);
      expect(sees.order).toEqual(sizes.flatMap((_, i) => [`chunk ${i}`, `heartbeat ${i}`]));
      expect(sees.frames.map(({ header }) => header.chunk)).toEqual(sizes.map((_, i) => i));
      expect(sees.messages).toEqual(sizes.map((_, i) => ({ type: 'heartbeat', progress: i })));
      expect(sees.frames.every(({ payload }, i) => same(payload, payloads[i]!))).toBe(true);
      expect(sees.frames[5]!.header).toMatchObject({ ...dataFields(5), length: 4096 });
    }
  });

  it('lets a message pass data that has not begun to leave, and no message before it', async () => {
    const pair = await makePair();
    const payload = payloadOf(1 << 20, 1);
    for (let i = 0; i < 8; i++) pair.near.sendData(dataFields(i), payload);
    for (let i = 0; i < 3; i++) pair.near.sendMessage({ type: 'heartbeat', progress: i }, NUMBERS);
    pair.near.sendMessage({ type: 'heartbeat', progress: 9 }, NUMBERS, 'behind data');
    await pair.farSees.until('all frames', () => pair.farSees.order.length === 12);
    const { order } = pair.farSees;
    expect(order.filter((each) => each !== 'chunk 0').slice(0, 3)).toEqual(['heartbeat 0', 'heartbeat 1', 'heartbeat 2']);
    expect(order.at(-1)).toBe('heartbeat 9');
    expect(order.filter((each) => each.startsWith('chunk'))).toEqual(Array.from({ length: 8 }, (_, i) => `chunk ${i}`));
  });

  it('receives into the region that payloadFor gave, in shared memory', async () => {
    const pair = await makePair();
    pair.farSees.keepCopies = false;
    const payload = payloadOf(300_000, 9);
    pair.near.sendData(dataFields(0), payload);
    await pair.farSees.until('the frame', () => pair.farSees.frames.length === 1);
    expect(pair.farSees.frames[0]!.payload).toBe(pair.farSees.handedOut[0]);
    expect(same(pair.farSees.handedOut[0]!, payload)).toBe(true);
  });

  it('closes on request: both sides hear it once, later sends only flush', async () => {
    const pair = await makePair();
    pair.near.close();
    expect(pair.near.isOpen).toBe(false);
    expect(pair.nearSees.closedReasons).toHaveLength(0);
    await pair.nearSees.until('closed here', () => pair.nearSees.closedReasons.length > 0);
    await pair.farSees.until('closed there', () => pair.farSees.closedReasons.length > 0);
    let flushed = 0;
    pair.near.sendData(dataFields(0), payloadOf(10, 0), () => flushed++);
    pair.near.sendMessage({ type: 'heartbeat', progress: 0 }, NUMBERS);
    pair.near.close();
    await expect.poll(() => flushed).toBe(1);
    expect(pair.near.queuedBytes).toBe(0);
    expect([pair.nearSees.closedReasons.length, pair.farSees.closedReasons.length]).toEqual([1, 1]);
  });

  it('tells the peer why it refuses', async () => {
    const counters = createCounters();
    const pair = await makePair({ counters });
    pair.far.close(new ProtocolError('SEAT_TAKEN', 'seat 3 is held by worker-9'));
    await pair.nearSees.until('closed', () => pair.nearSees.closedReasons.length > 0);
    expect(pair.nearSees.messages).toEqual([{ type: 'refused', code: 'SEAT_TAKEN', message: 'seat 3 is held by worker-9' }]);
    expect(pair.nearSees.closedReasons[0]!.error).toMatchObject({ code: 'SEAT_TAKEN', message: 'SEAT_TAKEN: seat 3 is held by worker-9' });
    expect(counters.refused).toEqual({ SEAT_TAKEN: 1 });
  });

  it('keeps a payload until it has left and says so exactly once', async () => {
    const pair = await makePair();
    pair.farSees.keepCopies = false;
    const payload = payloadOf(1 << 20, 1);
    const flushes = new Array<number>(48).fill(0);
    flushes.forEach((_, i) => pair.near.sendData(dataFields(i), payload, () => flushes[i]!++));
    expect(pair.near.queuedBytes).toBeGreaterThan(40 << 20);
    expect(flushes.some((count) => count > 0)).toBe(false);
    await pair.farSees.until('48 frames', () => pair.farSees.frames.length === 48);
    await expect.poll(() => flushes.every((count) => count > 0)).toBe(true);
    expect(new Set(flushes)).toEqual(new Set([1]));
    expect(pair.near.queuedBytes).toBe(0);
  });

  it('can be fed from onFlushed, thousands of frames deep', async () => {
    const pair = await makePair();
    const payload = payloadOf(100, 1);
    let sent = 0;
    const next = (): void => {
      if (sent < 5000) pair.near.sendData(dataFields(sent++), payload, next);
    };
    next();
    await pair.farSees.until('5000 frames', () => pair.farSees.frames.length === 5000);
    expect(pair.farSees.frames.at(-1)!.header.chunk).toBe(4999);
    pair.near.close();
    sent = 0;
    next();
    await expect.poll(() => sent).toBe(5000);
  });

  it('closes a slow consumer at the bound and gives every payload back', async () => {
    const counters = createCounters();
    const pair = await makePair({ maxQueuedBytes: 8 << 20, counters, lingerMs: 50 });
    const payload = payloadOf(1 << 20, 1);
    let flushed = 0;
    for (let i = 0; i < 40; i++) pair.near.sendData(dataFields(i), payload, () => flushed++);
    expect(pair.near.isOpen).toBe(false);
    await pair.nearSees.until('closed', () => pair.nearSees.closedReasons.length > 0);
    expect(pair.nearSees.closedReasons[0]!.error).toMatchObject({ code: 'SLOW_CONSUMER' });
    expect(counters.refused).toEqual({ SLOW_CONSUMER: 1 });
    await pair.farSees.until('closed there', () => pair.farSees.closedReasons.length > 0);
    await expect.poll(() => flushed).toBe(40);
    expect(pair.near.queuedBytes).toBe(0);
  });

  it.each(['payloadFor', 'data', 'message'] as const)('refuses the peer with what %s throws', async (method) => {
    const pair = await makePair();
    pair.farSees[method] = () => {
      throw new ProtocolError('UNKNOWN_CHUNK', 'chunk 7');
    };
    if (method === 'message') pair.near.sendMessage({ type: 'heartbeat', progress: 0 }, NUMBERS);
    else pair.near.sendData(dataFields(7), payloadOf(100_000, 1));
    pair.near.sendData(dataFields(8), payloadOf(100_000, 1));
    await pair.nearSees.until('closed', () => pair.nearSees.closedReasons.length > 0);
    expect(pair.nearSees.closedReasons[0]!.error?.message).toBe('UNKNOWN_CHUNK: chunk 7');
    expect(pair.farSees.closedReasons.map(({ error }) => error?.code)).toEqual(['UNKNOWN_CHUNK']);
    expect(pair.farSees.frames).toHaveLength(0);
  });

  it('is heard when it refuses a peer that goes on sending', async () => {
    const pair = await makePair({ lingerMs: 60_000 });
    pair.farSees.payloadFor = () => {
      throw new ProtocolError('STALE_FENCE', 'attempt 1, present is 2');
    };
    // Not more than a closing connection reads, however late its peer hears that it is closing.
    const payload = payloadOf(1 << 16, 1);
    for (let i = 0; i < 60; i++) pair.near.sendData(dataFields(i), payload);
    await pair.nearSees.until('closed', () => pair.nearSees.closedReasons.length > 0);
    expect(pair.nearSees.closedReasons[0]!.error?.message).toBe('STALE_FENCE: attempt 1, present is 2');
    await pair.farSees.until('closed there', () => pair.farSees.closedReasons.length > 0);
  });

  it('delivers a last message that is sent right before the close', async () => {
    const pair = await makePair();
    pair.near.sendData(dataFields(0), payloadOf(3 << 20, 1));
    pair.far.sendData(dataFields(0), payloadOf(3 << 20, 1));
    pair.near.sendMessage({ type: 'end', outcome: 'finished', message: 'all rounds done' }, NUMBERS);
    pair.near.close();
    await pair.farSees.until('closed', () => pair.farSees.closedReasons.length > 0);
    expect(pair.farSees.messages).toEqual([{ type: 'end', outcome: 'finished', message: 'all rounds done' }]);
  });

  it('leaves no hole: behind data that it gave up only a last word arrives', async () => {
    const pair = await makePair();
    const payload = payloadOf(1 << 20, 1);
    pair.near.sendMessage({ type: 'heartbeat', progress: 1 }, NUMBERS);
    const update = (sequence: number): void => {
      pair.near.sendData(dataFields(sequence), payload);
      pair.near.sendMessage({ type: 'updated', sequence }, NUMBERS, 'behind data');
    };
    update(0);
    await pair.farSees.until('the first update', () => pair.farSees.messages.length === 2);
    for (let i = 1; i < 8; i++) update(i);
    pair.near.sendMessage({ type: 'end', outcome: 'cancelled', message: 'the run was cancelled' }, NUMBERS, 'behind data');
    pair.near.close();
    await pair.farSees.until('closed', () => pair.farSees.closedReasons.length > 0);
    const { frames, messages } = pair.farSees;
    expect(messages[0]).toEqual({ type: 'heartbeat', progress: 1 });
    expect(messages.at(-1)).toEqual({ type: 'end', outcome: 'cancelled', message: 'the run was cancelled' });
    expect(frames.length, 'something was given up').toBeLessThan(8);
    // Each UPDATED followed its frame.
    expect(messages.slice(1, -1)).toEqual(frames.slice(0, messages.length - 2).map((_, sequence) => ({ type: 'updated', sequence })));
    expect(messages.length).toBeGreaterThan(2);
  });

  it('counts frames and bytes', async () => {
    const counters = createCounters();
    const pair = await makePair({ counters });
    const before = { ...counters };
    pair.near.sendData(dataFields(0), payloadOf(1000, 1));
    await pair.farSees.until('the frame', () => pair.farSees.frames.length === 1);
    expect(counters.framesOut - before.framesOut).toBe(1);
    expect(counters.framesIn - before.framesIn).toBe(1);
    expect(counters.bytesOut - before.bytesOut).toBe(HEADER_BYTES + 1000);
    expect(counters.bytesIn - before.bytesIn).toBe(HEADER_BYTES + 1000);
  });

  it('joins small encoded chunks that wait into one frame, and they come out as they were sent', async () => {
    const counters = createCounters();
    const pair = await makePair({ counters });
    const before = { ...counters };
    // In memory the first one leaves at once; the others wait for it.
    pair.near.sendMessage({ type: 'heartbeat', progress: 0 }, NUMBERS);
    const payloads = Array.from({ length: 14 }, (_, i) => payloadOf(200 + i, i));
    const flushes = new Array<number>(14).fill(0);
    payloads.forEach((payload, i) => pair.near.sendData(encodedFields(2 * i), payload, () => flushes[i]!++));
    await pair.farSees.until('all chunks', () => pair.farSees.frames.length === 14);
    await expect.poll(() => flushes).toEqual(flushes.map(() => 1));
    expect(pair.farSees.frames.map(({ header }) => header)).toEqual(
      payloads.map(({ length }, i) => ({ ...encodedFields(2 * i), length, flags: 0, payloadChecksum: 0 })),
    );
    expect(pair.farSees.frames.every(({ payload }, i) => same(payload, payloads[i]!))).toBe(true);
    expect([counters.framesOut - before.framesOut, counters.framesIn - before.framesIn]).toEqual([2, 2]);
    const saved = 13 * HEADER_BYTES - (2 + 14 * 2);
    expect([pair.near.savedSentBytes, pair.far.savedReceivedBytes]).toEqual([saved, saved]);
    const bytes = counters.bytesOut - before.bytesOut;
    expect(counters.bytesIn - before.bytesIn).toBe(bytes);
    const alone = payloads.reduce((sum, { length }) => sum + HEADER_BYTES + length, 0);
    const heartbeat = HEADER_BYTES + encodeMessage({ type: 'heartbeat', progress: 0 }).length;
    expect(bytes).toBe(heartbeat + alone - saved);
    expect([pair.near.queuedBytes, pair.far.receivedBytes - pair.near.sentBytes]).toEqual([0, 0]);
  });

  it('joins nothing that is not of one vector and codec at one distance, nor over a message, nor large chunks', async () => {
    const counters = createCounters();
    const pair = await makePair({ counters });
    const before = counters.framesOut;
    const small = payloadOf(10, 1);
    const alone: Partial<FrameHeader>[] = [{ chunk: 1 }, { chunk: 1 }, { chunk: 0 }, { chunk: 1, codec: 0 }, { chunk: 2, codec: 8 }];
    alone.push(
      { chunk: 3, round: 7 },
      { chunk: 4, nodeLo: 6 },
      { chunk: 5, type: FrameType.parameters },
      { chunk: 6, type: FrameType.residual },
    );
    for (const change of alone) pair.near.sendData({ ...encodedFields(0), ...change }, small);
    pair.near.sendData(encodedFields(7), payloadOf(4097, 1));
    pair.near.sendData(encodedFields(8), small);
    pair.near.sendMessage({ type: 'heartbeat', progress: 0 }, NUMBERS, 'behind data');
    pair.near.sendData(encodedFields(9), small);
    await pair.farSees.until('all', () => pair.farSees.order.length === 13);
    expect(pair.farSees.order.slice(-3)).toEqual(['chunk 8', 'heartbeat 0', 'chunk 9']);
    expect([counters.framesOut - before, pair.near.savedSentBytes]).toEqual([13, 0]);
  });

  it('puts no more than 64 chunks and 64 KiB in a frame, and messages go before what waits', async () => {
    const counters = createCounters();
    const pair = await makePair({ counters });
    for (const [bytes, chunks] of [
      [10, 200],
      [4096, 60],
    ] as const) {
      const before = counters.framesOut;
      const payload = payloadOf(bytes, 1);
      for (let i = 0; i < chunks; i++) pair.near.sendData(encodedFields(i), payload);
      pair.near.sendMessage({ type: 'heartbeat', progress: bytes }, NUMBERS);
      await pair.farSees.until('all', () => pair.farSees.frames.length === chunks && pair.farSees.messages.length === 1);
      expect(pair.farSees.frames.map(({ header }) => header.chunk)).toEqual(Array.from({ length: chunks }, (_, i) => i));
      expect(pair.farSees.frames.every((frame) => same(frame.payload, payload))).toBe(true);
      expect(pair.farSees.order.indexOf(`heartbeat ${bytes}`)).toBeLessThan(chunks / 2);
      // The heartbeat, and in memory the first chunk alone.
      const frames = counters.framesOut - before - 1;
      expect(frames).toBeGreaterThanOrEqual(4);
      expect(frames).toBeLessThanOrEqual(6);
      for (const list of [pair.farSees.frames, pair.farSees.order, pair.farSees.messages]) list.length = 0;
    }
  });

  it('asks about all of several chunks before it hands the first over', async () => {
    const pair = await makePair();
    pair.near.sendMessage({ type: 'heartbeat', progress: 0 }, NUMBERS);
    pair.farSees.check = ({ chunk }) => {
      if (chunk === 7) throw new ProtocolError('WRONG_LENGTH', 'chunk 7 does not take 10 bytes');
    };
    for (let i = 0; i < 8; i++) pair.near.sendData(encodedFields(i), payloadOf(10, i));
    await pair.nearSees.until('closed', () => pair.nearSees.closedReasons.length > 0);
    expect(pair.nearSees.closedReasons[0]!.error?.message).toBe('WRONG_LENGTH: chunk 7 does not take 10 bytes');
    expect(pair.farSees.frames).toEqual([]);
  });
});
