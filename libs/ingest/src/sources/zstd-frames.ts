/**
 * Follows the frames and blocks of a zstd stream (RFC 8878, 3.1) without unpacking it. A frame says in its header how large the window is that is
 * allocated for it; every frame may say another size, so each header is held against the bound before the unpacker sees it.
 */
export const WINDOW_MAX_BYTES = 128 << 20;

const MAGIC = 0xfd2fb528;
const SKIPPABLE_MAGIC = 0x184d2a50;
const BLOCK_HEADER_BYTES = 3;
const CHECKSUM_BYTES = 4;
const RUN_LENGTH_BLOCK = 1;
const DICTIONARY_BYTES = [0, 1, 2, 4] as const;

export class ZstdFrames {
  private readonly head = new Uint8Array(18);
  private filled = 0;
  private skip = 0;
  private isInFrame = false;
  private hasChecksum = false;
  /** No frame begins here: the unpacker reports it. */
  private isOver = false;

  /** @throws Error for a window that is too large */
  push(bytes: Uint8Array): void {
    for (let at = 0; at < bytes.length && !this.isOver;) {
      if (this.skip > 0) {
        const skipped = Math.min(this.skip, bytes.length - at);
        this.skip -= skipped;
        at += skipped;
        continue;
      }
      this.head[this.filled++] = bytes[at++]!;
      if (this.filled < this.wanted()) continue;
      this.filled = 0;
      if (this.isInFrame) this.block();
      else this.frame();
    }
  }

  /** @throws Error when the stream ends within a header or a block */
  end(): void {
    if (!this.isOver && (this.filled > 0 || this.skip > 0 || this.isInFrame)) throw new Error('the file is cut off');
  }

  /** Bytes of the header that is being read, as far as its first bytes say. */
  private wanted(): number {
    const { head, filled } = this;
    if (this.isInFrame) return BLOCK_HEADER_BYTES;
    if (filled < 4) return 4;
    if (this.isSkippable) return 8;
    if (this.magic !== MAGIC) return 4;
    return filled < 5 ? 5 : 5 + headerBytes(head[4]!);
  }

  private get magic(): number {
    return new DataView(this.head.buffer).getUint32(0, true);
  }

  private get isSkippable(): boolean {
    return (this.magic & 0xfffffff0) === SKIPPABLE_MAGIC;
  }

  private frame(): void {
    const { head } = this;
    if (this.isSkippable) {
      this.skip = new DataView(head.buffer).getUint32(4, true);
      return;
    }
    if (this.magic !== MAGIC) {
      this.isOver = true;
      return;
    }
    if (windowBytes(head) > WINDOW_MAX_BYTES) throw new Error(`its window is larger than ${WINDOW_MAX_BYTES} bytes`);
    this.hasChecksum = (head[4]! & 4) !== 0;
    this.isInFrame = true;
  }

  private block(): void {
    const header = this.head[0]! | (this.head[1]! << 8) | (this.head[2]! << 16);
    const size = header >> 3;
    this.skip = ((header >> 1) & 3) === RUN_LENGTH_BLOCK ? 1 : size;
    if ((header & 1) === 0) return;
    this.isInFrame = false;
    if (this.hasChecksum) this.skip += CHECKSUM_BYTES;
  }
}

const isSingleSegment = (descriptor: number): boolean => (descriptor & 0x20) !== 0;
const sizeBytes = (descriptor: number): number => [isSingleSegment(descriptor) ? 1 : 0, 2, 4, 8][descriptor >> 6]!;

/** After the descriptor: the window, unless the content is one segment; the id of a dictionary; the size of the content. */
const headerBytes = (descriptor: number): number =>
  (isSingleSegment(descriptor) ? 0 : 1) + DICTIONARY_BYTES[(descriptor & 3) as 0] + sizeBytes(descriptor);

function windowBytes(head: Uint8Array): number {
  const descriptor = head[4]!;
  if (!isSingleSegment(descriptor)) {
    const window = head[5]!;
    const base = 2 ** (10 + (window >> 3));
    return base + (base / 8) * (window & 7);
  }
  const bytes = sizeBytes(descriptor);
  const at = 5 + DICTIONARY_BYTES[(descriptor & 3) as 0];
  let size = bytes === 2 ? 256 : 0;
  for (let i = 0; i < bytes; i++) size += head[at + i]! * 2 ** (8 * i);
  return size;
}
