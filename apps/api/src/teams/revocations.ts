/**
 * Tells every api, through Redis, that a key was revoked, so that what it opened is closed at once. While Redis is away only the api that
 * revoked it hears; the others find out when they next check the keys of their connections (graphql/subscription-server.ts).
 */
import { Inject, Injectable, type OnApplicationShutdown } from '@nestjs/common';
import { connectRedis } from '@paceline/control-plane';
import type { Logger } from '@paceline/runtime';
import type { Redis } from 'ioredis';
import { RedisConnections } from '../dispatch/redis-connections.js';
import { Settings } from '../environment.js';
import { LOGGER } from '../logger.js';

const CHANNEL = 'paceline:revoked-keys';

@Injectable()
export class Revocations implements OnApplicationShutdown {
  private readonly subscriber: Redis;
  private readonly listeners = new Set<(apiKeyId: string) => void>();

  constructor(
    settings: Settings,
    private readonly redis: RedisConnections,
    @Inject(LOGGER) private readonly log: Logger,
  ) {
    this.subscriber = connectRedis(settings.redisUrl, 'paceline-api-revocations');
    this.subscriber.on('ready', () => {
      this.subscriber.subscribe(CHANNEL).catch((err: Error) => log.warn({ err: err.message }, 'this api learns late of revoked keys'));
    });
    this.subscriber.on('message', (_channel: string, apiKeyId: string) => this.tell(apiKeyId));
  }

  listen(listener: (apiKeyId: string) => void): void {
    this.listeners.add(listener);
  }

  revoked(apiKeyId: string): void {
    this.tell(apiKeyId);
    this.redis.commands
      .publish(CHANNEL, apiKeyId)
      .catch((err: Error) => this.log.warn({ err: err.message }, 'other apis learn late of a revoked key'));
  }

  onApplicationShutdown(): void {
    this.subscriber.disconnect();
  }

  private tell(apiKeyId: string): void {
    for (const listener of this.listeners) listener(apiKeyId);
  }
}
