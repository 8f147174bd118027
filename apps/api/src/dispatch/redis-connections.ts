/** The api's connections to Redis, which may be away at any time: calls fail fast, the connections come back by themselves. */
import { Injectable, type OnApplicationShutdown } from '@nestjs/common';
import { connectRedis } from '@paceline/jobs';
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
