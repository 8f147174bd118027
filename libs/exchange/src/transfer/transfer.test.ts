import { expect, test } from 'vitest';
import { Arena } from '@paceline/kernels';
import { FrameType, HEADER_BYTES, type FrameHeader } from '@paceline/protocol';
import type { Connection } from '../connection.js';
import { acquireRegion } from '../attempt/regions.js';
import { memoryPair } from '../transports/memory.js';
import { wireBytes } from '../transports/outgoing-frame.js';
import { bitmapOf, bitsOf } from './bitmap.js';
import { chunksOf, type MemberChunk, type OwnedChunk } from './chunks.js';
import { RegionReceiver, checkChunk, sendPublished, sendRegion, type ChunkDecoder } from './chunk-frames.js';
import { ParameterOutlet } from './parameter-outlet.js';
import { HeldGradient } from './worker-transfer.js';

const arena = Arena.create({ initialBytes: 1 << 16, maximumBytes: 1 << 16 });
const chunk = { index: 3, length: 4, arena };
const numbers = { attempt: 1, term: 2, view: 3, round: 9 };

/** What a connection was given, and what says that it has left. */
function connectionOf() {
  const sent: { header: object; bytes: Uint8Array; flushed: () => void }[] = [];
  const sendData = (header: object, bytes: Uint8Array, flushed: () => void) => void sent.push({ header, bytes, flushed });
  return { sent, connection: { sendData } as unknown as Connection };
}

test('a chunk of a region is sent as float32 under the name of its vector, and let go when its bytes have left', () => {
  const { sent, connection } = connectionOf();
  const region = acquireRegion(arena, 4);
  region.floats.set([1, 2, 3, 4]);
  sendRegion(connection, numbers, { type: FrameType.parameters, round: 7, lo: 0, hi: 1 }, 3, region);
  const [{ header, bytes, flushed }] = sent as [(typeof sent)[0]];
  expect(header).toEqual({ ...numbers, type: FrameType.parameters, codec: 0, round: 7, nodeLo: 0, nodeHi: 1, chunk: 3 });
  expect([...new Float32Array(bytes.slice().buffer)]).toEqual([1, 2, 3, 4]);
  expect(arena.bytesInUse).toBeGreaterThan(0);
  flushed();
  expect(arena.bytesInUse).toBe(0);
});

test('a chunk that goes to several peers is the same payload for each, whole or encoded: its checksum is taken once', () => {
  for (const bytes of [16, 9]) {
    const region = acquireRegion(arena, 4);
    const peers = [connectionOf(), connectionOf()];
    for (const { connection } of peers)
      sendPublished(connection, numbers, { type: FrameType.parameters, round: 7, lo: 0, hi: 0 }, 3, {
        codec: 0,
        region: region.retain(),
        bytes,
      });
    const [first, second] = peers.map(({ sent }) => sent[0]!.bytes);
    expect(first).toHaveLength(bytes);
    expect(second).toBe(first);
    for (const { sent } of peers) sent[0]!.flushed();
    region.release();
  }
  expect(arena.bytesInUse).toBe(0);
});

test('a frame is refused before its payload is read: its type, attempt, codec, chunk or length is wrong', () => {
  const header = { ...numbers, type: FrameType.gradient, codec: 0, chunk: 3, length: 16 } as FrameHeader;
  const check =
    (change: Partial<FrameHeader>, known: typeof chunk | undefined = chunk) =>
    () =>
      checkChunk({ ...header, ...change }, FrameType.gradient, 1, known);
  expect(check({})).not.toThrow();
  expect(check({ type: FrameType.parameters })).toThrow('BAD_FRAME');
  expect(check({ attempt: 2 })).toThrow();
  expect(check({ codec: 1 })).toThrow('BAD_CODEC');
  expect(() => checkChunk(header, FrameType.gradient, 1, undefined)).toThrow('UNKNOWN_CHUNK');
  expect(check({ length: 12 })).toThrow('chunk 3 has 16 bytes, not 12');
});

