/** What processes have recorded of a trace, in Redis until whoever asked has read it: the api that reads a report need not be the one that was asked. */
import { Injectable } from '@nestjs/common';
import { traceKey, tracedRunKey, withDeadline, type TracedProcess } from '@paceline/control-plane';
import { RedisConnections } from '../dispatch/redis-connections.js';

const DEADLINE_MS = 2_000;
const EXPIRES_AFTER_SECONDS = 60;
/** All reports of a trace together, as JSON: merging takes some ten times as much of the api's memory. */
export const MAX_TRACE_BYTES = 16 * 1024 * 1024;
/** This field names the run that is traced. */
const RUN_FIELD = 'run';
/** This field counts the bytes of all reports that came, also of those that were left out. */
const BYTES_FIELD = 'bytes';
const PROCESS = 'process ';
const LEFT_OUT = 'left out ';

export interface KeptTrace {
  readonly processes: readonly TracedProcess[];
  /** How many more have reported, beyond `MAX_TRACE_BYTES`. */
  readonly leftOut: number;
}

@Injectable()
export class TraceKeeper {
  constructor(private readonly redis: RedisConnections) {}

  /** From here on reports of it are kept. @returns false when the run is traced already @throws RedisUnavailableError */
  async begin(runId: string, traceId: string): Promise<boolean> {
    const { commands } = this.redis;
    const key = traceKey(traceId);
    return withDeadline('begin a trace', DEADLINE_MS, async () => {
      if ((await commands.set(tracedRunKey(runId), traceId, 'EX', EXPIRES_AFTER_SECONDS, 'NX')) === null) return false;
      await commands.multi().hset(key, RUN_FIELD, runId).expire(key, EXPIRES_AFTER_SECONDS).exec();
      return true;
    });
  }

  /** Another trace of the run may begin. @throws RedisUnavailableError */
  async end(runId: string, traceId: string): Promise<void> {
    const { commands } = this.redis;
    await withDeadline('end a trace', DEADLINE_MS, async () => {
      const isMine = (await commands.get(tracedRunKey(runId))) === traceId;
      await commands.del(traceKey(traceId), ...(isMine ? [tracedRunKey(runId)] : []));
    });
  }

  /** Nothing that nobody has asked for, and nothing beyond `MAX_TRACE_BYTES`. @throws RedisUnavailableError */
  async keep(traced: TracedProcess): Promise<void> {
    const { commands } = this.redis;
    const key = traceKey(traced.traceId);
    const field = `${PROCESS}${traced.id}`;
    await withDeadline('keep a trace', DEADLINE_MS, async () => {
      const [runId, isKept] = await Promise.all([commands.hget(key, RUN_FIELD), commands.hexists(key, field)]);
      if (runId !== traced.runId || isKept === 1) return;
      const text = JSON.stringify(traced);
      // The key may have gone meanwhile: whatever makes it again says when it goes.
      const counted = await commands.multi().hincrby(key, BYTES_FIELD, Buffer.byteLength(text)).expire(key, EXPIRES_AFTER_SECONDS).exec();
      const bytes = counted?.[0]?.[1] as number;
      const change = commands.multi();
      if (bytes <= MAX_TRACE_BYTES) change.hset(key, field, text);
      else change.hset(key, `${LEFT_OUT}${traced.id}`, '');
      await change.expire(key, EXPIRES_AFTER_SECONDS).exec();
    });
  }

  /** How much has been reported; it grows with every process. bytes @throws RedisUnavailableError */
  async reportedBytes(traceId: string): Promise<number> {
    return Number(await withDeadline('look for a trace', DEADLINE_MS, () => this.redis.commands.hget(traceKey(traceId), BYTES_FIELD)));
  }

  /** @throws RedisUnavailableError */
  async read(traceId: string): Promise<KeptTrace> {
    const fields = await withDeadline('read a trace', DEADLINE_MS, () => this.redis.commands.hgetall(traceKey(traceId)));
    const processes = Object.entries(fields).flatMap(([name, text]) =>
      name.startsWith(PROCESS) ? [JSON.parse(text) as TracedProcess] : [],
    );
    return { processes, leftOut: Object.keys(fields).filter((name) => name.startsWith(LEFT_OUT)).length };
  }
}
