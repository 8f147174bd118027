import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Arena } from './arena.js';
import { checksumOf, ChecksumStream, isSummedInPlace, sharedBuffer } from './checksum.js';
import { checksum, xxh3 } from './checksum-reference.js';

/** The input of the published vectors (xxHash, cli/xsum_sanity_check.c). */
const PUBLISHED = Uint8Array.from({ length: 4000 }, generator());

function generator(): () => number {
  let state = 2_654_435_761n;
  return () => {
    const byte = Number(state >> 56n);
    state = (state * 11_400_714_785_074_694_797n) & ((1n << 64n) - 1n);
    return byte;
  };
}

/** XSUM_XXH3_testdata of cli/xsum_sanity_check.c, where the seed is 0. */
const VECTORS: readonly (readonly [length: number, hash: bigint])[] = [
  [0, 0x2d06800538d394c2n],
  [1, 0xc44bdff4074eecdbn],
  [6, 0x27b56a84cd2d7325n],
  [12, 0xa713daf0dfbb77e7n],
  [24, 0xa3fe70bf9d3510ebn],
  [48, 0x397da259ecba1f11n],
  [80, 0xbcdefbbb2c47c90an],
  [195, 0xcd94217ee362ec3an],
  [403, 0xcdeb804d65c6dea4n],
  [512, 0x617e49599013cb6bn],
  [2048, 0xdd59e2c3a5f038e0n],
  [2099, 0xc6b9d9b3fc9ac765n],
  [2240, 0x6e73a90539cf2948n],
  [2367, 0xcb37aeb9e5d361edn],
];

const arena = Arena.create({ initialBytes: 1 << 20, maximumBytes: 8 << 20 });
const block = arena.alloc(8192);

/** The same bytes in an arena, at an offset from the line. */
function inArena(bytes: Uint8Array, shift = 0): Uint8Array {
  const placed = arena.bytes(block + shift, bytes.length);
  placed.set(bytes);
  return placed;
}

describe('XXH3-64, cut to 32 bits', () => {
  it.each(VECTORS)('is what xxHash publishes for %d bytes: reference, in an arena, and through the window', (length, hash) => {
    const bytes = PUBLISHED.subarray(0, length);
    expect(xxh3(bytes)).toBe(hash);
    expect(checksumOf(inArena(bytes))).toBe(Number(hash & 0xffffffffn));
    expect(checksumOf(bytes)).toBe(Number(hash & 0xffffffffn));
  });

  it('is that of the reference at every length that takes another path, and at every alignment', () => {
    for (let length = 0; length <= 1300; length++) {
      const bytes = PUBLISHED.subarray(length % 7, (length % 7) + length);
      const wanted = checksum(bytes);
      expect([length, checksumOf(inArena(bytes, length % 64)), checksumOf(bytes)]).toEqual([length, wanted, wanted]);
    }
  });

  it('of bytes in pieces is that of the whole, with several streams under way', () => {
    const pieces = fc.array(fc.oneof(fc.nat(80), fc.constantFrom(0, 1, 63, 64, 240, 241, 1023, 1024, 1025, 2048), fc.nat(40_000)), {
      maxLength: 12,
    });
    fc.assert(
      fc.property(fc.array(pieces, { minLength: 1, maxLength: 3 }), (lists) => {
        const streams = lists.map((lengths, seed) => {
          const whole = Uint8Array.from(
            { length: lengths.reduce((sum, each) => sum + each, 0) },
            (_, i) => (i * (seed + 3) * 2_654_435_761) >>> 11,
          );
          return { lengths, whole, stream: new ChecksumStream(), at: 0 };
        });
        for (let i = 0; i < 12; i++) {
          for (const one of streams) {
            const next = one.at + (one.lengths[i] ?? 0);
            one.stream.add(one.whole.subarray(one.at, next));
            one.at = next;
          }
        }
        for (const { stream, whole } of streams) expect(stream.digest()).toBe(checksumOf(whole));
      }),
      { numRuns: 60 },
    );
    const whole = Uint8Array.from({ length: 100_000 }, (_, i) => (i * 2_654_435_761) >>> 13);
    expect(new ChecksumStream().add(whole.subarray(0, 33_333)).add(whole.subarray(33_333)).digest()).toBe(checksum(whole));
  });

  it('needs no copy in an arena that has grown since, and in a shared buffer', () => {
    const grown = Arena.create({ initialBytes: 65_536, maximumBytes: 8 << 20 });
    const early = grown.bytes(grown.alloc(1000), 1000);
    const late = grown.bytes(grown.alloc(3 << 20), 3 << 20);
    const attached = Arena.attach(grown.memory).bytes(early.byteOffset, 1000);
    const shared = new Uint8Array(sharedBuffer(100_000), 0, 100_000);
    for (const bytes of [early, late, attached, shared]) {
      expect(isSummedInPlace(bytes)).toBe(true);
      bytes.fill(7);
      expect(checksumOf(bytes)).toBe(checksum(bytes));
    }
    expect(isSummedInPlace(new Uint8Array(8))).toBe(false);
    const large = sharedBuffer(2 ** 31);
    const end = new Uint8Array(large, 2 ** 31 - 5000, 5000).fill(7);
    expect([isSummedInPlace(end), checksumOf(end)]).toEqual([true, checksum(end)]);
  });
});

