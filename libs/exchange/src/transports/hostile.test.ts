/** What strangers, broken peers and killed peers can do to a listener: raw sockets against the real thing. */
import { mkdtempSync, rmSync } from 'node:fs';
import { connect as dial, createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { checksumOf } from '@paceline/kernels';
import { encodeHeader, encodeMessage, FrameFlag, FrameType, HEADER_BYTES, type FrameHeader, type Message } from '@paceline/protocol';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { Connection, ConnectionClosed } from '../connection.js';
import { connect } from './connect.js';
import { FrameReader } from './frame-reader.js';
import { listen, type ListenOptions, type SocketListener } from './listen.js';

/** Sockets that say nothing: `npm run soak` has more than most processes may open files by default. */
const HALF_OPEN = process.env['PACELINE_SOAK'] === '1' ? 10_000 : 1_000;
const NUMBERS = { attempt: 1, term: 0, view: 0, round: 0 };
const HELLO: Message = {
  type: 'hello',
  token: 't',
  run: '00000000-0000-4000-8000-000000000000',
  role: 'worker',
  id: 'w',
  host: 'h',
  seat: 0,
  incarnation: 1,
  fingerprint: '',
  layout: '',
};

function frame(fields: Partial<FrameHeader>, payload: Uint8Array): Buffer {
  const header = {
    type: FrameType.gradient,
    codec: 0,
    flags: 0,
    ...NUMBERS,
    nodeLo: 0,
    nodeHi: 1,
    chunk: 0,
    length: payload.length,
    payloadChecksum: 0,
    ...fields,
  };
  const bytes = Buffer.alloc(HEADER_BYTES + payload.length);
  encodeHeader(header, bytes);
  bytes.set(payload, HEADER_BYTES);
  return bytes;
}
const control = (message: Message): Buffer => frame({ type: FrameType.control }, encodeMessage(message));

/** What a raw client hears until the connection is over: the code it was refused with, or none. */
function refusalHeard(socket: Socket): Promise<string | undefined> {
  return new Promise((resolve) => {
    let code: string | undefined;
    const reader = new FrameReader(
      {
        payloadFor: (header) => new Uint8Array(header.length),
        data: () => undefined,
        message: (message) => {
          if (message.type === 'refused') code = message.code;
        },
      },
      false,
    );
    socket.on('data', (bytes) => reader.feed(bytes));
    socket.on('error', () => undefined);
    socket.on('close', () => resolve(code));
  });
}

describe.each([
  ['unix', true],
  ['unix', false],
  ['tcp', true],
  ['tcp', false],
] as const)('a listener on %s (read in place: %s)', (kind, directReads) => {
  let folder: string;
  let listener: SocketListener;
  const sockets: Socket[] = [];
  const connections: Connection[] = [];
  const closedReasons: ConnectionClosed[] = [];
  const messages: Message[] = [];
  const frames: Uint8Array[] = [];

  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'paceline-hostile-'));
  });
  afterEach(async () => {
    for (const socket of sockets.splice(0)) socket.destroy();
    await listener.close();
    rmSync(folder, { recursive: true });
    for (const list of [connections, closedReasons, messages, frames]) list.length = 0;
  });

  async function start(options: ListenOptions = {}): Promise<void> {
    const onConnection = (connection: Connection): void => {
      connections.push(connection);
      connection.setReceiver({
        payloadFor: (header) => new Uint8Array(new SharedArrayBuffer(header.length)),
        data: (_header, payload) => frames.push(payload),
        message: (message) => messages.push(message),
        closed: (reason) => closedReasons.push(reason),
      });
    };
    listener = await listen(kind === 'unix' ? { unixPath: join(folder, 's') } : { port: 0 }, onConnection, { directReads, ...options });
  }

  function raw(allowHalfOpen = false): Promise<Socket> {
    const socket =
      kind === 'unix'
        ? dial({ path: listener.unixPath!, allowHalfOpen })
        : dial({ port: listener.port!, host: '127.0.0.1', allowHalfOpen });
    sockets.push(socket);
    return new Promise((resolve, reject) => socket.once('connect', () => resolve(socket)).once('error', reject));
  }

  /** The kernel does not keep who dials a Unix socket waiting where too many do: it is to dial again. */
  async function rawWhenThereIsRoom(): Promise<void> {
    for (;;) {
      const code = await raw().then(
        () => undefined,
        (error: NodeJS.ErrnoException) => error.code,
      );
      if (code === undefined) return;
      if (code !== 'EAGAIN') throw new Error(`a socket could not be opened: ${code}`);
      await sleep(5);
    }
  }

  async function refusalOf(bytes: Uint8Array): Promise<string | undefined> {
    const socket = await raw();
    const heard = refusalHeard(socket);
    socket.write(bytes);
    return heard;
  }

  /** A well-behaved peer still gets in and is heard. */
  async function stillServes(): Promise<void> {
    const before = messages.length;
    const peer = await connect(
      { host: '127.0.0.1', port: listener.port ?? 0, unixPath: listener.unixPath },
      { deadlineMs: 60_000, transport: kind },
    );
    peer.setReceiver({ payloadFor: () => new Uint8Array(), data: () => undefined, message: () => undefined, closed: () => undefined });
    peer.sendMessage(HELLO, NUMBERS);
    while (messages.length === before) await sleep(1);
    peer.close();
  }

  it.each<[string, Uint8Array, string]>([
    ['random bytes', Buffer.alloc(500, 0xa5), 'BAD_FRAME'],
    ['an HTTP request', Buffer.from('GET / HTTP/1.1\r\nhost: localhost\r\nuser-agent: curl\r\n\r\n'), 'BAD_FRAME'],
    ['a gradient first', frame({}, new Uint8Array(1000)), 'HELLO_EXPECTED'],
    ['another message first', control({ type: 'heartbeat', progress: 1 }), 'HELLO_EXPECTED'],
    ['a control message of 1 MiB first', frame({ type: FrameType.control }, new Uint8Array(1 << 20)), 'HELLO_EXPECTED'],
    ['a length of 4 GiB', frame({ length: 0xffff_ffff }, new Uint8Array(0)), 'BAD_FRAME'],
    ['a hello that does not fit its schema', frame({ type: FrameType.control }, Buffer.from('{"type":"hello"}')), 'BAD_MESSAGE'],
    ['an empty control message', frame({ type: FrameType.control }, new Uint8Array(0)), 'BAD_MESSAGE'],
  ])('refuses %s, counts it, and goes on', async (_what, bytes, code) => {
    await start({ lingerMs: 60_000 });
    expect(await refusalOf(bytes)).toBe(code);
    while (listener.pendingCount > 0) await sleep(1);
    expect(listener.counters.refused).toEqual({ [code]: 1 });
    expect(connections).toHaveLength(0);
    await stillServes();
  });

  it.each<[string, number[]]>([
    ['a table that is cut short', [14, 1, 3]],
    ['no chunk at all', [0, 1]],
    ['65 chunks', [65, 1, ...new Array<number>(65).fill(0)]],
    ['a chunk that comes twice', [2, 0, 1, 1, 7, 7]],
    ['an index beyond 32 bits', [3, 0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0, 0]],
    ['a length of 4 GiB that is made up for by another', [2, 1, 0xff, 0xff, 0xff, 0xff, 0x0f, 2, 7]],
  ])('refuses a frame of several chunks with %s, and hands none of them over', async (_what, payload) => {
    await start({ lingerMs: 60_000 });
    const packed = frame({ codec: 7, flags: FrameFlag.packed }, Uint8Array.from(payload));
    expect(await refusalOf(Buffer.concat([control(HELLO), packed]))).toBe('BAD_PAYLOAD');
    expect(frames).toEqual([]);
    expect(closedReasons.map(({ unfinished }) => unfinished)).toEqual([undefined]);
  });

  it('refuses a frame of several chunks before hello, and one that is longer than such frames are, before its payload comes', async () => {
    await start({ lingerMs: 60_000 });
    const head = (length: number) => frame({ codec: 7, flags: FrameFlag.packed, length }, new Uint8Array(0));
    expect(await refusalOf(head(100))).toBe('HELLO_EXPECTED');
    expect(await refusalOf(Buffer.concat([control(HELLO), head(65_537)]))).toBe('BAD_FRAME');
    expect(await refusalOf(Buffer.concat([control(HELLO), frame({ flags: FrameFlag.packed }, new Uint8Array(100))]))).toBe('BAD_FRAME');
  });

  it('finds a flipped bit of a payload', async () => {
    await start();
    const payload = new Uint8Array(300_000).fill(3);
    const good = { flags: FrameFlag.payloadChecksum, payloadChecksum: checksumOf(payload) };
    const flipped = payload.slice();
    flipped[200_000]! ^= 16;
    expect(await refusalOf(Buffer.concat([control(HELLO), frame(good, payload), frame(good, flipped), frame(good, payload)]))).toBe(
      'BAD_CHECKSUM',
    );
    expect(frames).toHaveLength(1);
    expect(closedReasons[0]!.error?.code).toBe('BAD_CHECKSUM');
    expect(closedReasons[0]!.unfinished?.payload).toHaveLength(300_000);
  });

  it('closes a peer that does not say hello in time, also when it trickles bytes', async () => {
    await start({ helloDeadlineMs: 5_000, lingerMs: 50 });
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    try {
      const silent = await raw();
      const slow = await raw();
      const refused = Promise.all([refusalHeard(silent), refusalHeard(slow)]);
      await expect.poll(() => listener.pendingCount).toBe(2);
      const bytes = control(HELLO);
      for (let at = 0; at < 5; at++) {
        await new Promise<void>((resolve) => slow.write(bytes.subarray(at, at + 1), () => resolve()));
        vi.advanceTimersByTime(900);
      }
      expect(listener.pendingCount).toBe(2);
      vi.advanceTimersByTime(500);
      // A peer that does not end by itself is ended after the linger.
      const linger = setInterval(() => vi.advanceTimersByTime(10), 10);
      expect(await refused).toEqual(['HELLO_EXPECTED', 'HELLO_EXPECTED']);
      await expect.poll(() => listener.pendingCount).toBe(0);
      clearInterval(linger);
    } finally {
      vi.useRealTimers();
    }
    expect(connections).toHaveLength(0);
  });

  it(`holds ${HALF_OPEN} half-open sockets within its bound and lets a peer in`, { timeout: 120_000 }, async () => {
    await start({ maxPending: 64, helloDeadlineMs: 5000 });
    for (let i = 0; i < HALF_OPEN / 100; i++) await Promise.all(Array.from({ length: 100 }, rawWhenThereIsRoom));
    for (const socket of sockets) socket.on('error', () => undefined);
    await stillServes();
    expect(listener.pendingCount).toBeLessThanOrEqual(64);
    expect(listener.counters.refused.HELLO_EXPECTED).toBeGreaterThanOrEqual(HALF_OPEN - 64);
  });

  it('refuses connections over its bound', async () => {
    await start({ maxConnections: 1, lingerMs: 100 });
    const first = await raw();
    first.write(control(HELLO));
    while (connections.length === 0) await sleep(1);
    expect(await refusalOf(control(HELLO))).toBe('SERVER_FULL');
    first.destroy();
    while (listener.connectionCount > 0) await sleep(1);
    await stillServes();
  });

  it('drops a frame whose sender dies in the middle of it, and gives its region back', async () => {
    await start();
    const socket = await raw();
    const whole = frame({ chunk: 9 }, new Uint8Array(1 << 20).fill(8));
    socket.write(Buffer.concat([control(HELLO), frame({ chunk: 8 }, new Uint8Array(10)), whole.subarray(0, 700_000)]));
    const sent = control(HELLO).length + HEADER_BYTES + 10 + 700_000;
    await expect.poll(() => connections[0]?.receivedBytes).toBe(sent);
    socket.destroy();
    while (closedReasons.length === 0) await sleep(1);
    expect(closedReasons[0]!.unfinished).toMatchObject({ header: { chunk: 9, length: 1 << 20 } });
    expect(closedReasons[0]!.unfinished!.payload).toHaveLength(1 << 20);
    expect(closedReasons[0]!.unfinished!.payload[600_000]).toBe(8);
    expect(frames).toHaveLength(1);
    await stillServes();
  });

  it('never writes into a region again once it has been given back', async () => {
    await start({ lingerMs: 100 });
    const socket = await raw(true);
    socket.on('error', () => undefined);
    const whole = frame({}, new Uint8Array(1 << 20).fill(8));
    const begun = Buffer.concat([control(HELLO), whole.subarray(0, 100_000)]);
    socket.write(begun);
    await expect.poll(() => connections[0]?.receivedBytes).toBe(begun.length);
    connections[0]!.close();
    while (closedReasons.length === 0) await sleep(1);
    const { payload } = closedReasons[0]!.unfinished!;
    payload.fill(0);
    socket.write(whole.subarray(100_000));
    await sleep(50);
    expect(payload.every((byte) => byte === 0)).toBe(true);
  });

  it('closes a peer that reads nothing at the bound of queued bytes', async () => {
    await start({ maxQueuedBytes: 8 << 20, lingerMs: 50 });
    const socket = await raw();
    socket.pause();
    socket.write(control(HELLO));
    while (connections.length === 0) await sleep(1);
    const payload = new Uint8Array(1 << 20);
    const tally = { flushed: 0, sent: 0 };
    for (; connections[0]!.isOpen; tally.sent++) {
      connections[0]!.sendData(
        { type: FrameType.parameters, codec: 0, ...NUMBERS, nodeLo: 0, nodeHi: 0, chunk: 0 },
        payload,
        () => tally.flushed++,
      );
      if (tally.sent % 4 === 3) await sleep(1);
    }
    while (tally.flushed < tally.sent) await sleep(1);
    expect(closedReasons[0]!.error?.code).toBe('SLOW_CONSUMER');
    expect(connections[0]!.queuedBytes).toBe(0);
    await stillServes();
  });

  it('gives every connection a challenge of its own, which its hello repeats', async () => {
    await start();
    for (let i = 0; i < 20; i++) await stillServes();
    const said = messages.map((message) => message.type === 'hello' && message.challenge);
    expect(said).toEqual(connections.map(({ challenge }) => challenge));
    expect(new Set(said).size).toBe(20);
    expect(said[0]).toMatch(/^[\w-]{22}$/);
  });

  it('survives arbitrary bytes, before and after a hello', async () => {
    await start({ lingerMs: 100, helloDeadlineMs: 300 });
    const bytes = fc.oneof(fc.uint8Array({ minLength: 44, maxLength: 300 }), fc.constant(frame({}, new Uint8Array(100))));
    await fc.assert(
      fc.asyncProperty(fc.boolean(), fc.array(bytes, { minLength: 1, maxLength: 4 }), fc.nat(), async (greets, parts, flip) => {
        const noise = Buffer.concat(parts);
        noise[flip % noise.length]! ^= 0x40;
        const socket = await raw();
        const over = refusalHeard(socket);
        socket.end(Buffer.concat([greets ? control(HELLO) : Buffer.alloc(0), noise]));
        await over;
      }),
      { numRuns: 60 },
    );
    await stillServes();
  });
});

