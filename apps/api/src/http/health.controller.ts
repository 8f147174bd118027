import { Controller, Get, Res } from '@nestjs/common';
import { withDeadline } from '@paceline/jobs';
import { createHealthRegistry, type HealthReport } from '@paceline/runtime';
import type { FastifyReply } from 'fastify';
import { Database } from '../database/database.js';
import { RedisConnections } from '../dispatch/redis-connections.js';
import { RETRY_AFTER_SECONDS } from '../fault.js';

const DEADLINE_MS = 1_500;
/** Whoever asks without a key makes at most one check a second. */
const CHECK_EVERY_MS = 1_000;

@Controller()
export class HealthController {
  private readonly health = createHealthRegistry();
  private last: { readonly report: Promise<HealthReport>; readonly atMs: number } | undefined;

  constructor(database: Database, redis: RedisConnections) {
    this.health.register('postgresql', async () => void (await database.$queryRaw`SELECT 1`), { timeoutMs: DEADLINE_MS });
    this.health.register('redis', async () => void (await withDeadline('ping', DEADLINE_MS, () => redis.commands.ping())), {
      timeoutMs: DEADLINE_MS + 500,
    });
  }

  /** The process answers; restarting it would not help against an outage behind it. */
  @Get('healthz')
  alive(): { status: 'ok' } {
    return { status: 'ok' };
  }

  /** It can do its work: PostgreSQL and Redis answer. */
  @Get('readyz')
  async ready(@Res() reply: FastifyReply): Promise<void> {
    const report = await this.check();
    const checks = Object.fromEntries(Object.entries(report.checks).map(([name, { status, ms }]) => [name, { status, ms }]));
    if (report.status !== 'ok') void reply.status(503).header('retry-after', String(RETRY_AFTER_SECONDS));
    await reply.header('cache-control', 'no-store').send({ status: report.status, checks });
  }

  private check(): Promise<HealthReport> {
    const now = performance.now();
    if (!this.last || now - this.last.atMs >= CHECK_EVERY_MS) this.last = { report: this.health.check(), atMs: now };
    return this.last.report;
  }
}
