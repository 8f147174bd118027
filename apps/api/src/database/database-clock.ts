/**
 * The time of PostgreSQL, by which apis store what others reckon with: when a pause was asked for, a coordinator was heard, an import was alive. The clocks of their
 * machines may differ.
 */
import { Inject, Injectable, type OnModuleDestroy } from '@nestjs/common';
import type { Logger } from '@paceline/runtime';
import { LOGGER } from '../logger.js';
import { BackgroundDatabase } from './database.js';

const MEASURED_EVERY_MS = 30_000;
/** So much is told: somebody's clock is wrong. */
const TOLD_FROM_MS = 1_000;

/** Of this process, which has one database. */
let aheadMs = 0;

/** Milliseconds since the epoch, on the clock of the database. */
export const databaseNow = (): number => Date.now() + aheadMs;
export const databaseDate = (): Date => new Date(databaseNow());

@Injectable()
export class DatabaseClock implements OnModuleDestroy {
  private timer: NodeJS.Timeout | undefined;
  private isTold = false;

  constructor(
    private readonly database: BackgroundDatabase,
    @Inject(LOGGER) private readonly log: Logger,
  ) {}

  /** Measures now, and again and again. @throws when PostgreSQL is away now */
  async start(): Promise<void> {
    await this.measure();
    this.timer = setInterval(() => {
      this.measure().catch(() => undefined); // it goes on by what it knows
    }, MEASURED_EVERY_MS);
  }

  onModuleDestroy(): void {
    clearInterval(this.timer);
  }

  async measure(): Promise<void> {
    const before = Date.now();
    const [row] = await this.database.statement<{ nowMs: number }>(
      'time',
      'SELECT (extract(epoch FROM clock_timestamp()) * 1000)::float8 AS "nowMs"',
    );
    aheadMs = Math.round(row!.nowMs - (before + Date.now()) / 2);
    const isFar = Math.abs(aheadMs) >= TOLD_FROM_MS;
    if (isFar && !this.isTold) this.log.warn({ aheadMs }, 'the clock of PostgreSQL differs from that of this machine; the former counts');
    this.isTold = isFar;
  }
}
