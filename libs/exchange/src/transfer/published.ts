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

/** How a run publishes its parameters, where it does not as float32. */
export interface ParameterEncoder {
  /** With `codec: auto`: what the coordinator has picked. */
  picked?(change: CodecSwitch): void;
  /** A function of generation, chunk and values alone: a standby, and a server that has restarted, publish the same. The region is the caller's. */
  encode(generation: number, chunk: OwnedChunk, values: Region): PublishedChunk;
}
