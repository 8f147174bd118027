/** What a hosted run needs of the process around it. */
import type { Connection } from '@paceline/exchange';
import type { PlacementJob, ServerAddress } from '@paceline/jobs';
import type { Logger } from '@paceline/runtime';
import type { Checkpoints } from '@paceline/storage';
import type { Redis } from 'ioredis';

export interface ServerContext {
  readonly serverId: string;
  readonly host: string;
  readonly dataDir: string;
  readonly checkpoints: Checkpoints;
  readonly redis: Redis;
  readonly log: Logger;
  connectTo(address: ServerAddress): Promise<Connection>;
  reportFailed(job: PlacementJob, code: string, message: string): void;
  /** Refused frames and connections of the whole process. */
  refusals(): { frames: number; connections: number };
}
