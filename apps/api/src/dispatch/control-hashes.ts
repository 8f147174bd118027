/**
 * The control hash of a run: what the api wants its coordinator to know. It holds nothing that PostgreSQL does not hold too, so after a
 * flush it is simply written again.
 */
import { Injectable } from '@nestjs/common';
import { controlKey, withDeadline, type ControlFields } from '@paceline/control-plane';
import { RedisConnections } from './redis-connections.js';

const DEADLINE_MS = 2_000;
const EXPIRES_AFTER_SECONDS = 7 * 86_400;

@Injectable()
export class ControlHashes {
  constructor(private readonly redis: RedisConnections) {}

  /** @throws RedisUnavailableError */
  async read(runIds: readonly string[]): Promise<Map<string, ControlFields>> {
    if (runIds.length === 0) return new Map();
    const replies = await withDeadline('control of runs', DEADLINE_MS, async () => {
      const pipeline = this.redis.commands.pipeline();
      for (const runId of runIds) pipeline.hgetall(controlKey(runId));
      return pipeline.exec();
    });
    return new Map(runIds.map((runId, i) => [runId, (replies?.[i]?.[1] ?? {}) as ControlFields]));
  }

  /** @throws RedisUnavailableError */
  async write(runId: string, fields: ControlFields): Promise<void> {
    await withDeadline('control of a run', DEADLINE_MS, async () => {
      const replies = await this.redis.commands
        .multi()
        .hset(controlKey(runId), fields)
        .expire(controlKey(runId), EXPIRES_AFTER_SECONDS)
        .exec();
      const failed = replies?.find(([error]) => error)?.[0];
      if (failed) throw failed;
    });
  }
}
