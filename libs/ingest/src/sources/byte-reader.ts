/** Reads so many bytes at a time from a stream of pieces. What a header claims is never allocated before it has arrived: callers bound what they ask for. */
import { IngestError } from '../ingest-error.js';

export class ByteReader {
  private readonly pieces: AsyncIterator<Uint8Array>;
  private waiting: Uint8Array[] = [];
  private waitingBytes = 0;
  position = 0;

  constructor(
    source: AsyncIterable<Uint8Array>,
    private readonly file: string,
  ) {
    this.pieces = source[Symbol.asyncIterator]();
  }

  /** @throws IngestError FORMAT_MALFORMED when the file ends before */
  async read(bytes: number): Promise<Uint8Array> {
    const found = await this.upTo(bytes);
    if (found.length < bytes)
      throw new IngestError('FORMAT_MALFORMED', `The file is cut off after ${this.position} bytes.`, { file: this.file });
    return found;
  }

  /** Fewer bytes only at the end of the file. The result is a copy that begins at an even address. */
  async upTo(bytes: number): Promise<Uint8Array> {
    await this.gather(bytes);
    const found = new Uint8Array(Math.min(bytes, this.waitingBytes));
    for (let at = 0; at < found.length;) {
      const piece = this.waiting[0]!;
      const taken = piece.subarray(0, found.length - at);
      found.set(taken, at);
      at += taken.length;
      if (taken.length === piece.length) this.waiting.shift();
      else this.waiting[0] = piece.subarray(taken.length);
    }
    this.waitingBytes -= found.length;
    this.position += found.length;
    return found;
  }

  private async gather(bytes: number): Promise<void> {
    while (this.waitingBytes < bytes) {
      const next = await this.pieces.next();
      if (next.done) return;
      this.waiting.push(next.value);
      this.waitingBytes += next.value.length;
    }
  }

  async isAtEnd(): Promise<boolean> {
    await this.gather(1);
    return this.waitingBytes === 0;
  }

  async close(): Promise<void> {
    this.waiting = [];
    await this.pieces.return?.();
  }
}
