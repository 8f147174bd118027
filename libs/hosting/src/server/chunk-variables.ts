/** The variables as they lie in the chunks of a shard, and how the frozen ones keep their bits. */
import type { OwnedChunk, Region } from '@paceline/exchange';
import { ChunkPieces } from '@paceline/learning';

export class ChunkVariables extends ChunkPieces {
  /** Copied bit by bit, whatever the update has made of them. Those of a gradient of zeros come out the same; moving averages do not. */
  keepFrozen(chunk: OwnedChunk, paramIn: Region, paramOut: Region): void {
    for (const { from, to } of this.frozenIn(chunk))
      chunk.arena.kernels.copy(paramOut.pointer + from * 4, paramIn.pointer + from * 4, to - from);
  }

  /**
   * An update in place has nothing to copy from afterwards. Without a gradient alone they would move with the slots of a checkpoint whose run has
   * trained them.
   */
  frozenValues(chunk: OwnedChunk, { bytes }: Region): { from: number; bytes: Uint8Array }[] {
    return this.frozenIn(chunk).map(({ from, to }) => ({ from, bytes: bytes.slice(from * 4, to * 4) }));
  }

  /** What is not trained has no gradient, so that its slots take up nothing. */
  silenceFrozen(chunk: OwnedChunk, gradient: Region): void {
    for (const { from, to } of this.frozenIn(chunk)) chunk.arena.kernels.fill(gradient.pointer + from * 4, to - from, 0);
  }
}
