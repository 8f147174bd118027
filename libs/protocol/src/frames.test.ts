import { crc32 } from 'node:zlib';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { ProtocolError } from './errors.js';
import {
  Codec,
  decodeHeader,
  encodeHeader,
  FrameFlag,
  FrameType,
  HEADER_BYTES,
  isPacked,
  MAX_CHUNK_BYTES,
  MAX_CONTROL_BYTES,
  MAX_PACKED_BYTES,
  mayBePacked,
  PROTOCOL_VERSION,
  type FrameHeader,
} from './frames.js';

const u8 = fc.integer({ min: 0, max: 255 });
const u16 = fc.integer({ min: 0, max: 65_535 });
const u32 = fc.integer({ min: 0, max: 0xffff_ffff });
const headers: fc.Arbitrary<FrameHeader> = fc
  .record({
    type: fc.constantFrom(...Object.values(FrameType)),
    codec: u8,
    flags: u8,
    attempt: u32,
    term: u32,
    view: u32,
    round: u32,
    nodeLo: u16,
    nodeHi: u16,
    chunk: u32,
    length: u32,
    payloadChecksum: u32,
  })
  .map((header) => ({ ...header, flags: mayBePacked(header) ? header.flags : header.flags & ~FrameFlag.packed }))
  .map((header) => ({ ...header, length: header.length % (1 + boundOf(header)) }));

function boundOf(header: FrameHeader): number {
  if (header.type === FrameType.control) return MAX_CONTROL_BYTES;
  return isPacked(header) ? MAX_PACKED_BYTES : MAX_CHUNK_BYTES;
}

const EXAMPLE: FrameHeader = {
  type: FrameType.gradient,
  codec: 0,
  flags: 1,
  attempt: 0x0102_0304,
  term: 2,
  view: 3,
  round: 4,
  nodeLo: 0x0506,
  nodeHi: 0x0708,
  chunk: 9,
  length: 0x0010_0000,
  payloadChecksum: 0xa1b2_c3d4,
};

function encoded(header: FrameHeader): Uint8Array {
  const bytes = new Uint8Array(HEADER_BYTES);
  encodeHeader(header, bytes);
  return bytes;
}

/** Changes bytes below the header check and makes the check right again, as a peer of another make would. */
function resealed(header: FrameHeader, change: (view: DataView) => void): Uint8Array {
  const bytes = encoded(header);
  const view = new DataView(bytes.buffer);
  change(view);
  view.setUint32(40, crc32(bytes.subarray(0, 40)), true);
  return bytes;
}

function codeOf(act: () => unknown): string {
  try {
    act();
  } catch (error) {
    if (error instanceof ProtocolError) return error.code;
    throw error;
  }
  return 'accepted';
}

