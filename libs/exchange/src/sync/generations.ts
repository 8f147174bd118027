/**
 * The parameters of a shard in mode sync, chunk by chunk: round k reads generation k and makes k+1, in any order of chunks.
 *
 *   set k+1, chunk by chunk ── isWhole ──> takeOver at COMMIT(k): generation k is let go
 *                                            └─> retained: for a checkpoint, or kept as the best, with which the run may end
 */
import { releaseRegions, type Region } from '../attempt/regions.js';

export class Generations {
  private readonly following: (Region | undefined)[];
  private best: { readonly number: number; readonly regions: readonly Region[] } = { number: -1, regions: [] };
  private made = 0;

  /** @param current one region for each chunk of the shard, in their order */
  constructor(
    private current: readonly Region[],
    /** The present generation is that of the round with the same number. */
    public number: number,
  ) {
    this.following = current.map(() => undefined);
  }

  /** All chunks of generation k+1 are made. */
  get isWhole(): boolean {
    return this.made === this.following.length;
  }

  /** @param place of the chunk among those of the shard */
  present(place: number): Region {
    return this.current[place]!;
  }

  /** The region of generation k+1, if it is made. */
  next(place: number): Region | undefined {
    return this.following[place];
  }

  /** A chunk of k, k+1 or the best generation, where it is there. */
  find(generation: number, place: number): Region | undefined {
    if (generation === this.number) return this.current[place];
    return generation === this.number + 1 ? this.following[place] : generation === this.best.number ? this.best.regions[place] : undefined;
  }

  setNext(place: number, region: Region): void {
    this.following[place] = region;
    this.made++;
  }

  takeOver(): void {
    releaseRegions(this.current);
    this.current = this.following.map((region) => region!);
    this.following.fill(undefined);
    this.made = 0;
    this.number++;
  }

  /** All chunks of the present generation, retained for the caller. */
  retained(): Region[] {
    return this.current.map((region) => region.retain());
  }

  /** In place of the best before. */
  keepAsBest(): void {
    releaseRegions(this.best.regions);
    this.best = { number: this.number, regions: this.retained() };
  }

  letGo(): void {
    for (const region of [...this.best.regions, ...this.following, ...this.current]) region?.release();
  }
}
