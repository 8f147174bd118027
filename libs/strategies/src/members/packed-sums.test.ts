/** What packs the sums between processes: lengths that are known before, and numbers that survive. */
import { Arena } from '@paceline/kernels';
import { expect, it } from 'vitest';
import { packedSums, SUM_CODECS } from './packed-sums.js';

/** What an element may lose, as a share of the largest one: a unit in the last place, or one step of int8. */
const LOST = { fp16: 2 ** -10, bf16: 2 ** -8, int8: 1 / 127 } as const;

it.each(SUM_CODECS)('%s packs pieces of any length, and gives their numbers back', (kind) => {
  const arena = Arena.create({ initialBytes: 1 << 20, maximumBytes: 1 << 20 });
  const packing = packedSums(kind, 3, 10_000, arena)!;
  for (const n of [1, 2, 3, 511, 512, 513, 1001, 4096]) {
    const [from, into] = [arena.f32(arena.alloc(n * 4), n), arena.f32(arena.alloc(n * 4), n)];
    from.forEach((_, i) => (from[i] = Math.sin(i + 1) * 10));
    const bytes = packing.bytes(n);
    const packed = new Uint8Array(arena.memory.buffer, arena.alloc(bytes), bytes);
    packing.pack(from, packed, [1, 0, 0, 0]);
    expect(packing.unpack(packed, into)).toBe(true);
    from.forEach((value, i) => expect(Math.abs(value - into[i]!)).toBeLessThanOrEqual(10 * LOST[kind]));
    const again = packed.slice();
    packing.pack(from, packed, [1, 0, 0, 0]);
    expect(packed).toEqual(again);
    from.fill(0);
    packing.pack(from, packed, [2, 0, 0, 0]);
    expect(packing.unpack(packed, into)).toBe(true);
    expect(into.every((value) => value === 0)).toBe(true);
    from[0] = NaN;
    packing.pack(from, packed, [3, 0, 0, 0]);
    packing.unpack(packed, into);
    expect(Number.isFinite(into[0]!)).toBe(false); // the step has to notice
  }
});

it('int8 rounds under the key of the piece, and not the same way in each', () => {
  const arena = Arena.create({ initialBytes: 1 << 20, maximumBytes: 1 << 20 });
  const packing = packedSums('int8', 3, 1_000, arena)!;
  const from = arena.f32(arena.alloc(4_000), 1_000);
  from.forEach((_, i) => (from[i] = Math.sin(i)));
  const packed = (key: readonly number[]): string => {
    const into = new Uint8Array(arena.memory.buffer, arena.alloc(packing.bytes(1_000)), packing.bytes(1_000));
    packing.pack(from, into, key);
    return Buffer.from(into).toString('hex');
  };
  const keys = [
    [1, 0, 0, 0],
    [2, 0, 0, 0],
    [1, 1, 0, 0],
    [1, 0, 1, 0],
    [1, 0, -1, 0],
    [1, 0, 0, 1],
  ];
  expect(new Set(keys.map(packed)).size).toBe(keys.length);
});

it('none packs nothing; without an arena only bytes may be asked', () => {
  expect(packedSums('none', 1, 10)).toBeUndefined();
  const counting = packedSums('int8', 1, 10)!;
  expect(counting.bytes(512)).toBe(516);
  expect(() => counting.pack(new Float32Array(1), new Uint8Array(8), [1, 0, 0, 0])).toThrow('without an arena packs nothing');
});
