import { Arena } from '@paceline/kernels';
import { FrameType, type FrameHeader } from '@paceline/protocol';
import { expect, test } from 'vitest';
import { acquireRegion, regionSum, type Region } from '../attempt/regions.js';
import { RegionReceiver, type ChunkDecoder } from './chunk-frames.js';

const N = 700;
const BITS = 8;
const arena = Arena.create({ initialBytes: 1 << 18, maximumBytes: 1 << 18 });
const { kernels } = arena;
const chunk = { index: 3, length: N, arena };
const scratch = acquireRegion(arena, N);
const begin = arena.bytesInUse;

/** Whole numbers of 8 bits. */
const decoder: ChunkDecoder = {
  codec: 3,
  takes: () => true,
  isLength: () => true,
  decode: (_header, payload, region) => (kernels.dequantize(payload.pointer, region.pointer, region.length, BITS), true),
  waiting: {
    takes: (_header, payload, n) => kernels.isQuantized(payload.pointer, n, BITS),
    add: (_header, payload, sum) => kernels.addQuantized(payload.pointer, sum.pointer, sum.length, BITS),
  },
};
const BYTES = 4 * 2 + 16 * 44;

/** The gradient of a replica, as it has come. */
function arrived(replica: number): { region: Region; floats: Float32Array } {
  scratch.floats.forEach((_, i, values) => (values[i] = i % 5 === 0 ? 0 : Math.sin(i * (replica + 1))));
  const bytes = new Uint8Array(BYTES);
  const at = arena.alloc(BYTES);
  kernels.quantize(scratch.pointer, at, N, BITS, replica);
  bytes.set(arena.bytes(at, BYTES));
  kernels.dequantize(at, scratch.pointer, N, BITS);
  arena.free(at);
  return { region: receive(bytes), floats: scratch.floats.slice() };
}

function receive(bytes: Uint8Array): Region {
  const receiver = new RegionReceiver(decoder);
  receiver.receive({ type: FrameType.gradient, codec: 3, chunk: 3, length: bytes.length } as FrameHeader, chunk).set(bytes);
  return receiver.received()!;
}

function plain(values: Float32Array): Region {
  const region = acquireRegion(arena, N);
  region.floats.set(values);
  return region;
}

/** As a tree adds up. */
function sum(left: Region, right: Region): Region {
  regionSum.add(left, right);
  regionSum.release(right);
  return left;
}

const added = (left: Float32Array, right: Float32Array): Float32Array => left.map((x, i) => x + right[i]!);
const bitsOf = (values: Float32Array): Uint32Array => new Uint32Array(values.slice().buffer);

test('a gradient that waits takes the memory of its payload alone, and is decoded where nothing is added to it', () => {
  const { region, floats } = arrived(0);
  expect(arena.bytesInUse - begin).toBeLessThan(BYTES + 64);
  expect(region.decoded()).toBe(region);
  expect([region.length, region.isFinite, region.bytes.length]).toEqual([N, true, 4 * N]);
  expect(bitsOf(region.floats)).toEqual(bitsOf(floats));
  expect(bitsOf(region.decoded().floats)).toEqual(bitsOf(floats));
  region.release();
  expect(arena.bytesInUse).toBe(begin);
});

test.each(['encoded', 'decoded', 'float32'] as const)(
  'its sum with one that is %s has the bits of decoding both, either way round',
  (kind) => {
    for (const isLeft of [true, false]) {
      const [first, second] = [arrived(1), arrived(2)];
      let other = second.region;
      if (kind === 'decoded') other.decoded();
      if (kind === 'float32') {
        other.release();
        other = plain(second.floats);
      }
      const region = isLeft ? sum(first.region, other) : sum(other, first.region);
      expect(arena.bytesInUse - begin).toBeLessThan(4 * N + 64);
      expect(bitsOf(region.decoded().floats)).toEqual(bitsOf(added(first.floats, second.floats)));
      expect([region.length, region.isFinite]).toEqual([N, true]);
      // It is a sum like any other.
      const third = arrived(3);
      const more = sum(third.region, region);
      expect(bitsOf(more.floats)).toEqual(bitsOf(added(third.floats, added(first.floats, second.floats))));
      more.release();
      expect(arena.bytesInUse).toBe(begin);
    }
  },
);

test('a sum with something that is not finite says so', () => {
  const infinite = plain(new Float32Array(N).fill(Infinity));
  const region = sum(arrived(1).region, infinite);
  expect(region.isFinite).toBe(false);
  region.release();
  expect(arena.bytesInUse).toBe(begin);
});

test('bytes that nobody encodes are refused when they have come, and leave nothing behind', () => {
  const lowest = new Uint8Array(BYTES);
  lowest[8] = 0x80;
  expect(() => receive(lowest)).toThrow('BAD_PAYLOAD: chunk 3 in codec 3');
  expect(arena.bytesInUse).toBe(begin);
});