describe('who dials', () => {
  const servers: { close(): void }[] = [];
  const sockets: Socket[] = [];
  afterEach(() => {
    for (const socket of sockets.splice(0)) socket.destroy();
    for (const server of servers.splice(0)) server.close();
  });

  /** A connection to somebody who says these bytes at once, with a hello and a frame that wait. */
  async function dialled(says: Uint8Array) {
    const seen = { bytes: 0, flushed: 0, codes: [] as (string | undefined)[] };
    const server = createServer((socket) => {
      sockets.push(socket.on('data', ({ length }) => (seen.bytes += length)).on('error', () => undefined));
      if (says.length > 0) socket.write(says);
    });
    servers.push(server);
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const { port } = server.address() as { port: number };
    const connection = await connect({ host: '127.0.0.1', port, unixPath: null }, { deadlineMs: 5_000 });
    connection.setReceiver({
      payloadFor: (header) => new Uint8Array(header.length),
      data: () => undefined,
      message: () => undefined,
      closed: ({ error }) => seen.codes.push(error?.code),
    });
    connection.sendMessage(HELLO, NUMBERS);
    const fields = { type: FrameType.gradient, codec: 0, ...NUMBERS, nodeLo: 0, nodeHi: 1, chunk: 0 };
    connection.sendData(fields, new Uint8Array(100), () => seen.flushed++);
    return { connection, seen };
  }

  it('says nothing before it is challenged, and gives up what waits when it closes', async () => {
    const { connection, seen } = await dialled(new Uint8Array());
    await sleep(50);
    connection.close();
    while (seen.codes.length === 0 || seen.flushed === 0) await sleep(1);
    await sleep(20);
    expect(seen).toEqual({ bytes: 0, flushed: 1, codes: [undefined] });
  });

  it('says hello and what waited, in order, when it is challenged', async () => {
    const { seen } = await dialled(control({ type: 'challenge', challenge: 'once' }));
    while (seen.flushed === 0) await sleep(1);
    const sent = control({ ...HELLO, challenge: 'once' }).length + HEADER_BYTES + 100;
    while (seen.bytes < sent) await sleep(1);
    expect(seen).toEqual({ bytes: sent, flushed: 1, codes: [] });
  });

  it.each<[string, Uint8Array, string]>([
    ['another message', control({ type: 'heartbeat', progress: 1 }), 'BAD_MESSAGE'],
    ['data', frame({}, new Uint8Array(100)), 'BAD_FRAME'],
    ['a refusal', control({ type: 'refused', code: 'SERVER_FULL', message: 'no' }), 'SERVER_FULL'],
  ])('closes when %s comes before the challenge', async (_what, says, code) => {
    const { seen } = await dialled(says);
    while (seen.codes.length === 0 || seen.flushed === 0) await sleep(1);
    await sleep(20);
    expect(seen).toEqual({ bytes: 0, flushed: 1, codes: [code] });
  });
});
