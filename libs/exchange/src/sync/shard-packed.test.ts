/** Several chunks of a gradient in one frame, at a shard: each is taken, dropped or refused as if it had come alone. */
import { FrameType, ProtocolError, type FrameHeader, type Message } from '@paceline/protocol';
import { expect, test } from 'vitest';
import type { ChunkDecoder } from '../transfer/chunk-frames.js';
import { memoryPair } from '../transports/memory.js';
import { headerOf, shardOf } from './shard.fixture.js';

const CODEC = 7;
const CHUNKS = 4;
const PAYLOAD_BYTES = 8;
/** A chunk of one value. */
const decoder: ChunkDecoder = {
  codec: CODEC,
  takes: (_chunk, codec) => codec === CODEC,
  isLength: (_n, bytes) => bytes === PAYLOAD_BYTES,
  decode: (_header, payload, region) => {
    region.floats.fill(payload.floats[0]!);
    return true;
  },
};

/** A shard, and what sends it the chunks of a replica one behind the other. */
function connected(windowChunks?: number) {
  const { shard, arena } = shardOf(CHUNKS, 2, windowChunks, false, { decoder });
  shard.onView(1, [{ id: 'a', seat: 0, incarnation: 0, replicas: [0, 1] }]);
  const [worker, server] = memoryPair();
  const refusals: string[] = [];
  const heard: Message[] = [];
  const closed: ProtocolError[] = [];
  const link = shard.attach('a', server);
  server.setReceiver({
    payloadFor: (header) => shard.payloadFor(link, header),
    check: (header) => shard.check(link, header),
    data: (header) => shard.data(link, header),
    message: (message) => void heard.push(message),
    closed: ({ error }) => void (error && closed.push(error)),
  });
  worker.setReceiver({
    payloadFor: ({ length }) => new Uint8Array(length),
    data: () => undefined,
    message: (message) => void (message.type === 'refused' && refusals.push(message.message)),
    closed: () => undefined,
  });
  const before = arena.bytesInUse;
  const send = async (replica: number, value: number, chunks: readonly number[], lengths: readonly number[] = []): Promise<void> => {
    // In memory what is sent first leaves at once, and the chunks wait behind it.
    worker.sendMessage({ type: 'heartbeat', progress: heard.length }, { attempt: 1, term: 1, view: 1, round: 0 });
    let flushed = 0;
    for (const [i, chunk] of chunks.entries()) {
      const { length: _, payloadChecksum: __, flags: ___, ...header } = headerOf({ chunk, replica });
      const payload = new Uint8Array(Float32Array.of(value, 0).buffer).subarray(0, lengths[i]);
      worker.sendData({ ...header, codec: CODEC, type: FrameType.gradient }, payload, () => flushed++);
    }
    await expect.poll(() => flushed).toBe(chunks.length);
  };
  const holds = (replica: number): boolean[] =>
    Array.from({ length: CHUNKS }, (_, chunk) => {
      const header: FrameHeader = headerOf({ chunk, replica });
      return shard['present'].holds(shard['present'].chunkAt(chunk)!, header);
    });
  return { shard, arena, before, worker, closed, refusals, send, holds };
}

test('one that is there already is dropped, and the others of its frame are added', async () => {
  const { shard, arena, worker, send, holds } = connected();
  await send(0, 1, [1]);
  await send(0, 5, [0, 1, 2, 3]);
  await expect.poll(() => holds(0)).toEqual([true, true, true, true]);
  expect(worker.savedSentBytes, 'they came in one frame').toBeGreaterThan(100);
  await send(1, 10, [0, 1, 2, 3]);
  await expect.poll(() => shard.table.state).toBe('REDUCED');
  const next = shard['present'].chunks.map(({ place }) => shard['present'].generations.next(place)!.floats[0]);
  expect(next).toEqual([-15, -11, -15, -15]);
  shard.end();
  worker.close();
  expect(arena.bytesInUse).toBe(0);
});

test('a length that the codec does not have for the last one: none of the frame is taken', async () => {
  const { shard, arena, before, closed, refusals, send, holds } = connected();
  await send(0, 1, [0, 1, 2, 3], [8, 8, 8, 4]);
  await expect.poll(() => closed.length + refusals.length).toBe(2);
  expect(closed[0]!.message).toBe('WRONG_LENGTH: chunk 3 does not take 4 bytes in codec 7');
  expect(refusals).toEqual([closed[0]!.detail]);
  expect([holds(0), arena.bytesInUse]).toEqual([[false, false, false, false], before]);
  shard.end();
});

test('windows count chunks: one beyond the window is refused, as it would be alone', async () => {
  const { shard, closed, send, holds } = connected(2);
  await send(0, 1, [0, 1]);
  await expect.poll(() => holds(0)).toEqual([true, true, false, false]);
  await send(1, 1, [0, 3]);
  await expect.poll(() => closed.map(({ code }) => code)).toEqual(['BAD_ROUND']);
  shard.end();
});
