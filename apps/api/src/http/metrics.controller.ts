import { Controller, Get, Res } from '@nestjs/common';
import type { FastifyReply } from 'fastify';
import { Prometheus } from './prometheus.js';

@Controller('metrics')
export class MetricsController {
  constructor(private readonly prometheus: Prometheus) {}

  @Get()
  async read(@Res() reply: FastifyReply): Promise<void> {
    await reply
      .header('cache-control', 'no-store')
      .type(this.prometheus.registry.contentType)
      .send(await this.prometheus.scrape());
  }
}
