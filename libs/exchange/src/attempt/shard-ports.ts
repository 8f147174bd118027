/** Whom a shard speaks to on its server, besides workers and its standby. */
import type { Message } from '@paceline/protocol';
import type { GatheredResiduals } from '../transfer/residuals.js';
import type { Region } from './regions.js';

/** The coordinator, as a shard speaks to it: ShardPlace on a server. */
export interface CoordinatorPort {
  tell(message: Message): void;
}

/** The server that holds a shard. */
export interface ShardHost {
  /**
   * A checkpoint takes generation `generation`: one region per owned chunk, in their order, retained for whoever writes them. The slots
   * are still those of that generation, and stay it until the next update of their chunk.
   * @param residuals what the codec has kept of replicas, where checkpoints have it
   */
  checkpointWanted(generation: number, regions: readonly Region[], residuals?: GatheredResiduals): void;
  /** What validations have decided with a COMMIT: it holds for the updates of later rounds. */
  courseDecided(course: string): void;
  /** A refused or dropped frame, for the counters. */
  frameDropped(reason: string): void;
}
