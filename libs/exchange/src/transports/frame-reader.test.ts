import { crc32 } from 'node:zlib';
import { Arena, references } from '@paceline/kernels';
import {
  decodeHeader,
  encodeHeader,
  encodeMessage,
  FrameFlag,
  FrameType,
  HEADER_BYTES,
  packedTable,
  ProtocolError,
  type FrameHeader,
  type Message,
} from '@paceline/protocol';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { FrameReader } from './frame-reader.js';

interface Sent {
  readonly chunk: number;
  readonly payload: Uint8Array;
  readonly checked: boolean;
}

function encode({ chunk, payload, checked }: Sent): Uint8Array {
  const bytes = new Uint8Array(HEADER_BYTES + payload.length);
  const header: FrameHeader = {
    type: FrameType.gradient,
    codec: 0,
    flags: checked ? FrameFlag.payloadChecksum : 0,
    attempt: 1,
    term: 2,
    view: 3,
    round: 4,
    nodeLo: 5,
    nodeHi: 6,
    chunk,
    length: payload.length,
    payloadChecksum: checked ? references.checksum(payload) : 0,
  };
  encodeHeader(header, bytes);
  bytes.set(payload, HEADER_BYTES);
  return bytes;
}

/** Chunks 5, 8, … in one frame, with a checksum. */
function severalChunks(payloads: readonly ArrayLike<number>[], change = (payload: Uint8Array): Uint8Array => payload): Uint8Array {
  const table = packedTable(
    3,
    payloads.map(({ length }) => length),
  );
  const payload = change(Buffer.concat([table, ...payloads.map((each) => Uint8Array.from(each))]));
  const bytes = encode({ chunk: 5, payload, checked: true });
  const flags = FrameFlag.payloadChecksum | FrameFlag.packed;
  encodeHeader({ ...decodeHeader(bytes), codec: 7, flags }, bytes);
  return bytes;
}

/** Reads `bytes` in place, as a socket does, at most `steps[i]` bytes at a time. */
function readInPlace(reader: FrameReader, bytes: Uint8Array, steps: readonly number[]): void {
  for (let at = 0, i = 0; at < bytes.length; i++) {
    const target = reader.destination();
    const count = Math.min(target.length, bytes.length - at, steps[i % steps.length]!);
    target.set(bytes.subarray(at, at + count));
    reader.filled(count);
    at += count;
  }
}

const frames = fc.array(
  fc.record({
    chunk: fc.nat(1000),
    payload: fc.oneof(
      fc.uint8Array({ maxLength: 200 }),
      fc.integer({ min: 3900, max: 20_000 }).map((bytes) => new Uint8Array(bytes).map((_, i) => i * 7)),
    ),
    checked: fc.boolean(),
  }),
  { maxLength: 8 },
);

const arena = Arena.create({ initialBytes: 65_536, maximumBytes: 65_536 });
const region = arena.alloc(20_000);