describe('what a checksum notices', () => {
  const LENGTH = 1 << 20;
  const floats = Float32Array.from({ length: LENGTH / 4 }, (_, i) => Math.fround(Math.sin(i) / 100));
  const bytes = new Uint8Array(floats.buffer);
  const at = arena.alloc(LENGTH);
  const placed = arena.bytes(at, LENGTH);
  placed.set(bytes);
  const right = checksumOf(placed);

  /** Damages the chunk, looks, and repairs it. */
  function damaged(from: number, to: number, change: (part: Uint8Array) => void): number {
    change(placed.subarray(from, to));
    const sum = checksumOf(placed);
    placed.set(bytes.subarray(from, to), from);
    return sum;
  }

  it('every kind of damage that a network or a program does to a chunk, each at many places', () => {
    const places = Array.from({ length: 200 }, (_, i) => (i * 40_503 * 64) % (LENGTH - 8192));
    const seen: Record<string, number> = {};
    const look = (kind: string, from: number, to: number, change: (part: Uint8Array) => void): void => {
      if (damaged(from, to, change) === right) seen[kind] = (seen[kind] ?? 0) + 1;
    };
    for (const [i, place] of places.entries()) {
      const byte = place + (i % 64);
      look('a flipped bit', byte, byte + 1, (part) => (part[0]! ^= 1 << (i % 8)));
      look('two flipped bits', byte, byte + 1024, (part) => {
        part[0]! ^= 1 << (i % 8);
        part[i * 5 + 1]! ^= 0x80;
      });
      look('two words swapped', place, place + 8, (part) => part.set([...part.slice(4, 8), ...part.slice(0, 4)]));
      look('two stripes swapped', place, place + 128, (part) => part.set([...part.slice(64), ...part.slice(0, 64)]));
      look('two blocks swapped', place, place + 2048, (part) => part.set([...part.slice(1024), ...part.slice(0, 1024)]));
      look('a page of zeros', place, place + 4096, (part) => part.fill(0));
      look('bytes shifted by one', place, place + 1500, (part) => part.copyWithin(1, 0));
      look('a segment sent twice', place, place + 2896, (part) => part.copyWithin(1448, 0, 1448));
    }
    expect(seen).toEqual({});
  });

  it('every single flipped bit of a stripe, of the last bytes, and of a short payload', () => {
    for (const [from, to] of [
      [4096, 4160],
      [LENGTH - 64, LENGTH],
    ] as const)
      for (let bit = from * 8; bit < to * 8; bit++)
        expect(damaged(bit >> 3, (bit >> 3) + 1, (part) => (part[0]! ^= 1 << (bit & 7)))).not.toBe(right);
    for (const length of [4, 16, 100, 200]) {
      const sums = new Set([checksumOf(bytes.subarray(0, length))]);
      for (let bit = 0; bit < length * 8; bit++) {
        const copy = bytes.slice(0, length);
        copy[bit >> 3]! ^= 1 << (bit & 7);
        sums.add(checksumOf(copy));
      }
      expect(sums.size).toBe(length * 8 + 1);
    }
  });

  it('a payload that ends early, and zeros of another length', () => {
    const sums = new Set<number>();
    for (let missing = 0; missing < 300; missing++) sums.add(checksumOf(placed.subarray(0, LENGTH - missing)));
    expect(sums.size).toBe(300);
    const zeros = new Uint8Array(2000);
    expect(new Set(Array.from({ length: 2000 }, (_, length) => checksumOf(zeros.subarray(0, length)))).size).toBe(2000);
  });
});
