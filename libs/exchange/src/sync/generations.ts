/**
 * The parameters of a shard in mode sync, chunk by chunk: round k reads generation k and makes k+1, in any order of chunks.
 *
 *   set k+1, chunk by chunk ── isWhole ──> takeOver at COMMIT(k): generation k is let go
 *                                            └─> retained: for a checkpoint, or kept as the best, with which the run may end
 */
import { Codec } from '@paceline/protocol';
import { releaseRegions, type Region } from '../attempt/regions.js';
import type { PublishedChunk } from '../transfer/published.js';
import { HeldParameters, type Advance } from './held-parameters.js';

export class Generations {
  private readonly following: (Region | undefined)[];
  private best: { readonly number: number; readonly regions: readonly Region[] } = { number: -1, regions: [] };
  private made = 0;
  private readonly held: HeldParameters | undefined;
  /** Encoded chunks of generations k and k+1, by their place, as far as somebody was to have them. */
  private encoded: [(PublishedChunk | undefined)[], (PublishedChunk | undefined)[]] = [[], []];

  /** @param current one region for each chunk of the shard, in their order */
  constructor(
    private current: readonly Region[],
    /** The present generation is that of the round with the same number. */
    public number: number,
    /** How workers get them; left out: as they are. */
    private readonly encode?: (generation: number, place: number, values: Region) => PublishedChunk,
    /** In place of that: workers get differences. */
    advance?: Advance,
  ) {
    this.held = advance && new HeldParameters(current, advance);
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

  /** The same as workers get it: encoded, where the run does so. Those have only k and k+1. @param base a generation of it that the worker has */
  published(generation: number, place: number, base?: number): PublishedChunk | undefined {
    const values = this.find(generation, place);
    if (!values) return undefined;
    const isNext = generation === this.number + 1;
    if (this.held) return isNext || generation === this.number ? this.held.published(isNext, place, base === generation - 1) : undefined;
    if (!this.encode) return { codec: Codec.none, region: values, bytes: values.bytes.length };
    const known = generation === this.number ? this.encoded[0] : generation === this.number + 1 ? this.encoded[1] : undefined;
    return known && (known[place] ??= this.encode(generation, place, values));
  }

  setNext(place: number, region: Region): void {
    this.following[place] = region;
    this.made++;
    this.held?.setNext(this.number + 1, place, region);
  }

  takeOver(): void {
    releaseRegions(this.current);
    this.current = this.following.map((region) => region!);
    this.held?.takeOver();
    for (const old of this.encoded[0]) old?.region.release();
    this.encoded = [this.encoded[1], []];
    this.following.fill(undefined);
    this.made = 0;
    this.number++;
  }

  /** The number of the best generation, with which the run may end. */
  get bestNumber(): number {
    return this.best.number;
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
    for (const chunk of this.encoded.flat()) chunk?.region.release();
    this.held?.letGo();
  }
}
