/**
 * Turns a byte stream into frames without copying payloads: the caller asks `destination()` where the next bytes go,
 * puts up to that many there (a read of the operating system, or a copy), and says `filled(n)`.
 *
 *   HEADER   bytes go to a small scratch; once 44 have come, the header is checked and the sink gives the payload's region
 *   PAYLOAD  bytes go straight into the region; when it is full, checksum, sink, back to HEADER
 *   STOPPED  bytes go to the scratch and are forgotten
 *
 * A frame of several chunks comes into bytes of its own, at most 64 KiB, and is handed over chunk by chunk as if each had come alone.
 *
 * The scratch is a little longer than a header so that control messages and headers come in one read; what it holds of a
 * data payload (at most 4 KiB of about 1 MiB) is copied over.
 */
import { crc32 } from 'node:zlib';
import { checksumOf, ChecksumStream, isSummedInPlace } from '@paceline/kernels';
import {
  decodeHeader,
  decodeMessage,
  FrameFlag,
  FrameType,
  HEADER_BYTES,
  isPacked,
  packedSaving,
  ProtocolError,
  unpack,
  type FrameHeader,
  type Message,
} from '@paceline/protocol';
import { MAX_HELLO_BYTES } from './limits.js';

/** The receiver of the frames. Each method may throw ProtocolError to refuse a frame. */
export interface FrameSink {
  payloadFor(header: FrameHeader): Uint8Array;
  data(header: FrameHeader, payload: Uint8Array): void;
  message(message: Message, header: FrameHeader): void;
  /** One of its chunks is as payloadFor takes it. All are asked about before the first is handed over. */
  check?(header: FrameHeader): void;
  /** A whole frame has come. @param savedBytes by which it is shorter than frames of its chunks */
  arrived?(savedBytes: number): void;
}

const SCRATCH_BYTES = HEADER_BYTES + 4096;
/** The first bytes of a peer that speaks TLS. */
const [TLS_HANDSHAKE, TLS_MAJOR] = [0x16, 0x03];
const SPEAKS_TLS = 'the peer speaks TLS, and this side does not; start this side with --tls too, or the peer without';

const isChecked = ({ flags }: FrameHeader): boolean => (flags & FrameFlag.payloadChecksum) !== 0;

export class FrameReader {
  private readonly scratch = new Uint8Array(SCRATCH_BYTES);
  private scratchBytes = 0;
  private header: FrameHeader | null = null;
  private payload: Uint8Array = this.scratch;
  private payloadBytes = 0;
  /** Checksum of a chunk outside an arena, which is summed read by read. A chunk in an arena is summed in place, when it is complete. */
  private sum: ChecksumStream | undefined;
  private stopped = false;
  /** Bytes of data payloads that have come. */
  dataBytes = 0;

  /** @param helloFirst refuse everything until a control message `hello` has come. */
  constructor(
    private readonly sink: FrameSink,
    private helloFirst: boolean,
  ) {}

  /** Where the next bytes go; never empty. */
  destination(): Uint8Array {
    if (this.stopped) return this.scratch;
    return this.header ? this.payload.subarray(this.payloadBytes) : this.scratch.subarray(this.scratchBytes);
  }

  /**
   * `count` bytes have been put at the start of the last destination.
   * @throws ProtocolError the stream can not go on: BAD_FRAME, PROTOCOL_VERSION, BAD_CHECKSUM, BAD_MESSAGE, HELLO_EXPECTED, or what the sink refused with
   */
  filled(count: number): void {
    if (this.stopped) return;
    if (this.header) return this.grow(this.header, count);
    this.scratchBytes += count;
    this.parseScratch();
  }

  /** Takes bytes that lie elsewhere, with a copy. @throws ProtocolError as `filled` */
  feed(bytes: Uint8Array): void {
    let position = 0;
    while (position < bytes.length && !this.stopped) {
      const target = this.destination();
      const count = Math.min(target.length, bytes.length - position);
      target.set(bytes.subarray(position, position + count));
      this.filled(count);
      position += count;
    }
  }

