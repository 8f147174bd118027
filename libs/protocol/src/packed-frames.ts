/**
 * Several encoded chunks in one data frame. The flag `packed` of the header says so; the header names the first of them, and all else in it holds for
 * every one. The payload begins with a table of LEB128 numbers:
 *
 *   count, stride, the length of each chunk │ the payloads, one behind the other
 *
 * Chunk i of the frame is number `chunk + i · stride` of the layout, so none comes twice and none out of order.
 */
import { ProtocolError } from './errors.js';
import { HEADER_BYTES, MAX_PACKED_CHUNKS, type FrameHeader } from './frames.js';

/** A u32 has no more. */
const MOST_DIGITS = 5;
const MAX_U32 = 0xffffffff;

/** One of the chunks of a packed frame, with the header as if it had come alone. */
export interface PackedChunk {
  readonly header: FrameHeader;
  readonly payload: Uint8Array;
}

/** The table of chunks that follow each other at this stride, with these lengths. */
export function packedTable(stride: number, lengths: readonly number[]): Uint8Array {
  const digits: number[] = [];
  for (const value of [lengths.length, stride, ...lengths]) {
    let rest = value;
    for (; rest >= 0x80; rest = Math.floor(rest / 0x80)) digits.push((rest % 0x80) | 0x80);
    digits.push(rest);
  }
  return Uint8Array.from(digits);
}

/** By how many bytes a packed frame is shorter than frames of its chunks. @param bytes of its payload */
export const packedSaving = (lengths: readonly number[], bytes: number): number =>
  lengths.reduce((sum, length) => sum + HEADER_BYTES + length, -HEADER_BYTES - bytes);

/**
 * The chunks of a packed frame, as views of its payload.
 * @throws ProtocolError BAD_PAYLOAD for a table that no sender writes
 */
export function unpack(header: FrameHeader, payload: Uint8Array): PackedChunk[] {
  const table = new Table(payload);
  const count = table.next('the count');
  if (count < 2 || count > MAX_PACKED_CHUNKS) throw bad(`${count} chunks, where 2 to ${MAX_PACKED_CHUNKS} are taken`);
  const stride = table.next('the stride');
  if (stride < 1 || header.chunk + (count - 1) * stride > MAX_U32) throw bad(`a stride of ${stride} from chunk ${header.chunk} on`);
  const lengths: number[] = [];
  for (let left = count; left > 0; left--) lengths.push(table.next('a length'));
  const bytes = lengths.reduce((sum, length) => sum + length, 0);
  if (bytes !== payload.length - table.at) throw bad(`lengths of ${bytes} bytes, and ${payload.length - table.at} bytes behind the table`);
  let at = table.at;
  return lengths.map((length, i) => ({
    header: { ...header, flags: 0, chunk: header.chunk + i * stride, length, payloadChecksum: 0 },
    payload: payload.subarray(at, (at += length)),
  }));
}

const bad = (why: string): ProtocolError => new ProtocolError('BAD_PAYLOAD', `a frame of several chunks with ${why}`);

/** Reads LEB128 numbers from the start of a payload. */
class Table {
  at = 0;

  constructor(private readonly payload: Uint8Array) {}

  next(what: string): number {
    let value = 0;
    for (let i = 0; i < MOST_DIGITS; i++) {
      const digit = this.payload[this.at++];
      if (digit === undefined) throw bad(`a table that ends before ${what}`);
      value += (digit & 0x7f) * 0x80 ** i;
      if (digit >= 0x80) continue;
      if (i > 0 && digit === 0) throw bad(`more digits than ${what} needs`);
      if (value <= MAX_U32) return value;
    }
    throw bad(`${what} beyond 32 bits`);
  }
}
