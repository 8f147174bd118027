/**
 * Whether Redis can be used: a write every second, because a Redis that is out of memory still answers reads and pings. While it cannot,
 * nobody is heard: what the dispatcher knows of the fleet proves nothing, and runs say that they wait for Redis, with the cause.
 *
 *     a write fails ──> deaf, one line in the log ──> a write works again ──> the dispatcher explains anew
 *          └─ the one api that holds the dispatch lock: runs that are under way say so
 */
import { Inject, Injectable, type OnModuleDestroy } from '@nestjs/common';
import { RedisUnavailableError, withDeadline } from '@paceline/control-plane';
import type { Logger } from '@paceline/runtime';
import { BackgroundDatabase } from '../database/database.js';
import { Fleet } from '../fleet/fleet.js';
import { LOGGER } from '../logger.js';
import { DispatchSignal } from './dispatch-signal.js';
import { RedisConnections, replyCode } from './redis-connections.js';

const LOOK_EVERY_MS = 1_000;
const DEADLINE_MS = 1_500;
const KEY = 'paceline:writable';
const KEPT_MS = 10_000;

/** Codes that Redis answers with, as what it is. */
const CAUSES: Readonly<Record<string, string>> = {
  OOM: 'is out of memory (raise its maxmemory, or free some)',
  MISCONF: 'cannot write to its disk',
  READONLY: 'is a read-only replica',
  LOADING: 'is still loading its data',
  NOAUTH: 'asks for a password',
  WRONGPASS: 'refuses the password of REDIS_URL',
  NOPERM: 'does not let the user of REDIS_URL do what the api has to (docs/compose.md says what that is)',
};

/** What ails it, without addresses; for people. */
export function redisAilment(error: unknown): string {
  const code = replyCode(error) ?? '';
  return (Object.hasOwn(CAUSES, code) ? CAUSES[code] : undefined) ?? 'does not answer';
}

@Injectable()
export class RedisWatch implements OnModuleDestroy {
  private ailment: string | undefined;
  /** As the newest write found it, whoever asked for that. */
  private newest: string | undefined;
  private timer: NodeJS.Timeout | undefined;
  private looking: Promise<void> | undefined;

  constructor(
    private readonly redis: RedisConnections,
    private readonly database: BackgroundDatabase,
    private readonly fleet: Fleet,
    private readonly dispatch: DispatchSignal,
    @Inject(LOGGER) private readonly log: Logger,
  ) {}

  start(): void {
    this.timer = setInterval(() => void (this.looking ??= this.look().finally(() => (this.looking = undefined))), LOOK_EVERY_MS);
  }

  async onModuleDestroy(): Promise<void> {
    clearInterval(this.timer);
    await this.looking;
  }

  /** @throws RedisUnavailableError with what ails it */
  async write(): Promise<void> {
    try {
      await withDeadline('a write', DEADLINE_MS, () => this.redis.commands.set(KEY, '1', 'PX', KEPT_MS));
      this.newest = undefined;
    } catch (cause) {
      this.newest = redisAilment(cause);
      throw new RedisUnavailableError(`it ${this.newest}`, { cause });
    }
  }

  /** Why the newest write failed; undefined when it did not. */
  get why(): string | undefined {
    return this.newest;
  }

  /** As the last look found it; undefined when it can be used. */
  get present(): string | undefined {
    return this.ailment;
  }

  /** @throws RedisUnavailableError when the last look found it unusable */
  requireUsable(): void {
    if (this.ailment) throw new RedisUnavailableError(`it ${this.ailment}`);
  }

  private async look(): Promise<void> {
    const before = this.ailment;
    try {
      await this.write();
      this.ailment = undefined;
      this.fleet.hears();
    } catch (error) {
      this.ailment = redisAilment((error as Error).cause);
      this.fleet.deaf(`waits for Redis, which ${this.ailment}`);
    }
    if (before === this.ailment) return;
    if (this.ailment)
      this.log.warn(`Redis ${this.ailment}: waiting runs wait for it; running ones train on, but their progress does not show`);
    else this.log.info('Redis can be used again');
    this.dispatch.wake();
  }

  /** Runs that are under way say what they wait for. For the api that holds the dispatch lock: what all apis wrote, they would write at once. */
  async explain(ailment: string): Promise<void> {
    const waiting = `waits for Redis, which ${ailment}`;
    const unseen = `${waiting}; training goes on, and its progress shows again when Redis is back`;
    for (const [status, statusReason] of [
      ['QUEUED', waiting],
      ['PROVISIONING', waiting],
      ['RUNNING', unseen],
    ] as const)
      await this.database.run
        .updateMany({ where: { status, cancelRequestedAt: null, NOT: { statusReason } }, data: { statusReason, isWaiting: true } })
        .catch((error: Error) => this.log.debug({ err: error.message }, 'what runs wait for could not be written')); // PostgreSQL is away too
  }
}
