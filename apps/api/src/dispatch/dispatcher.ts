/** The DispatchLoop of libs/control-plane with real timers, the outbox, the reconciler, and the lock that one of several apis holds. */
import { Inject, Injectable, type OnModuleDestroy } from '@nestjs/common';
import type { Logger } from '@paceline/runtime';
import { DispatchLock, DispatchLockLostError, DispatchLoop, RedisUnavailableError, wakefulClock } from '@paceline/control-plane';
import { AdvisoryLock } from '../database/advisory-lock.js';
import { isDatabaseOutage } from '../database/outage.js';
import { Settings } from '../environment.js';
import { LOGGER } from '../logger.js';
import { DispatchSignal } from './dispatch-signal.js';
import { JobSender } from './job-sender.js';
import { ReconcileTick } from './reconcile-tick.js';
import { RedisWatch } from './redis-watch.js';

const LOCK_KEY = 7_264_103;

@Injectable()
export class Dispatcher implements OnModuleDestroy {
  private readonly lock: DispatchLock;
  private readonly loop: DispatchLoop;

  constructor(
    settings: Settings,
    sender: JobSender,
    reconcile: ReconcileTick,
    signal: DispatchSignal,
    redis: RedisWatch,
    @Inject(LOGGER) private readonly log: Logger,
  ) {
    const held = new AdvisoryLock(settings.databaseUrl, LOCK_KEY, () => this.lock.gone());
    this.lock = new DispatchLock({
      now: wakefulClock(() => performance.now(), Date.now),
      take: (staleMs) => held.take(staleMs),
      beat: () => held.beat(),
      letGo: () => held.letGo(),
      told: (what) => {
        if (what === 'lost') this.loop.counters.isLeader = false; // not only when its next tick has asked
        log.warn(
          what === 'lost'
            ? 'the dispatch lock is lost: this api stood still, or its connection to PostgreSQL has ended'
            : 'the api that reconciled stood still; this one takes over',
        );
      },
    });
    this.loop = new DispatchLoop({
      after: (ms, act) => {
        const timer = setTimeout(act, ms);
        return () => clearTimeout(timer);
      },
      random: Math.random,
      sendOutbox: async () => {
        // First of all: with Redis away a tick ends here.
        if (redis.present !== undefined && (await this.lock.hold())) await redis.explain(redis.present);
        return sender.send(() => this.lock.keep());
      },
      holdLock: () => this.lock.hold(),
      reconcile: () => {
        redis.requireUsable();
        return reconcile.tick(() => this.lock.confirm());
      },
      actions: () => reconcile.actions,
      failed: (error, failuresInARow, run) => this.report(error, failuresInARow, run),
    });
    signal.listen(() => this.loop.wake());
  }

  /** For /metrics. */
  get counters(): DispatchLoop['counters'] {
    return this.loop.counters;
  }

  start(): void {
    this.loop.start();
  }

  async onModuleDestroy(): Promise<void> {
    await this.loop.stop();
    await this.lock.letGo();
  }

  private report(error: Error, failuresInARow: number, run?: string): void {
    const isOutage = error instanceof RedisUnavailableError || isDatabaseOutage(error);
    if (error instanceof DispatchLockLostError) this.log.warn({ err: error.message }, 'another api reconciles');
    else if (isOutage && failuresInARow > 1) this.log.debug({ err: error.message, run }, 'dispatch waits');
    else if (isOutage)
      this.log.warn({ err: error.message, run }, `dispatch waits for ${error instanceof RedisUnavailableError ? 'Redis' : 'PostgreSQL'}`);
    else this.log.error({ err: error, run }, 'dispatch failed');
  }
}
