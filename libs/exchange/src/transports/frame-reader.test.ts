import { crc32 } from 'node:zlib';
import { Arena, references } from '@paceline/kernels';
import {
  encodeHeader,
  encodeMessage,
  FrameFlag,
  FrameType,
  HEADER_BYTES,
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
  });

  it('stops loudly when the receiver gives a region of another size', () => {
    const reader = new FrameReader({ payloadFor: () => new Uint8Array(9), data: () => undefined, message: () => undefined }, false);
    expect(() => reader.feed(encode({ chunk: 1, payload: new Uint8Array(10), checked: false }))).toThrow(
      'payloadFor gave 9 bytes for a frame of 10',
    );
  });
});
