/**
 * Frames: a fixed little-endian header of 44 bytes, then a raw payload.
 *
 *   0  u32 magic 'PCLN'        16  u32 view          32  u32 payload length, bytes
 *   4  u8  protocol version    20  u32 round         36  u32 payload checksum (0 without the flag)
 *   5  u8  frame type          24  u16 node lo       40  u32 CRC-32 of bytes 0..39
 *   6  u8  codec               26  u16 node hi
 *   7  u8  flags               28  u32 chunk
 *   8  u32 attempt             12  u32 term
 *
 * The header check makes a length trustworthy before anything is allocated for it. For GRADIENT, `round` is the round the
 * gradient belongs to; for PARAMETERS it is the generation (round k reads generation k and makes k+1); for RESIDUAL the round that has left it.
 */
import { crc32 } from 'node:zlib';
import { ProtocolError } from './errors.js';

/** Raised when header, messages or their meaning change, when an optimizer computes other bits, and when reports of servers change; both sides must be equal. */
export const PROTOCOL_VERSION = 17;
export const HEADER_BYTES = 44;
const MAGIC = 0x4e4c4350;

export const FrameType = { control: 1, gradient: 2, parameters: 3, rows: 4, residual: 5 } as const;
export type FrameType = (typeof FrameType)[keyof typeof FrameType];
const isFrameType = (type: number): type is FrameType => type >= FrameType.control && type <= FrameType.residual;
/** `rows`: of a table that is exchanged by rows, the one payload that may be longer than a chunk. The numbers between are those of libs/codecs. */
export const Codec = { none: 0, rows: 255 } as const;
/** `packed`: the payload is several encoded chunks (packed-frames.ts). */
export const FrameFlag = { payloadChecksum: 1, packed: 2 } as const;

/** Bounds of a payload. No control message needs more, and no chunk of a grid: the largest has 1 MiB. */
export const MAX_CONTROL_BYTES = 1 << 20;
export const MAX_CHUNK_BYTES = 4 << 20;
/** Rows of a table, of as many examples as a round has. */
export const MAX_ROW_BYTES = 64 << 20;
/** A frame of several chunks, its table included: a control message waits no longer for it than for a small chunk. */
export const MAX_PACKED_BYTES = 64 << 10;
export const MAX_PACKED_CHUNKS = 64;

export interface FrameHeader {
  type: FrameType;
  codec: number;
  flags: number;
  attempt: number;
  term: number;
  view: number;
  round: number;
  nodeLo: number;
  nodeHi: number;
  chunk: number;
  /** Bytes. */
  length: number;
  /** When the flag is set, else 0: the CRC-32 of a control message; the low 32 bits of the XXH3-64 of a chunk. */
  payloadChecksum: number;
}

export const isPacked = ({ flags }: Pick<FrameHeader, 'flags'>): boolean => (flags & FrameFlag.packed) !== 0;

/** Whether chunks of such frames may travel in one. Float32 and rows are long, and what a codec keeps travels as float32. */
export const mayBePacked = ({ type, codec }: Pick<FrameHeader, 'type' | 'codec'>): boolean =>
  (type === FrameType.gradient || type === FrameType.parameters) && codec !== Codec.none && codec !== Codec.rows;

function boundOf(header: Pick<FrameHeader, 'type' | 'codec' | 'flags'>): number {
  if (header.type === FrameType.control) return MAX_CONTROL_BYTES;
  if (isPacked(header)) return MAX_PACKED_BYTES;
  return header.codec === Codec.rows ? MAX_ROW_BYTES : MAX_CHUNK_BYTES;
}

/** Headers are made and read here, one at a time: a view of its own for each frame would cost more than the rest. */
const bytes = new Uint8Array(HEADER_BYTES);
const view = new DataView(bytes.buffer);
const checked = bytes.subarray(0, HEADER_BYTES - 4);

/** Writes a header into 44 bytes of `target` at `offset`. Values are taken modulo their width: callers keep them in range. */
export function encodeHeader(header: FrameHeader, target: Uint8Array, offset = 0): void {
  view.setUint32(0, MAGIC, true);
  bytes[4] = PROTOCOL_VERSION;
  bytes[5] = header.type;
  bytes[6] = header.codec;
  bytes[7] = header.flags;
  view.setUint32(8, header.attempt, true);
  view.setUint32(12, header.term, true);
  view.setUint32(16, header.view, true);
  view.setUint32(20, header.round, true);
  view.setUint16(24, header.nodeLo, true);
  view.setUint16(26, header.nodeHi, true);
  view.setUint32(28, header.chunk, true);
  view.setUint32(32, header.length, true);
  view.setUint32(36, header.payloadChecksum, true);
  view.setUint32(40, crc32(checked), true);
  target.set(bytes, offset);
}

/**
 * Reads and checks a header.
 * @throws ProtocolError BAD_FRAME, PROTOCOL_VERSION
 */
export function decodeHeader(source: Uint8Array, offset = 0): FrameHeader {
  if (offset + HEADER_BYTES > source.length) throw new RangeError(`no header in ${source.length} bytes at ${offset}`);
  for (let i = 0; i < HEADER_BYTES; i++) bytes[i] = source[offset + i]!;
  if (view.getUint32(0, true) !== MAGIC) throw new ProtocolError('BAD_FRAME', 'wrong magic');
  if (view.getUint32(40, true) !== crc32(checked)) throw new ProtocolError('BAD_FRAME', 'wrong header check');
  const version = bytes[4]!;
  if (version !== PROTOCOL_VERSION) {
    throw new ProtocolError('PROTOCOL_VERSION', `the peer speaks protocol ${version}, this side speaks ${PROTOCOL_VERSION}`);
  }
  const type = bytes[5]!;
  const length = view.getUint32(32, true);
  if (!isFrameType(type)) {
    throw new ProtocolError('BAD_FRAME', `unknown frame type ${type}`);
  }
  const [codec, flags] = [bytes[6]!, bytes[7]!];
  if (isPacked({ flags }) && !mayBePacked({ type, codec }))
    throw new ProtocolError('BAD_FRAME', `several chunks in a frame of type ${type} and codec ${codec}`);
  const bound = boundOf({ type, codec, flags });
  if (length > bound) throw new ProtocolError('BAD_FRAME', `a payload of ${length} bytes is over the bound of ${bound}`);
  return {
    type,
    codec,
    flags,
    attempt: view.getUint32(8, true),
    term: view.getUint32(12, true),
    view: view.getUint32(16, true),
    round: view.getUint32(20, true),
    nodeLo: view.getUint16(24, true),
    nodeHi: view.getUint16(26, true),
    chunk: view.getUint32(28, true),
    length,
    payloadChecksum: view.getUint32(36, true),
  };
}
