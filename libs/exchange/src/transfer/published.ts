/** A chunk of parameters as it is sent to workers: encoded once for each generation, so that all of them decode the same bytes. */
import type { CodecSwitch } from '@paceline/protocol';
import type { Region } from '../attempt/regions.js';
import type { OwnedChunk } from './chunks.js';

export interface PublishedChunk {
  /** In the header of a frame. */
  readonly codec: number;
  /** The first `bytes` bytes of it. */
  readonly region: Region;
  readonly bytes: number;
}

/** A difference, and what workers have then. Both regions are the caller's. */
export interface Advanced {
  readonly difference: PublishedChunk;
  readonly held: Region;
}

/** How a run publishes its parameters, where it does not as float32. */
export interface ParameterEncoder {
  /** With `codec: auto`: what the coordinator has picked. */
  picked?(change: CodecSwitch): void;
  /** A function of generation, chunk and values alone: a standby, and a server that has restarted, publish the same. The region is the caller's. */
  encode?(generation: number, chunk: OwnedChunk, values: Region): PublishedChunk;
  /**
   * In place of `encode`, where workers get differences to the generation before.
   * @param held what workers have of it. @returns what leads from there to what they have next; undefined: that are the values
   */
  advance?(generation: number, chunk: OwnedChunk, values: Region, held: Region): Advanced | undefined;
}
