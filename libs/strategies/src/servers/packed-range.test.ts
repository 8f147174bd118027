/** Sums of a server's range in fewer bytes: every element comes back, and bytes that nobody writes are found. */
import { Arena } from '@paceline/kernels';
import { expect, it } from 'vitest';
import { FEEDBACK_CODECS, packedSums, SUM_CODECS } from '../members/packed-sums.js';
import { PackedRange } from './packed-range.js';

const TRAINABLE = 1000;
const KEY = { round: 3, server: 1, lo: 2 };

it.each(SUM_CODECS)('%s: ranges before, over and behind the end of what is trained, and one without elements', (kind) => {
  const arena = Arena.create({ initialBytes: 1 << 20, maximumBytes: 1 << 20 });
  const packing = packedSums(kind, 3, TRAINABLE, arena)!;
  for (const [offset, length] of [
    [0, 513],
    [513, 487],
    [900, 301],
    [1000, 99],
    [1200, 1],
    [7, 0],
  ] as const) {
    const range = new PackedRange(packing, { offset, length });
    const floats = (count: number): Float32Array => arena.f32(arena.alloc(Math.max(1, count) * 4), count);
    const [values, back] = [floats(length), floats(length)];
    values.forEach((_, i) => (values[i] = Math.sin(offset + i + 1)));
    const message = arena.bytes(arena.alloc(Math.max(4, range.bytes)), range.bytes);
    range.pack(values, message, KEY);
    const written = message.slice();
    range.pack(values, message, KEY);
    expect(message).toEqual(written);
    expect(range.unpack(message, back)).toBe(true);
    const exact = Math.max(0, Math.min(length, TRAINABLE - offset));
    values.forEach((value, i) => (i < exact ? expect(back[i]).toBeCloseTo(value, 1) : expect(back[i]).toBe(value)));
    expect(range.unpack(message.slice(1), back)).toBe(length === 0);
    expect(message.length).toBeLessThanOrEqual(length * 4 + 8);
  }
});

it('a range of more than one piece, and what no encoder writes', () => {
  const length = (1 << 20) + 3;
  const arena = Arena.create({ initialBytes: 4 << 20, maximumBytes: 64 << 20 });
  const range = new PackedRange(packedSums('int8', 3, length, arena)!, { offset: 0, length });
  const values = arena.f32(arena.alloc(length * 4), length);
  values.forEach((_, i) => (values[i] = (i % 255) - 127));
  const message = arena.bytes(arena.alloc(range.bytes), range.bytes);
  range.pack(values, message, KEY);
  const back = arena.f32(arena.alloc(length * 4), length);
  expect(range.unpack(message, back)).toBe(true);
  expect(Math.max(...[0, 100, 1 << 19, length - 1].map((i) => Math.abs(back[i]! - values[i]!)))).toBeLessThanOrEqual(1);
  message.fill(0xff, 0, 4); // a scale that is NaN, before elements that are some
  message.fill(1, 4, 8);
  expect(range.unpack(message, back)).toBe(false);
});

it.each(FEEDBACK_CODECS)('%s: what a sum leaves out comes with the next ones, by the examples of its step; state is exact', (kind) => {
  const [trained, length, steps] = [700, 720, 200];
  const arena = Arena.create({ initialBytes: 1 << 20, maximumBytes: 1 << 20 });
  const range = new PackedRange(packedSums(kind, 3, trained, arena)!, { offset: 0, length });
  const floats = (count: number): Float32Array => arena.f32(arena.alloc(count * 4), count).fill(0);
  const [values, back, rest, message] = [
    floats(length),
    floats(length),
    floats(range.trained),
    arena.bytes(arena.alloc(range.bytes), range.bytes),
  ];
  const total = new Float64Array(trained);
  const mean = (i: number): number => Math.sin(i) ** 3;
  let before = 1;
  for (let round = 0; round < steps; round++) {
    const examples = round % 3 === 2 ? 4 : 8;
    values.forEach((_, i) => (values[i] = examples * mean(i)));
    range.packWith(values, rest, message, { ...KEY, round }, arena.kernels, round === 0 ? 1 : examples / before);
    range.keepRest(values, rest, message, arena.kernels);
    expect(range.unpack(message, back)).toBe(true);
    expect([...back.subarray(trained)]).toEqual(
      Array.from({ length: length - trained }, (_, i) => Math.fround(examples * mean(trained + i))),
    );
    total.forEach((sum, i) => (total[i] = sum + back[i]! / examples));
    before = examples;
  }
  const error = Math.max(...total.map((sum, i) => Math.abs(sum / steps - mean(i))));
  expect(error).toBeLessThan(0.05);
  values.fill(NaN);
  range.packWith(values, rest, message, KEY, arena.kernels, 1);
  range.keepRest(values, rest, message, arena.kernels);
  expect(
    rest.every((value) => value === 0),
    'nothing of what is no number',
  ).toBe(true);
});
