/** One connection to a shard, and what is on its way over it. */
import type { FrameHeader } from '@paceline/protocol';
import type { Connection } from '../connection.js';
import type { Region } from './regions.js';

interface HeldFrame {
  readonly header: FrameHeader;
  readonly region: Region;
}

/** One connection of a worker (or of the coordinator collecting weights) to this shard. */
export class ShardLink {
  /** By round, chunk and node: what is sent again replaces what was sent. */
  readonly held = new Map<string, HeldFrame>();
  /** Region of the data frame whose payload is being received; undefined when it is received into scratch. */
  receiving: Region | undefined;
  constructor(
    readonly id: string,
    readonly connection: Connection,
    /** Collectors only pull; they are sent no streams. */
    readonly streams: boolean,
  ) {}
}
