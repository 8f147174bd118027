import { Controller, Get, Res } from '@nestjs/common';
import { createHealthRegistry, type HealthReport } from '@paceline/runtime';
import type { FastifyReply } from 'fastify';
import { BackgroundDatabase } from '../database/database.js';
import { RedisWatch } from '../dispatch/redis-watch.js';
import { RETRY_AFTER_SECONDS } from '../fault.js';

const DEADLINE_MS = 1_500;
/** Whoever asks without a key makes at most one check a second. */
const CHECK_EVERY_MS = 1_000;

@Controller()
export class HealthController {
  private readonly health = createHealthRegistry();
  private last: { readonly report: Promise<HealthReport>; readonly atMs: number } | undefined;

  constructor(
    database: BackgroundDatabase,
    private readonly redis: RedisWatch,
  ) {
    this.health.register('postgresql', async () => void (await database.$queryRaw`SELECT 1`), { timeoutMs: DEADLINE_MS });
    this.health.register('redis', () => redis.write(), {
      timeoutMs: DEADLINE_MS + 500,
    });
  }

  /** The process answers; restarting it would not help against an outage behind it. */
  @Get('healthz')
  alive(): { status: 'ok' } {
    return { status: 'ok' };
  }

  /** It can do its work: PostgreSQL answers, and Redis takes writes. The cause names no address: anybody may ask. */
  @Get('readyz')
  async ready(@Res() reply: FastifyReply): Promise<void> {
    const report = await this.check();
    const checks = Object.fromEntries(
      Object.entries(report.checks).map(([name, { status, ms, message }]) => [
        name,
        message === undefined
          ? { status, ms }
          : { status, ms, cause: (name === 'redis' ? this.redis.why : undefined) ?? 'does not answer' },
      ]),
    );
    if (report.status !== 'ok') void reply.status(503).header('retry-after', String(RETRY_AFTER_SECONDS));
    await reply.header('cache-control', 'no-store').send({ status: report.status, checks });
  }

  private check(): Promise<HealthReport> {
    const now = performance.now();
    if (!this.last || now - this.last.atMs >= CHECK_EVERY_MS) this.last = { report: this.health.check(), atMs: now };
    return this.last.report;
  }
}
