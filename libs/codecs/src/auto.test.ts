/** Which codec a link is worth, by numbers that were measured elsewhere or made up here. */
import { Arena } from '@paceline/kernels';
import { expect, test } from 'vitest';
import { AUTO_CODECS, measureCodecs, pickCodec, type MeasuredRounds } from './auto.js';

/** The MLP on MNIST: 235,146 elements. */
const MLP: MeasuredRounds = {
  stepMs: 20,
  waitMs: 3,
  latencyMs: 1,
  denseBytes: 940_584,
  nodes: 1,
  replicas: 1,
  decodedBytes: 4 * 940_584,
};
const cost = (): { encodeNs: number; decodeNs: number } => ({ encodeNs: 1, decodeNs: 1 });
const kindOf = (measured: Partial<MeasuredRounds>, costOf = cost): string => pickCodec({ ...MLP, ...measured }, costOf).kind;

test('a fast link has none; a slow one has a codec, and the slower the shorter', () => {
  expect(kindOf({})).toBe('none');
  // As measured over Unix sockets on a busy machine: what is waited for is work of the servers.
  expect(kindOf({ stepMs: 7.8, waitMs: 8.8, latencyMs: 2.9, replicas: 2 })).toBe('none');
  // 20 Mbit/s and 30 ms each way: 376 ms of bytes out, and as much back.
  expect(kindOf({ waitMs: 812, latencyMs: 60 })).toBe('int4');
  // 1 Gbit/s: 15 ms of bytes beside a step of 20 ms.
  expect(kindOf({ waitMs: 16, latencyMs: 1 })).toMatch(/^int/);
  expect(kindOf({ waitMs: 16, latencyMs: 1, stepMs: 200 })).toBe('none');
});

test('latency is not what a codec shortens', () => {
  expect(kindOf({ waitMs: 63, latencyMs: 60 })).toBe('none');
  // An answer to HELLO may take longer than a round waits: nothing is left for the bytes.
  expect(kindOf({ waitMs: 50, latencyMs: 60 })).toBe('none');
});

test('replicas that have to be sent one by one count, and so does the time of encoding', () => {
  const slow = { waitMs: 120, latencyMs: 0 };
  expect(kindOf(slow)).toBe('int8');
  // 16 replicas of which a worker sends one sum without a codec.
  expect(kindOf({ ...slow, replicas: 16 })).toBe('none');
  expect(kindOf({ ...slow, replicas: 4 })).toBe('int4');
  expect(kindOf(slow, () => ({ encodeNs: 300, decodeNs: 300 }))).toBe('none');
});

test('where replicas are added up before they are sent the parameters alone may be worth a codec', () => {
  const picked = pickCodec({ ...MLP, waitMs: 812, latencyMs: 60, replicas: 16 }, cost);
  expect([picked.kind, picked.parameters]).toEqual(['none', 'int8']);
});

test('it says the numbers', () => {
  const { why, bytesPerSecond, roundMs, expectedMs } = pickCodec({ ...MLP, waitMs: 812, latencyMs: 60 }, cost);
  expect(why).toBe(
    'a round takes 832 ms: 20 ms step, 812 ms exchange of 1.88 MB with 60 ms latency, which is 2.50 MB/s; ' +
      'expected of a round: none 832 ms, none with parameters in int8 554 ms, fp16 460 ms, int8 274 ms, int4 with parameters in int8 227 ms',
  );
  expect([Math.round(bytesPerSecond / 1e4), roundMs, Math.round(expectedMs)]).toEqual([250, 832, 227]);
});

test('costs are measured of each codec of the table, and no memory is kept', () => {
  const arena = Arena.create({ initialBytes: 1 << 20, maximumBytes: 2 << 20 });
  const before = arena.bytesInUse;
  let nowMs = 0;
  const costOf = measureCodecs(arena, () => (nowMs += 0.065536));
  for (const { kind } of AUTO_CODECS) expect(costOf(kind).encodeNs).toBeCloseTo(kind === 'none' ? 0 : 1);
  expect(arena.bytesInUse).toBe(before);
});
