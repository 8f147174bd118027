/** A frame that waits to leave, how a control message becomes one, and how several that wait leave as one. */
import { crc32 } from 'node:zlib';
import { checksumOf } from '@paceline/kernels';
import {
  encodeHeader,
  encodeMessage,
  FrameFlag,
  FrameType,
  HEADER_BYTES,
  MAX_CONTROL_BYTES,
  MAX_PACKED_BYTES,
  MAX_PACKED_CHUNKS,
  mayBePacked,
  packedSaving,
  packedTable,
  type FrameHeader,
  type Message,
} from '@paceline/protocol';
import type { FrameNumbers } from '../connection.js';
import { sendingChecksums } from './payload-checksums.js';

export interface OutgoingFrame {
  /** Of control messages: header and payload. */
  readonly head?: Uint8Array | undefined;
  readonly payload: Uint8Array | null;
  /** Of a chunk. It is written, with the checksum, when the frame is handed to the stream. */
  readonly header?: FrameHeader | undefined;
  /** Means the same whatever was lost before it. */
  readonly standsAlone: boolean;
  /** As a frame of its own. */
  readonly bytes: number;
  readonly onFlushed: (() => void) | undefined;
}

/** A longer chunk would gain less than a hundredth by travelling with others. */
const MAX_JOINED_BYTES = 4 << 10;

/** The last words of a side: why it ends, and nothing that builds on frames before them. */
const STANDS_ALONE: ReadonlySet<Message['type']> = new Set(['end', 'leave', 'failed']);
export const NO_NUMBERS: FrameNumbers = { attempt: 0, term: 0, view: 0, round: 0 };

export function controlFrame(message: Message, numbers: FrameNumbers, checksum: boolean): OutgoingFrame & { readonly head: Uint8Array } {
  const text = encodeMessage(message);
  if (text.length > MAX_CONTROL_BYTES)
    throw new RangeError(`a ${message.type} message of ${text.length} bytes is over the bound of ${MAX_CONTROL_BYTES}`);
  const head = Buffer.allocUnsafe(HEADER_BYTES + text.length);
  const header: FrameHeader = {
    ...numbers,
    type: FrameType.control,
    codec: 0,
    flags: checksum ? FrameFlag.payloadChecksum : 0,
    nodeLo: 0,
    nodeHi: 0,
    chunk: 0,
    length: text.length,
    // A flipped digit would still be a message: of another round, or another replica.
    payloadChecksum: checksum ? crc32(text) : 0,
  };
  encodeHeader(header, head);
  head.set(text, HEADER_BYTES);
  return { head, payload: null, standsAlone: STANDS_ALONE.has(message.type), bytes: head.length, onFlushed: undefined };
}

/** What a batch is on the wire. */
export interface Written {
  readonly parts: readonly Uint8Array[];
  readonly frames: number;
  readonly bytes: number;
  /** By which it is shorter than with each chunk in a frame of its own. */
  readonly savedBytes: number;
}

export const isChecked = ({ header }: OutgoingFrame): boolean => ((header?.flags ?? 0) & FrameFlag.payloadChecksum) !== 0;

/** The bytes of a batch. Small encoded chunks that follow each other in it leave in one frame. */
export function written(batch: readonly OutgoingFrame[]): Written {
  const parts: Uint8Array[] = [];
  let [frames, bytes, savedBytes] = [0, 0, 0];
  for (let at = 0; at < batch.length; frames++) {
    const count = joined(batch, at);
    const first = batch[at]!;
    if (count === 1) {
      bytes += first.bytes;
      parts.push(first.head ?? headOf(first));
      if (first.payload && first.payload.length > 0) parts.push(first.payload);
    } else {
      const frame = packed(batch.slice(at, at + count));
      bytes += frame.bytes.length;
      savedBytes += frame.savedBytes;
      parts.push(frame.bytes);
    }
    at += count;
  }
  return { parts, frames, bytes, savedBytes };
}