test('a chunk that is wanted comes into a region, one that is not into bytes that nobody keeps', () => {
  const receiver = new RegionReceiver();
  const wanted = receiver.receive({ codec: 0, length: 16 } as FrameHeader, chunk);
  const region = receiver.received()!;
  expect([wanted.buffer, wanted.length, receiver.received()]).toEqual([region.bytes.buffer, 16, undefined]);
  region.release();
  expect(receiver.receive({ codec: 0, length: 16 } as FrameHeader, undefined)).toHaveLength(16);
  expect([receiver.received(), arena.bytesInUse]).toEqual([undefined, 0]);
});

test('an encoded chunk comes into bytes of its length, and is decoded when it is whole', () => {
  let isGood = true;
  const decoder: ChunkDecoder = {
    codec: 5,
    takes: (index, codec) => index === 3 || codec === 0,
    isLength: (n, bytes) => bytes === n + 1,
    decode: (_header, payload, region) => {
      region.floats.set(payload.bytes.subarray(0, 4));
      return isGood;
    },
  };
  const header = { ...numbers, type: FrameType.gradient, codec: 5, chunk: 3, length: 5 } as FrameHeader;
  const check = (change: Partial<FrameHeader>) => () => checkChunk({ ...header, ...change }, FrameType.gradient, 1, chunk, decoder);
  expect(check({})).not.toThrow();
  expect(check({ codec: 0, length: 16 })).not.toThrow();
  expect(() => checkChunk({ ...header, chunk: 4 }, FrameType.gradient, 1, { ...chunk, index: 4 }, decoder)).toThrow(
    'BAD_CODEC: chunk 4 in codec 5, which the spec of the run does not have for it',
  );
  expect(check({ codec: 4 })).toThrow('BAD_CODEC: codec 4 where 5 or 0 is taken');
  expect(check({ length: 16 })).toThrow('WRONG_LENGTH: chunk 3 does not take 16 bytes in codec 5');
  const receiver = new RegionReceiver(decoder);
  receiver.receive(header, chunk).set([1, 2, 3, 4, 5]);
  const region = receiver.received()!;
  expect([...region.floats]).toEqual([1, 2, 3, 4]);
  region.release();
  receiver.receive(header, chunk);
  receiver.letGo();
  expect([receiver.received(), arena.bytesInUse]).toEqual([undefined, 0]);
  isGood = false;
  receiver.receive(header, chunk);
  expect(() => receiver.received()).toThrow('BAD_PAYLOAD: chunk 3 in codec 5');
  expect(arena.bytesInUse).toBe(0);
});

test('the memory of a gradient goes back once, when it is let go and every socket has flushed', () => {
  let released = 0;
  const gradient = new HeldGradient({ round: 1, lo: 0, hi: 2, chunk: chunksOf(new Uint8Array(8)), release: () => void released++ });
  const { sent, connection } = connectionOf();
  for (let i = 0; i < 2; i++) gradient.send(connection, numbers, { index: 3, offset: 0, length: 2, server: 0 });
  expect(sent).toHaveLength(1);
  // What was delivered and dropped is asked for before its write is over here.
  gradient.send(connection, numbers, { index: 3, offset: 0, length: 2, server: 0 }, true);
  expect(sent).toHaveLength(2);
  gradient.letGo();
  sent[1]!.flushed();
  expect(released).toBe(0);
  sent[0]!.flushed();
  expect(released).toBe(1);
});

