/** The parameters of one generation of a shard that outlive their round: the best that was validated, with which the run may end. */
import { releaseRegions, type Region } from '../attempt/regions.js';

export class KeptGeneration {
  private generation: number | undefined;
  private regions: readonly Region[] = [];

  /** In place of what was kept before. @param regions one for each owned chunk, in their order, retained for this */
  keep(generation: number, regions: readonly Region[]): void {
    this.letGo();
    this.generation = generation;
    this.regions = regions;
  }

  /** @param place of the chunk among those that are owned */
  regionOf(generation: number, place: number): Region | undefined {
    return generation === this.generation ? this.regions[place] : undefined;
  }

  letGo(): void {
    releaseRegions(this.regions);
    this.generation = undefined;
    this.regions = [];
  }
}
