import fc from 'fast-check';
import { expect, test } from 'vitest';
import { ProtocolError } from './errors.js';
import { FrameFlag, FrameType, HEADER_BYTES, MAX_PACKED_BYTES, MAX_PACKED_CHUNKS, type FrameHeader } from './frames.js';
import { packedSaving, packedTable, unpack } from './packed-frames.js';

const HEADER: FrameHeader = {
  type: FrameType.gradient,
  codec: 7,
  flags: FrameFlag.packed | FrameFlag.payloadChecksum,
  attempt: 1,
  term: 2,
  view: 3,
  round: 4,
  nodeLo: 5,
  nodeHi: 6,
  chunk: 9,
  length: 0,
  payloadChecksum: 77,
};
const of = (payload: Uint8Array, chunk = HEADER.chunk): FrameHeader => ({ ...HEADER, chunk, length: payload.length });
const refusal = (bytes: readonly number[], chunk?: number): string => {
  try {
    unpack(of(Uint8Array.from(bytes), chunk), Uint8Array.from(bytes));
  } catch (error) {
    if (error instanceof ProtocolError) return error.message.replace('BAD_PAYLOAD: a frame of several chunks with ', '');
    throw error;
  }
  return 'taken';
};

test('chunks come out as they were put in, each with the header as if it had come alone', () => {
  fc.assert(
    fc.property(
      fc.array(fc.uint8Array({ maxLength: 900 }), { minLength: 2, maxLength: MAX_PACKED_CHUNKS }),
      fc.integer({ min: 1, max: 0xffffffff }),
      fc.nat(0xffffffff),
      (payloads, anyStride, anyChunk) => {
        const stride = Math.min(anyStride, Math.floor(0xffffffff / payloads.length));
        const chunk = Math.min(anyChunk, 0xffffffff - (payloads.length - 1) * stride);
        const lengths = payloads.map(({ length }) => length);
        const payload = Buffer.concat([packedTable(stride, lengths), ...payloads]);
        const chunks = unpack(of(payload, chunk), payload);
        expect(chunks.map((each) => Buffer.from(each.payload).toString('hex'))).toEqual(
          payloads.map((each) => Buffer.from(each).toString('hex')),
        );
        expect(chunks.map(({ header }) => header)).toEqual(
          lengths.map((length, i) => ({ ...HEADER, flags: 0, payloadChecksum: 0, chunk: chunk + i * stride, length })),
        );
        const alone = lengths.reduce((sum, length) => sum + HEADER_BYTES + length, 0);
        expect(packedSaving(lengths, payload.length)).toBe(alone - HEADER_BYTES - payload.length);
      },
    ),
  );
});

test('a table that no sender writes is refused, and says what is wrong with it', () => {
  expect(refusal([2, 1, 1, 2, 7, 8, 9])).toBe('taken');
  expect(refusal([])).toBe('a table that ends before the count');
  expect(refusal([2])).toBe('a table that ends before the stride');
  expect(refusal([2, 1, 1])).toBe('a table that ends before a length');
  expect(refusal([2, 1, 1, 0x80])).toBe('a table that ends before a length');
  expect(refusal([0, 1])).toBe('0 chunks, where 2 to 64 are taken');
  expect(refusal([1, 1, 0])).toBe('1 chunks, where 2 to 64 are taken');
  expect(refusal([65, 1, ...Array.from({ length: 65 }, () => 0)])).toBe('65 chunks, where 2 to 64 are taken');
  expect(refusal([0xff, 0xff, 0xff, 0xff, 0x0f, 1])).toBe('4294967295 chunks, where 2 to 64 are taken');
  // The chunk again, and one that comes before it: neither can be said but by going around.
  expect(refusal([2, 0, 0, 0])).toBe('a stride of 0 from chunk 9 on');
  expect(refusal([2, 0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0])).toBe('a stride of 4294967295 from chunk 9 on');
  expect(refusal([2, 1, 0, 0], 0xffffffff)).toBe('a stride of 1 from chunk 4294967295 on');
  expect(refusal([2, 1, 1, 2, 7, 8])).toBe('lengths of 3 bytes, and 2 bytes behind the table');
  expect(refusal([2, 1, 1, 2, 7, 8, 9, 10])).toBe('lengths of 3 bytes, and 4 bytes behind the table');
  // Lengths whose sum would be right in 32 bits.
  expect(refusal([2, 1, 0xff, 0xff, 0xff, 0xff, 0x0f, 4, 7, 8, 9])).toBe('lengths of 4294967299 bytes, and 3 bytes behind the table');
  expect(refusal([2, 1, 0x80, 0x80, 0x80, 0x80, 0x10, 3, 7, 8, 9])).toBe('a length beyond 32 bits');
  expect(refusal([2, 1, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0])).toBe('a length beyond 32 bits');
  expect(refusal([2, 0x81, 0, 1, 2, 7, 8, 9])).toBe('more digits than the stride needs');
});

test('arbitrary bytes are refused, or are chunks that fill the payload in order', () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 300 }), fc.nat(0xffffffff), (payload, chunk) => {
      try {
        const chunks = unpack(of(payload, chunk), payload);
        const numbers = chunks.map(({ header }) => header.chunk);
        expect(numbers).toEqual([...new Set(numbers)].sort((a, b) => a - b));
        expect(chunks.every(({ header, payload: part }) => part.length === header.length && header.length <= MAX_PACKED_BYTES)).toBe(true);
        expect(chunks.at(-1)!.payload.byteOffset + chunks.at(-1)!.payload.length).toBe(payload.byteOffset + payload.length);
      } catch (error) {
        expect((error as ProtocolError).code).toBe('BAD_PAYLOAD');
      }
    }),
    { numRuns: 2_000 },
  );
});
