/**
 * Redis as the data-plane processes see it: a carrier that may be away. No command waits longer than its deadline, nothing
 * is queued while the connection is down, and every caller is told which of the two it was.
 */
import { Redis } from 'ioredis';

export class RedisUnavailableError extends Error {
  override readonly name = 'RedisUnavailableError';
  constructor(
    readonly what: string,
    options?: ErrorOptions,
  ) {
    super(`Redis did not answer: ${what}`, options);
  }
}

/** A connection that fails fast and reconnects for ever in the background (every 2 s at most). */
export function connectRedis(url: string, name: string): Redis {
  const redis = new Redis(url, {
    connectionName: name,
    enableOfflineQueue: false,
    maxRetriesPerRequest: 0,
    connectTimeout: 2_000,
    retryStrategy: (attempt) => Math.min(50 * 2 ** Math.min(attempt, 6), 2_000),
  });
  // Each failed command carries the reason; the event by itself would end the process.
  redis.on('error', () => undefined);
  return redis;
}

/** Runs a Redis call with a deadline. @throws RedisUnavailableError */
export async function withDeadline<T>(what: string, deadlineMs: number, call: () => Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new RedisUnavailableError(`${what} took longer than ${deadlineMs} ms`)), deadlineMs);
  });
  try {
    return await Promise.race([call(), late]);
  } catch (cause) {
    if (cause instanceof RedisUnavailableError) throw cause;
    throw new RedisUnavailableError(`${what}: ${(cause as Error).message}`, { cause });
  } finally {
    clearTimeout(timer);
  }
}
