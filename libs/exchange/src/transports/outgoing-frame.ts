/** A frame that waits to leave, and how a control message becomes one. */
import { crc32 } from 'node:zlib';
import {
  encodeHeader,
  encodeMessage,
  FrameFlag,
  FrameType,
  HEADER_BYTES,
  MAX_CONTROL_BYTES,
  type FrameHeader,
  type Message,
} from '@paceline/protocol';
import type { FrameNumbers } from '../connection.js';

export interface OutgoingFrame {
  /** Header, and for control messages the payload too. */
  readonly head: Uint8Array;
  readonly payload: Uint8Array | null;
  /** The header of a chunk with a checksum: it is written to `head`, with the checksum, when the frame is handed to the stream. */
  readonly header?: FrameHeader | undefined;
  /** Means the same whatever was lost before it. */
  readonly standsAlone: boolean;
  readonly bytes: number;
  readonly onFlushed: (() => void) | undefined;
}

/** The last words of a side: why it ends, and nothing that builds on frames before them. */
const STANDS_ALONE: ReadonlySet<Message['type']> = new Set(['end', 'leave', 'failed']);
export const NO_NUMBERS: FrameNumbers = { attempt: 0, term: 0, view: 0, round: 0 };

export function controlFrame(message: Message, numbers: FrameNumbers, checksum: boolean): OutgoingFrame {
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