  /** Ends the parsing for good; returns the data frame that never became whole. */
  stop(): { header: FrameHeader; payload: Uint8Array } | undefined {
    const { header, payload } = this;
    this.stopped = true;
    this.header = null;
    this.payload = this.scratch;
    // What several chunks come into is the reader's own.
    return header && header.type !== FrameType.control && !isPacked(header) ? { header, payload } : undefined;
  }

  private parseScratch(): void {
    let position = 0;
    if (this.helloFirst && this.scratchBytes >= HEADER_BYTES && this.scratch[0] === TLS_HANDSHAKE && this.scratch[1] === TLS_MAJOR)
      throw new ProtocolError('TLS_UNEXPECTED', SPEAKS_TLS);
    while (!this.stopped && this.scratchBytes - position >= HEADER_BYTES) {
      const header = decodeHeader(this.scratch, position);
      position += HEADER_BYTES;
      const payload = this.regionFor(header);
      if (this.stopped) return;
      const count = Math.min(header.length, this.scratchBytes - position);
      if (count > 0) payload.set(this.scratch.subarray(position, position + count));
      position += count;
      this.header = header;
      this.payload = payload;
      this.payloadBytes = 0;
      const isStreamed = isChecked(header) && header.type !== FrameType.control && !isSummedInPlace(payload);
      this.sum = isStreamed ? new ChecksumStream() : undefined;
      this.grow(header, count);
      if (this.header) break;
    }
    if (this.stopped) return;
    this.scratch.copyWithin(0, position, this.scratchBytes);
    this.scratchBytes -= position;
  }

  /** `count` more bytes of the payload have come. */
  private grow(header: FrameHeader, count: number): void {
    const from = this.payloadBytes;
    this.payloadBytes += count;
    if (header.type !== FrameType.control) this.dataBytes += count;
    this.sum?.add(this.payload.subarray(from, this.payloadBytes));
    if (this.payloadBytes < header.length) return;
    if (isChecked(header) && this.checksum(header) !== header.payloadChecksum) throw new ProtocolError('BAD_CHECKSUM');
    this.finish(header);
  }

  private checksum({ type }: FrameHeader): number {
    if (type === FrameType.control) return crc32(this.payload);
    return this.sum?.digest() ?? checksumOf(this.payload);
  }

  private regionFor(header: FrameHeader): Uint8Array {
    if (this.helloFirst && (header.type !== FrameType.control || header.length > MAX_HELLO_BYTES))
      throw new ProtocolError('HELLO_EXPECTED');
    if (header.type === FrameType.control) return new Uint8Array(header.length);
    return isPacked(header) ? new Uint8Array(header.length) : this.regionOfChunk(header);
  }

  private regionOfChunk(header: FrameHeader): Uint8Array {
    const payload = this.sink.payloadFor(header);
    if (payload.length !== header.length) {
      throw new Error(`payloadFor gave ${payload.length} bytes for a frame of ${header.length}`);
    }
    return payload;
  }

  private finish(header: FrameHeader): void {
    const { payload } = this;
    this.header = null;
    this.payload = this.scratch;
    if (isPacked(header)) return this.handOver(header, payload);
    this.sink.arrived?.(0);
    if (header.type !== FrameType.control) return this.sink.data(header, payload);
    const message = decodeMessage(payload);
    if (this.helloFirst) {
      // A dialling side that refuses our certificate says so instead.
      if (message.type !== 'hello' && message.type !== 'refused') throw new ProtocolError('HELLO_EXPECTED');
      this.helloFirst = false;
    }
    this.sink.message(message, header);
  }

  /** The chunks of a packed frame, one after the other. */
  private handOver(header: FrameHeader, payload: Uint8Array): void {
    const chunks = unpack(header, payload);
    const lengths = chunks.map((chunk) => chunk.payload.length);
    this.sink.arrived?.(packedSaving(lengths, payload.length));
    for (const chunk of chunks) this.sink.check?.(chunk.header);
    for (const chunk of chunks) {
      if (this.stopped) return;
      const region = this.regionOfChunk(chunk.header);
      region.set(chunk.payload);
      this.sink.data(chunk.header, region);
    }
  }
}
