/** The api's connections to Redis, which may be away at any time: calls fail fast, the connections come back by themselves. */
import { Injectable, type OnApplicationShutdown } from '@nestjs/common';
import { connectRedis, RedisUnavailableError } from '@paceline/control-plane';
import type { Redis } from 'ioredis';
import { Settings } from '../environment.js';

@Injectable()
export class RedisConnections implements OnApplicationShutdown {
  /** For short commands. */
  readonly commands: Redis;
  /** For blocking reads of the report stream: nothing else may wait behind them. */
  readonly reader: Redis;

  constructor(settings: Settings) {
    this.commands = connectRedis(settings.redisUrl, 'paceline-api');
    this.reader = connectRedis(settings.redisUrl, 'paceline-api-reports');
  }

  onApplicationShutdown(): void {
    this.commands.disconnect();
    this.reader.disconnect();
  }
}

/** The code of an error that Redis answered with (the cause of ours): by its protocol the first word of the text, and nowhere else. */
export function replyCode(error: unknown): string | undefined {
  const answer = error instanceof RedisUnavailableError ? error.cause : error;
  return answer instanceof Error ? answer.message.split(' ', 1)[0] : undefined;
}
