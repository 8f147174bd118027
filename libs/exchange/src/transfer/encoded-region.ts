/**
 * A gradient that waits as it came, so that it takes no more memory than its payload. Nobody decodes it alone as long as another one may come to which it
 * is added:
 *
 *   encoded + encoded    the left one is decoded, the right one decoded and added
 *   encoded + float32    it is decoded and added to the other one, whose memory the sum has then: a float32 addition is the same both ways
 *   alone to the end     it is decoded: `decoded`
 */
import { ProtocolError, type FrameHeader } from '@paceline/protocol';
import { acquireRegion, Region } from '../attempt/regions.js';

/** How a chunk waits as it came, and is added to another one. */
export interface WaitingChunks {
  /** Whether somebody encodes so, as `decode` says. Nothing is decoded. @param length float32 elements of the chunk */
  takes(header: FrameHeader, payload: Region, length: number): boolean;
  /** Adds to a region what `decode` writes, of a payload that was taken. */
  add(header: FrameHeader, payload: Region, sum: Region): void;
}

/** What a payload is of, and who decodes it. */
interface Encoding {
  readonly header: FrameHeader;
  /** Float32 elements of the chunk. */
  readonly length: number;
  readonly decoder: { decode(header: FrameHeader, payload: Region, region: Region): boolean };
  readonly waiting: WaitingChunks;
}

export class EncodedRegion extends Region {
  private constructor(
    payload: Region,
    private encoding: Encoding | undefined,
  ) {
    super(payload.arena, payload.pointer, payload.length);
  }

  /**
   * Takes over the region that the payload has come into.
   * @throws ProtocolError BAD_PAYLOAD; the region is released then
   */
  static of(payload: Region, encoding: Encoding): EncodedRegion {
    const { header, length, waiting } = encoding;
    if (waiting.takes(header, payload, length)) return new EncodedRegion(payload, encoding);
    payload.release();
    throw new ProtocolError('BAD_PAYLOAD', `chunk ${header.chunk} in codec ${header.codec}`);
  }

  override decoded(): this {
    const { encoding } = this;
    if (!encoding) return this;
    const whole = acquireRegion(this.arena, encoding.length);
    // It was taken when it came.
    if (!encoding.decoder.decode(encoding.header, this, whole)) throw new Error(`chunk ${encoding.header.chunk} is not what was taken`);
    this.exchange(whole);
    whole.release();
    this.encoding = undefined;
    return this;
  }

  override add(from: Region): void {
    if (!this.encoding || (from instanceof EncodedRegion && from.encoding)) {
      this.decoded();
      return super.add(from);
    }
    from.add(this);
    this.exchange(from);
    this.encoding = undefined;
  }

  protected override addTo(sum: Region): boolean | undefined {
    if (!this.encoding) return super.addTo(sum);
    this.encoding.waiting.add(this.encoding.header, this, sum);
    return undefined;
  }
}
