import { expect, test } from 'vitest';
import { Arena } from '@paceline/kernels';
import type { CodecSpec } from '@paceline/spec';
import { codecOf } from './codecs.js';
import { GradientEncoder } from './gradient-encoder.js';

const N = 600;
const STATE = 8;
const CHUNKS = [
  { index: 0, offset: 0, length: N, isEncoded: true },
  { index: 1, offset: N, length: STATE, isEncoded: false },
];

/** A worker, as the server sees it: what is decoded of a gradient. */
function replicaOf(options: Partial<CodecSpec> = {}, replicas = 1) {
  const spec: CodecSpec = { kind: 'dgc', density: 0.01, errorFeedback: false, ...options };
  const arena = Arena.create({ initialBytes: 1 << 17, maximumBytes: 1 << 17 });
  const codec = codecOf(spec)!;
  const encoder = new GradientEncoder(codec, arena, CHUNKS, 1, spec, replicas, () => 4);
  const send = (round: number, gradient: (i: number) => number): { got: Float32Array; bytes: number } => {
    const pointer = arena.alloc(4 * (N + STATE));
    arena.f32(pointer, N + STATE).forEach((_, i, values) => (values[i] = gradient(i)));
    const { pointer: at, codecs, offsets, lengths } = encoder.encode(round, 0, pointer);
    const to = arena.alloc(4 * N);
    if (codecs[0] === 0) arena.kernels.copy(to, at + offsets[0]!, N);
    else expect(codec.decode(arena, at + offsets[0]!, lengths[0]!, to, N, 0)).toBe(true);
    const got = arena.f32(to, N).slice();
    for (const used of [to, at, pointer]) arena.free(used);
    return { got, bytes: lengths[0]! };
  };
  return { arena, send };
}

const sentOf = (x: Float32Array): number[] => [...x.keys()].filter((i) => x[i] !== 0);

test('an element that waits gathers with its momentum, as plain momentum would have moved it', () => {
  const { send } = replicaOf({ momentum: 0.5, density: 1 / N });
  // Element 7 is the largest in round 2 only; until then others are sent.
  const gradient = (round: number) => (i: number) => (i === 7 ? 1 : i === round + 20 ? 100 : 0);
  for (const round of [0, 1]) expect(sentOf(send(round, gradient(round)).got)).toEqual([round + 20]);
  // Velocities 1, 1.5, 1.75: their sum.
  const { got } = send(2, (i) => (i === 7 ? 1 : 0));
  expect(sentOf(got)).toEqual([7]);
  expect(got[7]).toBe(4.25);
  // Both are 0 where it was sent: it begins anew.
  expect(send(3, (i) => (i === 7 ? 1 : 0)).got[7]).toBe(1);
});

test('what bfloat16 rounds away stays gathered', () => {
  const { send } = replicaOf({ momentum: 0, density: 1 / N });
  const first = send(0, (i) => (i === 3 ? 1.001 : 0)).got[3]!;
  const second = send(1, (i) => (i === 3 ? 1 : 0)).got[3]!;
  expect(first).toBe(1);
  expect(second).not.toBe(1 + first);
  let sum = first + second;
  for (let round = 2; round < 200; round++) sum += send(round, (i) => (i === 3 ? 1.001 : 0)).got[3]!;
  expect(sum).toBeCloseTo(1.001 * 199 + 1, 1);
});

test('three bytes and a little for each element that is sent, fewer in every round of the warm-up', () => {
  const { send } = replicaOf({ density: 0.01, warmupRounds: 3 });
  const bytes = [0, 1, 2, 3].map((round) => send(round, (i) => Math.sin(i * 7 + round)).bytes);
  expect(bytes).toEqual([...bytes].sort((a, b) => b - a));
  expect(bytes[0]).toBe(4 + 3 * (N / 4));
  expect(bytes[3]).toBeLessThanOrEqual(4 + 4 * (N / 100));
});

test('the norm of a gradient is bounded by the part of one of so many replicas', () => {
  const { send } = replicaOf({ momentum: 0, clipNorm: 1, density: 0.01 }, 4);
  // The mean gradient has a norm of 100 / 4 examples; the bound of each of 4 replicas is 1 / 2.
  expect(send(0, (i) => (i === 5 ? 100 : 0)).got[5]).toBe(2);
});

test('a round that is computed again is encoded the same; one that did not follow begins anew, and no memory is lost', () => {
  const { send, arena } = replicaOf();
  const gradient = (i: number): number => Math.sin(i);
  const first = send(0, gradient).got;
  const second = send(1, gradient).got;
  expect(send(1, gradient).got).toEqual(second);
  const inUse = arena.bytesInUse;
  expect(send(2, gradient).got).not.toEqual(second);
  expect(send(9, gradient).got).toEqual(first);
  expect(send(10, gradient).got).toEqual(second);
  expect(arena.bytesInUse).toBe(inUse);
});

test('a gradient that is not finite is sent so and leaves nothing behind', () => {
  const { send } = replicaOf();
  expect(send(0, (i) => (i === 3 ? NaN : 1)).got.some(Number.isNaN)).toBe(true);
  expect(send(1, () => 1).got.every((x) => x === 0 || x === 1)).toBe(true);
});

test('an encoded chunk takes the memory that is planned for it, not that of the whole chunk', () => {
  const spec = { kind: 'dgc', density: 0.01, errorFeedback: false } as const;
  const n = 1 << 18;
  // 72 bits for each element that is sent, as libs/spec/src/codec-spec.ts says.
  expect(codecOf(spec)!.maxBytes(n)).toBeLessThanOrEqual(9 * 0.01 * n + 13);
  const warm = { ...spec, warmupRounds: 3 };
  expect(codecOf(warm)!.maxBytes(n)).toBeLessThanOrEqual(9 * 0.25 * n + 13);
  for (const few of [1, 2, 3]) expect(codecOf(spec)!.maxBytes(few), 'sent as it is').toBeGreaterThanOrEqual(4 * few);
});
