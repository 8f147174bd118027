/** What processes have recorded of a trace, in Redis until whoever asked has read it: the api that reads a report need not be the one that was asked. */
import { Injectable } from '@nestjs/common';
import { traceKey, withDeadline, type TracedProcess } from '@paceline/control-plane';
import { RedisConnections } from '../dispatch/redis-connections.js';

const DEADLINE_MS = 2_000;
const EXPIRES_AFTER_SECONDS = 60;
/** Seats and servers of a large run. */
const MAX_PROCESSES = 1_100;
/** Whose trace it is. */
const RUN_FIELD = 'run';
const PROCESS = 'process ';

@Injectable()
export class TraceKeeper {
  constructor(private readonly redis: RedisConnections) {}

  /** From here on reports of it are kept. @throws RedisUnavailableError */
  async begin(runId: string, traceId: string): Promise<void> {
    const key = traceKey(traceId);
    await withDeadline('begin a trace', DEADLINE_MS, () =>
      this.redis.commands.multi().hset(key, RUN_FIELD, runId).expire(key, EXPIRES_AFTER_SECONDS).exec(),
    );
  }

  /** Nothing that nobody has asked for. @throws RedisUnavailableError */
  async keep(traced: TracedProcess): Promise<void> {
    const { commands } = this.redis;
    const key = traceKey(traced.traceId);
    await withDeadline('keep a trace', DEADLINE_MS, async () => {
      const [runId, fields] = await Promise.all([commands.hget(key, RUN_FIELD), commands.hlen(key)]);
      if (runId === traced.runId && fields <= MAX_PROCESSES) await commands.hset(key, `${PROCESS}${traced.id}`, JSON.stringify(traced));
    });
  }

  /** How many processes have reported. @throws RedisUnavailableError */
  async count(traceId: string): Promise<number> {
    return (await withDeadline('look for a trace', DEADLINE_MS, () => this.redis.commands.hlen(traceKey(traceId)))) - 1;
  }

  /** @throws RedisUnavailableError */
  async read(traceId: string): Promise<TracedProcess[]> {
    const fields = await withDeadline('read a trace', DEADLINE_MS, () => this.redis.commands.hgetall(traceKey(traceId)));
    return Object.entries(fields).flatMap(([name, value]) => (name.startsWith(PROCESS) ? [JSON.parse(value) as TracedProcess] : []));
  }
}
