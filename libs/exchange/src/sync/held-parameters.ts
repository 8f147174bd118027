/**
 * What workers have of a shard's parameters, where they get differences: of generations k and k+1, chunk by chunk, with what leads from one to the next.
 * It does not depend on who is connected, so all workers have the same, whenever they come.
 */
import { Codec } from '@paceline/protocol';
import type { Region } from '../attempt/regions.js';
import type { Advanced, PublishedChunk } from '../transfer/published.js';

export type Advance = (generation: number, place: number, values: Region, held: Region) => Advanced | undefined;

interface Held {
  readonly held: Region;
  /** From what workers had of the generation before. */
  readonly difference: PublishedChunk | undefined;
}

export class HeldParameters {
  private present: (Held | undefined)[];
  private following: (Held | undefined)[];

  /** @param initial all workers get as they are */
  constructor(
    initial: readonly Region[],
    private readonly advance: Advance,
  ) {
    this.present = initial.map((region) => ({ held: region.retain(), difference: undefined }));
    this.following = initial.map(() => undefined);
  }

  /** Generation k+1 of this chunk is made. */
  setNext(generation: number, place: number, values: Region): void {
    const advanced = this.advance(generation, place, values, this.present[place]!.held);
    this.following[place] = { held: advanced?.held ?? values.retain(), difference: advanced?.difference };
  }

  takeOver(): void {
    for (const chunk of this.present) release(chunk);
    this.present = this.following;
    this.following = this.present.map(() => undefined);
  }

  /** @param hasBase the worker has the generation before */
  published(isNext: boolean, place: number, hasBase: boolean): PublishedChunk | undefined {
    const chunk = (isNext ? this.following : this.present)[place];
    if (!chunk) return undefined;
    return (hasBase ? chunk.difference : undefined) ?? { codec: Codec.none, region: chunk.held, bytes: chunk.held.bytes.length };
  }

  letGo(): void {
    for (const chunk of [...this.present, ...this.following]) release(chunk);
  }
}

function release(chunk: Held | undefined): void {
  chunk?.held.release();
  chunk?.difference?.region.release();
}