describe('frame header', () => {
  it('comes back as it was sent, at any offset, and touches nothing around it', () => {
    fc.assert(
      fc.property(headers, fc.nat(100), fc.boolean(), (header, offset, shared) => {
        const target = new Uint8Array(shared ? new SharedArrayBuffer(HEADER_BYTES + 200) : new ArrayBuffer(HEADER_BYTES + 200)).fill(0x77);
        encodeHeader(header, target, offset);
        expect(decodeHeader(target, offset)).toEqual(header);
        expect(target.every((byte, i) => byte === 0x77 || (i >= offset && i < offset + HEADER_BYTES))).toBe(true);
      }),
      { numRuns: 500 },
    );
  });

  it('has the bytes that the format says', () => {
    const bytes = Buffer.from(encoded(EXAMPLE));
    expect(bytes.subarray(0, 4).toString('latin1')).toBe('PCLN');
    expect(bytes.subarray(4, 40).toString('hex')).toBe(
      '11020001' + '04030201' + '02000000' + '03000000' + '04000000' + '06050807' + '09000000' + '00001000' + 'd4c3b2a1',
    );
    expect(bytes.readUInt32LE(40)).toBe(crc32(bytes.subarray(0, 40)));
  });

  it('is refused with any single bit flipped', () => {
    fc.assert(
      fc.property(headers, (header) => {
        for (let bit = 0; bit < HEADER_BYTES * 8; bit++) {
          const bytes = encoded(header);
          bytes[bit >> 3]! ^= 1 << (bit & 7);
          expect(codeOf(() => decodeHeader(bytes))).toBe('BAD_FRAME');
        }
      }),
      { numRuns: 30 },
    );
  });

  it('is refused with any burst of up to 32 bits changed', () => {
    fc.assert(
      fc.property(headers, fc.nat(HEADER_BYTES * 8 - 33), fc.integer({ min: 1, max: 0xffff_ffff }), (header, at, burst) => {
        const bytes = encoded(header);
        for (let i = 0; i < 32; i++) if ((burst >>> i) & 1) bytes[(at + i) >> 3]! ^= 1 << ((at + i) & 7);
        expect(codeOf(() => decodeHeader(bytes))).toBe('BAD_FRAME');
      }),
    );
  });

  it('names the versions when the peer speaks another one', () => {
    const bytes = resealed(EXAMPLE, (view) => view.setUint8(4, PROTOCOL_VERSION + 1));
    expect(codeOf(() => decodeHeader(bytes))).toBe('PROTOCOL_VERSION');
    expect(() => decodeHeader(bytes)).toThrow(`the peer speaks protocol ${PROTOCOL_VERSION + 1}, this side speaks ${PROTOCOL_VERSION}`);
  });

  it('bounds the payload by type before anything is allocated', () => {
    const withLength = (type: FrameType, length: number) => resealed({ ...EXAMPLE, type }, (view) => view.setUint32(32, length, true));
    for (const [type, bound] of [
      [FrameType.control, MAX_CONTROL_BYTES],
      [FrameType.gradient, MAX_CHUNK_BYTES],
      [FrameType.parameters, MAX_CHUNK_BYTES],
    ] as const) {
      expect(decodeHeader(withLength(type, bound)).length).toBe(bound);
      for (const length of [bound + 1, 0x7fff_ffff, 0xffff_ffff])
        expect(codeOf(() => decodeHeader(withLength(type, length)))).toBe('BAD_FRAME');
    }
  });

  it('takes several chunks in a frame only where they are encoded, and less of them than of one', () => {
    const packed = (change: Partial<FrameHeader>) => () =>
      decodeHeader(encoded({ ...EXAMPLE, codec: 7, flags: FrameFlag.packed, length: MAX_PACKED_BYTES, ...change }));
    expect(packed({})().length).toBe(MAX_PACKED_BYTES);
    expect(packed({ type: FrameType.parameters, flags: 3 })().flags).toBe(3);
    expect(packed({ length: MAX_PACKED_BYTES + 1 })).toThrow(`BAD_FRAME: a payload of ${MAX_PACKED_BYTES + 1} bytes is over the bound`);
    expect(packed({ codec: Codec.none })).toThrow('BAD_FRAME: several chunks in a frame of type 2 and codec 0');
    expect(packed({ codec: Codec.rows })).toThrow('BAD_FRAME: several chunks');
    for (const type of [FrameType.control, FrameType.rows, FrameType.residual])
      expect(packed({ type, length: 0 })).toThrow(`BAD_FRAME: several chunks in a frame of type ${type}`);
  });

  it('refuses frame types that do not exist', () => {
    const known: number[] = Object.values(FrameType);
    for (let type = 0; type < 256; type++) {
      const bytes = resealed({ ...EXAMPLE, length: 0 }, (view) => view.setUint8(5, type));
      expect(codeOf(() => decodeHeader(bytes))).toBe(known.includes(type) ? 'accepted' : 'BAD_FRAME');
    }
  });

  it('makes of arbitrary bytes nothing but BAD_FRAME', () => {
    fc.assert(
      fc.property(fc.uint8Array({ minLength: HEADER_BYTES, maxLength: HEADER_BYTES }), (bytes) => {
        expect(codeOf(() => decodeHeader(bytes))).toBe('BAD_FRAME');
      }),
      { numRuns: 1000 },
    );
  });
});
