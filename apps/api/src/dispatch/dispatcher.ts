/**
 * The api's clockwork: every 300 ms (more or less, so that several apis do not beat together) it sends the outbox, and the one api that
 * holds the lock reconciles. PostgreSQL or Redis away: it waits, doubling its pause, and goes on where it was.
 */
import { Inject, Injectable, type OnModuleDestroy } from '@nestjs/common';
import type { Logger } from '@paceline/runtime';
import { RedisUnavailableError } from '@paceline/jobs';
import { AdvisoryLock } from '../database/advisory-lock.js';
import { isDatabaseOutage } from '../database/outage.js';
import { Settings } from '../environment.js';
import { LOGGER } from '../logger.js';
import { DispatchSignal } from './dispatch-signal.js';
import { Outbox } from './outbox.js';
import { Reconciler } from './reconciler.js';

const TICK_MS = 300;
const JITTER_MS = 60;
const LONGEST_PAUSE_MS = 3_000;
const LOCK_KEY = 7_264_103;

@Injectable()
export class Dispatcher implements OnModuleDestroy {
  /** For /metrics. */
  readonly counters = { ticks: 0, failures: 0, jobsSent: 0, isLeader: false };
  private readonly lock: AdvisoryLock;
  private timer: NodeJS.Timeout | undefined;
  private ticking: Promise<void> | undefined;
  private wokenMeanwhile = false;
  private stopped = false;
  private failuresInARow = 0;

  constructor(
    settings: Settings,
    private readonly outbox: Outbox,
    private readonly reconciler: Reconciler,
    signal: DispatchSignal,
    @Inject(LOGGER) private readonly log: Logger,
  ) {
    this.lock = new AdvisoryLock(settings.databaseUrl, LOCK_KEY);
    signal.listen(() => this.wake());
  }

  start(): void {
    this.schedule(0);
  }

  async onModuleDestroy(): Promise<void> {
    this.stopped = true;
    clearTimeout(this.timer);
    await this.ticking;
    await this.lock.release();
  }

  private wake(): void {
    if (this.ticking) this.wokenMeanwhile = true;
    else if (this.failuresInARow === 0) this.schedule(0);
  }

  private schedule(delayMs: number): void {
    if (this.stopped) return;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      this.ticking = this.tick().finally(() => {
        this.ticking = undefined;
        const pauseMs = Math.min(TICK_MS * 2 ** this.failuresInARow, LONGEST_PAUSE_MS) + (Math.random() - 0.5) * 2 * JITTER_MS;
        this.schedule(this.wokenMeanwhile && this.failuresInARow === 0 ? 0 : pauseMs);
        this.wokenMeanwhile = false;
      });
    }, delayMs);
  }

  private async tick(): Promise<void> {
    this.counters.ticks++;
    try {
      this.counters.jobsSent += await this.outbox.send();
      this.counters.isLeader = await this.lock.hold();
      if (this.counters.isLeader) {
        for (const { runId, error } of await this.reconciler.tick()) this.report(error, runId);
        // Seats that were just opened leave at once.
        this.counters.jobsSent += await this.outbox.send();
      }
      this.failuresInARow = 0;
    } catch (error) {
      this.failuresInARow++;
      this.counters.isLeader = false;
      this.report(error as Error);
    }
  }

  private report(error: Error, run?: string): void {
    this.counters.failures++;
    const isOutage = error instanceof RedisUnavailableError || isDatabaseOutage(error);
    if (isOutage && this.failuresInARow > 1) this.log.debug({ err: error.message, run }, 'dispatch waits');
    else if (isOutage) this.log.warn({ err: error.message, run }, 'dispatch waits for PostgreSQL or Redis');
    else this.log.error({ err: error, run }, 'dispatch failed');
  }
}