test('the gradient of a replica and the parameters that answer it take one header for all of their chunks, and come as if each had its own', async () => {
  const CHUNKS = 15;
  const members = Array.from({ length: CHUNKS }, (_, index) => ({ index, offset: 0, length: 16_384, server: 0 }));
  const payloadOf = (index: number): Uint8Array => new Uint8Array(index < 14 ? 230 : 81).fill(index + 1);
  const [worker, server] = memoryPair({ checksum: true });
  const came: FrameHeader[] = [];
  const receiver = {
    payloadFor: ({ length }: FrameHeader) => new Uint8Array(length),
    data: (header: FrameHeader, payload: Uint8Array) => {
      expect(payload).toEqual(payloadOf(header.chunk));
      came.push(header);
    },
    message: () => undefined,
    closed: () => undefined,
  };
  for (const connection of [worker, server]) connection.setReceiver(receiver);
  const node = {
    round: 9,
    lo: 2,
    hi: 3,
    chunk: ({ index }: MemberChunk) => ({ codec: 7, bytes: payloadOf(index) }),
    release: () => undefined,
  };
  // In memory what is sent first leaves at once, and the chunks wait behind it.
  worker.sendMessage({ type: 'heartbeat', progress: 0 }, numbers);
  const before = { there: worker.sentBytes, back: 0 };
  const gradient = new HeldGradient(node);
  for (const chunk of members) gradient.send(worker, numbers, chunk);
  await expect.poll(() => came.length).toBe(CHUNKS);
  expect(came.map(({ type, codec, nodeLo, nodeHi, round, chunk }) => [type, codec, nodeLo, nodeHi, round, chunk])).toEqual(
    members.map(({ index }) => [FrameType.gradient, 7, 2, 3, 9, index]),
  );
  // With a header for each chunk they took 3961 bytes, 660 of them headers.
  const payloads = 14 * 230 + 81;
  const packed = HEADER_BYTES + 2 + 14 * 2 + 1 + payloads;
  expect([worker.sentBytes - before.there, server.receivedBytes - before.there]).toEqual([packed, packed]);
  expect(packed).toBe(3961 - 585);
  expect(wireBytes(members.map(({ index }) => ({ index, codec: 7, bytes: payloadOf(index).length })))).toBe(packed);
  expect(wireBytes(members.map(({ index, length }) => ({ index, codec: 0, bytes: 4 * length })))).toBe(15 * (HEADER_BYTES + 65_536));
  expect([worker.savedSentBytes, server.savedReceivedBytes]).toEqual([585, 585]);

  came.length = 0;
  server.sendMessage({ type: 'heartbeat', progress: 0 }, numbers);
  before.back = server.sentBytes;
  const regions = members.map(({ index }) => {
    const region = acquireRegion(arena, 64);
    region.bytes.set(payloadOf(index));
    return { codec: 12, region, bytes: payloadOf(index).length };
  });
  const outlet = new ParameterOutlet<OwnedChunk>({
    connection: server,
    numbers: () => numbers,
    find: (_generation, { index }) => regions[index],
  });
  for (const { index, length } of members) outlet.offer(10, { index, length, arena });
  await expect.poll(() => came.length).toBe(CHUNKS);
  expect(server.sentBytes - before.back).toBe(packed);
  expect(came.every(({ type, round }) => type === FrameType.parameters && round === 10)).toBe(true);
  for (const { region } of regions) region.release();
  await expect.poll(() => arena.bytesInUse).toBe(0);
  for (const connection of [worker, server]) connection.close();
});

test('the bitmap of WELCOME is read as it was written, and is empty beyond its end', () => {
  const bits = Array.from({ length: 11 }, (_, i) => i % 3 === 0);
  const isSet = bitsOf(bitmapOf(bits));
  expect(Array.from({ length: 20 }, (_, i) => isSet(i))).toEqual([...bits, ...Array.from({ length: 9 }, () => false)]);
});

test('a peer that reads slowly has a window of chunks in its queue; what it is owed follows, unless it was committed away', () => {
  const { sent, connection } = connectionOf();
  const chunks = [0, 1, 2, 3].map((index) => ({ index, length: 4, arena }));
  const present = new Map(chunks.map(({ index }) => [index, acquireRegion(arena, 4)]));
  let generation = 0;
  const outlet = new ParameterOutlet<(typeof chunks)[0]>({
    connection,
    numbers: () => numbers,
    find: (wanted, { index }) => (wanted === generation ? { codec: 0, region: present.get(index)!, bytes: 16 } : undefined),
    windowBytes: 32,
  });
  const on = (): string[] => sent.map(({ header }) => `${(header as FrameHeader).round}/${(header as FrameHeader).chunk}`);
  for (const each of chunks) outlet.offer(0, each);
  for (const each of chunks) outlet.offer(0, each);
  expect(on()).toEqual(['0/0', '0/1']);
  sent[0]!.flushed();
  expect(on()).toEqual(['0/0', '0/1', '0/2']);
  generation = 1;
  outlet.offer(1, chunks[0]!);
  sent[1]!.flushed();
  // Chunk 3 of generation 0 is gone.
  expect(on()).toEqual(['0/0', '0/1', '0/2', '1/0']);
  outlet.end();
  for (const { flushed } of sent.slice(2)) flushed();
  for (const region of present.values()) region.release();
  expect([sent.length, arena.bytesInUse]).toEqual([4, 0]);
});