/** A chunk of a vector, and the bytes that it takes in its codec. */
export interface ChunkSize {
  readonly index: number;
  readonly codec: number;
  readonly bytes: number;
}

/** The bytes on the wire of chunks that are sent one behind the other, for who counts without sending. */
export function wireBytes(chunks: readonly ChunkSize[]): number {
  const zeros = new Uint8Array(Math.max(0, ...chunks.map(({ bytes }) => bytes)));
  const frames = chunks.map(({ index, codec, bytes }): OutgoingFrame => {
    const fields = { type: FrameType.gradient, flags: 0, ...NO_NUMBERS, nodeLo: 0, nodeHi: 0, payloadChecksum: 0 };
    const header: FrameHeader = { ...fields, codec, chunk: index, length: bytes };
    return { payload: zeros.subarray(0, bytes), header, standsAlone: false, bytes: HEADER_BYTES + bytes, onFlushed: undefined };
  });
  return written(frames).bytes;
}

function headOf({ header, payload }: OutgoingFrame): Uint8Array {
  const head = Buffer.allocUnsafe(HEADER_BYTES);
  if ((header!.flags & FrameFlag.payloadChecksum) !== 0) header!.payloadChecksum = sendingChecksums.take(payload!);
  encodeHeader(header!, head);
  return head;
}

const isSmall = ({ header, payload }: OutgoingFrame): boolean =>
  header !== undefined && mayBePacked(header) && payload!.length <= MAX_JOINED_BYTES;

/** How many frames from this one on leave as one: chunks of one vector in one codec, at equal distances. */
function joined(batch: readonly OutgoingFrame[], from: number): number {
  const first = batch[from]!;
  if (!isSmall(first)) return 1;
  let [count, stride] = [1, 0];
  let bytes = TABLE_START_BYTES + LENGTH_BYTES + first.payload!.length;
  for (; count < MAX_PACKED_CHUNKS; count++) {
    const next = batch[from + count];
    if (!next || !isSmall(next) || !isSameVector(first.header!, next.header!)) break;
    const step = next.header!.chunk - batch[from + count - 1]!.header!.chunk;
    stride ||= step;
    bytes += LENGTH_BYTES + next.payload!.length;
    if (stride < 1 || step !== stride || bytes > MAX_PACKED_BYTES) break;
  }
  return count;
}

/** At most, of count and stride, and of the length of a small chunk. */
const TABLE_START_BYTES = 6;
const LENGTH_BYTES = 2;

const isSameVector = (a: FrameHeader, b: FrameHeader): boolean =>
  a.type === b.type &&
  a.codec === b.codec &&
  a.flags === b.flags &&
  a.attempt === b.attempt &&
  a.term === b.term &&
  a.view === b.view &&
  a.round === b.round &&
  a.nodeLo === b.nodeLo &&
  a.nodeHi === b.nodeHi;

/** One frame of them. The payloads are copied: one write of all costs less than a part of it for each. */
function packed(frames: readonly OutgoingFrame[]): { readonly bytes: Uint8Array; readonly savedBytes: number } {
  const [first, second] = [frames[0]!.header!, frames[1]!.header!];
  const lengths = frames.map(({ payload }) => payload!.length);
  const table = packedTable(second.chunk - first.chunk, lengths);
  const length = lengths.reduce((sum, each) => sum + each, table.length);
  const bytes = Buffer.allocUnsafe(HEADER_BYTES + length);
  bytes.set(table, HEADER_BYTES);
  let at = HEADER_BYTES + table.length;
  for (const { payload } of frames) {
    bytes.set(payload!, at);
    at += payload!.length;
  }
  const payloadChecksum = isChecked(frames[0]!) ? checksumOf(bytes.subarray(HEADER_BYTES)) : 0;
  encodeHeader({ ...first, flags: first.flags | FrameFlag.packed, length, payloadChecksum }, bytes);
  return { bytes, savedBytes: packedSaving(lengths, length) };
}
