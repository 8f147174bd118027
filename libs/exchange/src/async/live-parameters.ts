/**
 * The parameters of a shard in modes async and ssp: one generation, to which updates are applied one after the other, chunk by chunk.
 *
 * A chunk that a socket still reads, or that was kept for the delay compensation, is not written: the update then goes to a new region.
 */
import { acquireRegion, releaseRegions, type Region } from '../attempt/regions.js';
import type { OwnedChunk } from '../transfer/chunks.js';

export class LiveParameters {
  private readonly regions: Region[];

  /** @param initial one region for each chunk, in their order */
  constructor(
    private readonly chunks: readonly OwnedChunk[],
    initial: readonly Region[],
  ) {
    this.regions = [...initial];
  }

  /** The chunk as it is now, retained for the caller. @param place of the chunk among those of the shard */
  retain(place: number): Region {
    return this.regions[place]!.retain();
  }

  retained(): Region[] {
    return this.regions.map((region) => region.retain());
  }

  /** @param apply may have the same region to read and to write */
  *update(apply: (chunk: OwnedChunk, place: number, from: Region, to: Region) => void): Generator<void> {
    for (const [place, chunk] of this.chunks.entries()) {
      if (place > 0) yield;
      const from = this.regions[place]!;
      const to = from.isShared ? acquireRegion(chunk.arena, chunk.length) : from;
      apply(chunk, place, from, to);
      if (to !== from) from.release();
      this.regions[place] = to;
    }
  }

  letGo(): void {
    releaseRegions(this.regions);
  }
}
