import { expect, test } from 'vitest';
import { Arena } from '@paceline/kernels';
import { PARAMETER_CODECS } from '@paceline/spec';
import { parameterCodecOf } from './parameter-codec.js';

const N = 1300;
const arena = Arena.create({ initialBytes: 1 << 17, maximumBytes: 1 << 17 });
const specOf = (parameters: (typeof PARAMETER_CODECS)[number]) => ({ kind: 'none', errorFeedback: false, parameters }) as const;

test.each([
  ['fp16', 2 ** -11, 2],
  ['bf16', 2 ** -8, 2],
  ['int8', 1 / 127, 1.02],
] as const)('%s: what all decode is near, short, and a function of the generation and the values', (kind, worst, bytesPerElement) => {
  const codec = parameterCodecOf(specOf(kind), 3)!;
  const [from, to] = [arena.alloc(4 * N), arena.alloc(4 * N)];
  const values = Float32Array.from({ length: N }, (_, i) => Math.sin(i) / 20);
  arena.f32(from, N).set(values);
  const through = (generation: number): Uint8Array => {
    const { pointer, length, bytes } = codec.encode(arena, from, N, generation, 2);
    expect(bytes).toBeLessThanOrEqual(4 * length);
    expect(codec.isLength(N, bytes)).toBe(true);
    expect(codec.decode(arena, pointer, bytes, to, N, generation, 2)).toBe(true);
    const sent = arena.bytes(pointer, bytes).slice();
    arena.free(pointer);
    return sent;
  };
  const sent = through(7);
  for (const [i, value] of arena.f32(to, N).entries()) expect(Math.abs(value - values[i]!)).toBeLessThanOrEqual(worst / 20);
  expect(sent.length).toBeLessThanOrEqual(N * bytesPerElement + 4);
  expect(through(7)).toEqual(sent);
  // Rounded at random anew in each generation: what stays as it is is right on average.
  if (kind === 'int8') expect(through(8)).not.toEqual(sent);
  arena.free(from);
  arena.free(to);
  expect(arena.bytesInUse).toBe(0);
});

test('float32 is no codec', () => {
  expect([parameterCodecOf(undefined, 1), parameterCodecOf(specOf('float32'), 1)]).toEqual([undefined, undefined]);
});
