/** Bytes on their way from a store into an archive: one stream that is cut into files, never held whole. */
import { createHash } from 'node:crypto';

export type Bytes = AsyncIterable<Uint8Array>;

/** Cuts a stream into parts of given lengths, which are taken one after the other. Whoever made it ends it: a stream that is not read to its end keeps its file open. */
export class StreamCutter {
  private readonly source: AsyncIterator<Uint8Array>;
  private rest: Uint8Array = new Uint8Array(0);

  constructor(source: Bytes) {
    this.source = source[Symbol.asyncIterator]();
  }

  /** The next bytes. @throws RangeError when the stream ends before */
  async *take(length: number): AsyncGenerator<Uint8Array, void, void> {
    let left = length;
    while (left > 0) {
      if (this.rest.length === 0) {
        const { done, value } = await this.source.next();
        if (done) throw new RangeError(`the weights end ${left} bytes too early`);
        this.rest = value;
        continue;
      }
      const piece = this.rest.subarray(0, left);
      this.rest = this.rest.subarray(piece.length);
      left -= piece.length;
      yield piece;
    }
  }

  /** Nothing more is taken, also where not all of it was: the source lets go of what it has open. */
  async end(): Promise<void> {
    this.rest = new Uint8Array(0);
    await this.source.return?.();
  }

  /** The next bytes in one piece, at the beginning of a buffer of its own. */
  async whole(length: number): Promise<Uint8Array> {
    const bytes = new Uint8Array(length);
    let at = 0;
    for await (const piece of this.take(length)) {
      bytes.set(piece, at);
      at += piece.length;
    }
    return bytes;
  }
}

/** Passes a stream on and hashes it. */
export function hashing(source: Bytes): { readonly stream: Bytes; hex(): string } {
  const hash = createHash('sha256');
  async function* passed(): AsyncGenerator<Uint8Array, void, void> {
    for await (const piece of source) {
      hash.update(piece);
      yield piece;
    }
  }
  return { stream: passed(), hex: () => hash.digest('hex') };
}

export async function* textOf(text: string): AsyncGenerator<Uint8Array, void, void> {
  yield await Promise.resolve(Buffer.from(text, 'utf8'));
}

export const jsonOf = (value: unknown): Bytes => textOf(`${JSON.stringify(value, null, 2)}\n`);