describe('FrameReader', () => {
  it('gives the same frames however the stream is cut', () => {
    fc.assert(
      fc.property(
        frames,
        fc.array(fc.integer({ min: 1, max: 9000 }), { minLength: 1, maxLength: 10 }),
        fc.boolean(),
        fc.boolean(),
        (sent, steps, inPlace, toArena) => {
          const came: { chunk: number; payload: Uint8Array }[] = [];
          const sink = {
            payloadFor: ({ length }: FrameHeader) =>
              toArena ? arena.bytes(region, length) : new Uint8Array(new SharedArrayBuffer(length)),
            data: (header: FrameHeader, payload: Uint8Array) => came.push({ chunk: header.chunk, payload: payload.slice() }),
            message: () => undefined,
          };
          const reader = new FrameReader(sink, false);
          const bytes = Buffer.concat(sent.map(encode));
          if (inPlace) readInPlace(reader, bytes, steps);
          else {
            for (let at = 0, i = 0; at < bytes.length; at += steps[i++ % steps.length]!)
              reader.feed(bytes.subarray(at, at + steps[i % steps.length]!));
          }
          expect(came.map(({ chunk, payload }) => [chunk, Buffer.from(payload).toString('hex')])).toEqual(
            sent.map(({ chunk, payload }) => [chunk, Buffer.from(payload).toString('hex')]),
          );
          expect(reader.stop()).toBeUndefined();
        },
      ),
      { numRuns: 300 },
    );
  });

  it('finds every flip of a bit in a checked frame', () => {
    fc.assert(
      fc.property(
        fc.uint8Array({ minLength: 1, maxLength: 6000 }),
        fc.nat(),
        fc.nat(7),
        fc.boolean(),
        (payload, position, bit, toArena) => {
          const bytes = encode({ chunk: 1, payload, checked: true });
          bytes[position % bytes.length]! ^= 1 << bit;
          let delivered = 0;
          const reader = new FrameReader(
            {
              payloadFor: ({ length }) => (toArena ? arena.bytes(region, length) : new Uint8Array(length)),
              data: () => delivered++,
              message: () => undefined,
            },
            false,
          );
          expect(() => reader.feed(bytes)).toThrow(ProtocolError);
          expect(delivered).toBe(0);
        },
      ),
      { numRuns: 500 },
    );
  });

  it('sums frames that share one scratch as they come, whatever another connection writes there meanwhile', () => {
    const scratch = new Uint8Array(20_000);
    const came: number[] = [];
    const readers = [1, 2].map(
      () =>
        new FrameReader(
          { payloadFor: ({ length }) => scratch.subarray(0, length), data: ({ chunk }) => came.push(chunk), message: () => undefined },
          false,
        ),
    );
    const streams = [1, 2].map((chunk) => encode({ chunk, payload: new Uint8Array(20_000).fill(chunk), checked: true }));
    for (let at = 0; at < streams[0]!.length; at += 7000) readers.forEach((reader, i) => reader.feed(streams[i]!.subarray(at, at + 7000)));
    expect(came).toEqual([1, 2]);
  });

  it('holds a control message to its CRC-32', () => {
    const text = encodeMessage({ type: 'heartbeat', progress: 12 });
    const bytes = encode({ chunk: 0, payload: text, checked: true });
    const flags = FrameFlag.payloadChecksum;
    const header = { type: FrameType.control, codec: 0, flags, attempt: 1, term: 0, view: 0, round: 0, nodeLo: 0, nodeHi: 0, chunk: 0 };
    let heard = 0;
    const sink = { payloadFor: () => text, data: () => undefined, message: () => void heard++ };
    encodeHeader({ ...header, length: text.length, payloadChecksum: crc32(text) }, bytes);
    new FrameReader(sink, false).feed(bytes);
    expect(heard).toBe(1);
    encodeHeader({ ...header, length: text.length, payloadChecksum: references.checksum(text) }, bytes);
    expect(() => new FrameReader(sink, false).feed(bytes)).toThrow('BAD_CHECKSUM');
  });

  it('makes of arbitrary bytes nothing but a ProtocolError', () => {
    fc.assert(
      fc.property(fc.uint8Array({ minLength: HEADER_BYTES, maxLength: 500 }), (bytes) => {
        const fail = (): never => {
          throw new Error('nothing of this may be delivered');
        };
        const reader = new FrameReader({ payloadFor: fail, data: fail, message: fail }, false);
        expect(() => reader.feed(bytes)).toThrow(ProtocolError);
      }),
      { numRuns: 500 },
    );
  });

  it('gives the region of an unfinished data frame back, and none of a message', () => {
    const region = new Uint8Array(1000);
    const message: Message = { type: 'heartbeat', progress: 12 };
    const reader = new FrameReader({ payloadFor: () => region, data: () => undefined, message: () => undefined }, false);
    reader.feed(encode({ chunk: 5, payload: region, checked: false }).subarray(0, 500));
    const unfinished = reader.stop();
    expect(unfinished?.payload).toBe(region);
    expect(unfinished?.header.chunk).toBe(5);
    expect(reader.stop()).toBeUndefined();
    expect(reader.destination()).not.toBe(region);

    const text = encodeMessage(message);
    const head = new Uint8Array(HEADER_BYTES);
    encodeHeader(
      {
        type: FrameType.control,
        codec: 0,
        flags: 0,
        attempt: 1,
        term: 0,
        view: 0,
        round: 0,
        nodeLo: 0,
        nodeHi: 0,
        chunk: 0,
        length: text.length,
        payloadChecksum: 0,
      },
      head,
    );
    const other = new FrameReader({ payloadFor: () => region, data: () => undefined, message: () => undefined }, false);
    other.feed(head);
    expect(other.stop()).toBeUndefined();
    const packed = new FrameReader({ payloadFor: () => region, data: () => undefined, message: () => undefined }, false);
    packed.feed(severalChunks([[1], [2]]).subarray(0, -1));
    expect(packed.stop(), 'bytes of the reader itself').toBeUndefined();
  });

  it('hands several chunks of a frame over one by one, however the stream is cut, when all of them are taken', () => {
    const payloads = Array.from({ length: 64 }, (_, i) => Uint8Array.from({ length: (i * 37) % 400 }, (_v, j) => i + j));
    const bytes = Buffer.concat([severalChunks(payloads), encode({ chunk: 1, payload: new Uint8Array(9), checked: true })]);
    for (const step of [1, 43, 5000]) {
      const order: string[] = [];
      const came: Uint8Array[] = [];
      const saved: number[] = [];
      const reader = new FrameReader(
        {
          payloadFor: ({ length }) => new Uint8Array(length),
          check: ({ chunk, length }) => order.push(`check ${chunk} of ${length}`),
          data: ({ chunk, flags }, payload) => {
            order.push(`chunk ${chunk}, flags ${flags}`);
            came.push(payload);
          },
          message: () => undefined,
          arrived: (savedBytes) => saved.push(savedBytes),
        },
        false,
      );
      readInPlace(reader, bytes, [step]);
      expect(order).toEqual([
        ...payloads.map(({ length }, i) => `check ${5 + 3 * i} of ${length}`),
        ...payloads.map((_, i) => `chunk ${5 + 3 * i}, flags 0`),
        'chunk 1, flags 1',
      ]);
      expect(came.slice(0, -1)).toEqual(payloads);
      const tableBytes = 2 + 64 + payloads.filter(({ length }) => length > 127).length;
      expect(saved).toEqual([63 * HEADER_BYTES - tableBytes, 0]);
    }
  });

  it('hands none of several chunks over when one of them is refused, the checksum is wrong or the table is cut short', () => {
    const seen: number[] = [];
    const sink = {
      payloadFor: ({ length }: FrameHeader) => new Uint8Array(length),
      check: ({ chunk }: FrameHeader) => {
        if (chunk === 11) throw new ProtocolError('WRONG_LENGTH');
      },
      data: ({ chunk }: FrameHeader) => seen.push(chunk),
      message: () => undefined,
    };
    const feed = (bytes: Uint8Array) => () => new FrameReader(sink, false).feed(bytes);
    feed(severalChunks([[1], [2]]))();
    expect(seen.splice(0)).toEqual([5, 8]);
    expect(feed(severalChunks([[1], [2], [3]]))).toThrow('WRONG_LENGTH');
    const flipped = severalChunks([[1], [2]]);
    flipped[flipped.length - 1]! ^= 1;
    expect(feed(flipped)).toThrow('BAD_CHECKSUM');
    expect(feed(severalChunks([[1], [2]], (payload) => payload.subarray(0, 3)))).toThrow('BAD_PAYLOAD');
    expect(feed(severalChunks([[1], [2]], (payload) => payload.subarray(0, -1)))).toThrow('BAD_PAYLOAD');
    expect(seen).toEqual([]);
  });

  it('hands no more of several chunks over once the receiver has stopped it', () => {
    const seen: number[] = [];
    const reader: FrameReader = new FrameReader(
      {
        payloadFor: ({ length }) => new Uint8Array(length),
        data: ({ chunk }) => {
          seen.push(chunk);
          if (chunk === 8) reader.stop();
        },
        message: () => undefined,
      },
      false,
    );
    reader.feed(severalChunks([[1], [2], [3], [4]]));
    expect(seen).toEqual([5, 8]);
  });

  it('stops loudly when the receiver gives a region of another size', () => {
    const reader = new FrameReader({ payloadFor: () => new Uint8Array(9), data: () => undefined, message: () => undefined }, false);
    expect(() => reader.feed(encode({ chunk: 1, payload: new Uint8Array(10), checked: false }))).toThrow(
      'payloadFor gave 9 bytes for a frame of 10',
    );
  });
});
