/**
 * The time of PostgreSQL, by which apis store what others reckon with: when a pause was asked for, a coordinator was heard, an import was alive. The clocks of their
 * machines may differ, and somebody may set them: here the time goes on by a clock that nobody sets, from what was measured last.
 */
import { Inject, Injectable, type OnModuleDestroy } from '@nestjs/common';
import type { Logger } from '@paceline/runtime';
import { LOGGER } from '../logger.js';
import { BackgroundDatabase } from './database.js';

const MEASURED_EVERY_MS = 30_000;
/** How often it looks whether the machine was suspended, or its clock was set: then the time is measured at once. */
const LOOK_MS = 1_000;
/** Times from before and after such a leap are not compared. */
const LEAP_MS = 500;
/** So much is told: somebody's clock is wrong. */
const TOLD_FROM_MS = 1_000;

/** Milliseconds since the epoch on a clock that nobody sets: it begins with the wall clock, goes on by itself, and stands still while the machine is suspended. */
export const steadyNow = (): number => performance.timeOrigin + performance.now();
const wallAhead = (): number => Date.now() - steadyNow();

/** Of this process, which has one database: how far its time is ahead of `steadyNow`. */
let aheadMs = 0;

/** Milliseconds since the epoch, on the clock of the database. */
export const databaseNow = (): number => Math.round(steadyNow() + aheadMs);
export const databaseDate = (): Date => new Date(databaseNow());

@Injectable()
export class DatabaseClock implements OnModuleDestroy {
  private timer: NodeJS.Timeout | undefined;
  private isTold = false;
  private isMeasured = false;
  private isAsking = false;
  private askedMs = -Infinity;
  /** How far the wall clock of this machine was ahead of `steadyNow` when the time was measured last. */
  private wallAheadMs = 0;
  private leapt: () => void = () => undefined;

  constructor(
    private readonly database: BackgroundDatabase,
    @Inject(LOGGER) private readonly log: Logger,
  ) {}

  /**
   * Measures now, and again and again.
   * @param leapt the time has leapt: what was stored before it is not as old as it seems
   * @throws when PostgreSQL is away now
   */
  async start(leapt: () => void): Promise<void> {
    this.leapt = leapt;
    await this.measure();
    this.timer = setInterval(() => void this.look(), LOOK_MS);
  }

  onModuleDestroy(): void {
    clearInterval(this.timer);
  }

  /** Measures where it is time to, or the clocks of this machine have come apart since. */
  async look(): Promise<void> {
    const isDue = steadyNow() - this.askedMs >= MEASURED_EVERY_MS || Math.abs(wallAhead() - this.wallAheadMs) >= LEAP_MS;
    if (!isDue || this.isAsking) return;
    this.isAsking = true;
    await this.measure().catch(() => undefined); // it goes on by what it knows
    this.isAsking = false;
  }

  /** PostgreSQL has looked at its clock at some time between the question and the answer: what is known already stays, unless it cannot be right. */
  async measure(): Promise<void> {
    const before = (this.askedMs = steadyNow());
    const [row] = await this.database.statement<{ nowMs: number }>(
      'time',
      'SELECT (extract(epoch FROM clock_timestamp()) * 1000)::float8 AS "nowMs"',
    );
    const [least, most] = [row!.nowMs - steadyNow(), row!.nowMs - before];
    this.wallAheadMs = wallAhead();
    if (!this.isMeasured || aheadMs < least || aheadMs > most) this.correct((least + most) / 2);
    this.isMeasured = true;
    this.tell(Math.round(databaseNow() - Date.now()));
  }

  private correct(measuredMs: number): void {
    const movedMs = measuredMs - aheadMs;
    aheadMs = measuredMs;
    if (Math.abs(movedMs) >= LEAP_MS) this.leapt();
  }

  private tell(wrongMs: number): void {
    const isFar = Math.abs(wrongMs) >= TOLD_FROM_MS;
    if (isFar && !this.isTold)
      this.log.warn({ aheadMs: wrongMs }, 'the clock of PostgreSQL differs from that of this machine; the former counts');
    this.isTold = isFar;
  }
}
