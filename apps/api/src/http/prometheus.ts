/** What a person on call wants to see: requests, queues, runs by status, reports and how far behind the journals are. */
import { setTimeout as pause } from 'node:timers/promises';
import { Injectable } from '@nestjs/common';
import { coordinatorOf } from '@paceline/control-plane';
import type { FastifyInstance } from 'fastify';
import { collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client';
import { Database } from '../database/database.js';
import { Dispatcher } from '../dispatch/dispatcher.js';
import { Queues } from '../dispatch/queues.js';
import { Fleet } from '../fleet/fleet.js';
import { Subscriptions } from '../graphql/subscriptions.js';
import { ReportsConsumer } from '../reports/consumer.js';
import { databaseNow } from '../database/database-clock.js';

const DELAY_PRECISION_MS = 10;

@Injectable()
export class Prometheus {
  readonly registry = new Registry();
  private readonly requests: Histogram;
  private failures = 0;
  private ofProcess: Promise<void> | undefined;

  constructor(
    private readonly database: Database,
    private readonly queues: Queues,
    private readonly fleet: Fleet,
    dispatcher: Dispatcher,
    consumer: ReportsConsumer,
    subscriptions: Subscriptions,
  ) {
    const registers = [this.registry];
    this.requests = new Histogram({
      name: 'paceline_http_request_seconds',
      help: 'Time to answer, by route and status.',
      labelNames: ['method', 'route', 'status'],
      buckets: [0.002, 0.01, 0.05, 0.2, 1, 5],
      registers,
    });
    const gauge = (name: string, help: string, read: () => number): void => {
      new Gauge({
        name: `paceline_${name}`,
        help,
        registers,
        collect() {
          this.set(read());
        },
      });
    };
    gauge('reports_taken_total', 'Reports stored.', () => consumer.counters.taken);
    gauge('reports_refused_total', 'Reports that do not fit the contract.', () => consumer.counters.refused);
    gauge('reports_failed_total', 'Reports that could not be stored.', () => consumer.counters.failed);
    gauge('journal_entries_total', 'Journal entries stored.', () => consumer.counters.journalEntries);
    gauge('reports_last_read_seconds', 'Seconds since the report stream was last read.', () =>
      consumer.counters.readAtMs === 0 ? NaN : (Date.now() - consumer.counters.readAtMs) / 1000,
    );
    gauge('dispatch_jobs_sent_total', 'Jobs that left the outbox.', () => dispatcher.counters.jobsSent);
    gauge('dispatch_failures_total', 'Ticks or runs that could not be reconciled.', () => dispatcher.counters.failures);
    gauge('dispatch_is_leader', '1 on the api that reconciles.', () => Number(dispatcher.counters.isLeader));
    gauge('scrape_failures_total', 'Values that could not be read for a scrape.', () => this.failures);
    gauge('subscriptions', 'Open subscriptions.', () => subscriptions.count);
    this.addDatabaseGauges();
  }

  /**
   * The text of a scrape. What is measured of the process begins with the first: to measure the delay of the event loop takes some hundred wake-ups a
   * second, which nobody has to pay who has no Prometheus.
   */
  async scrape(): Promise<string> {
    await (this.ofProcess ??= this.measureProcess());
    return this.registry.metrics();
  }

  private async measureProcess(): Promise<void> {
    collectDefaultMetrics({ register: this.registry, prefix: 'paceline_api_', eventLoopMonitoringPrecision: DELAY_PRECISION_MS });
    await pause(10 * DELAY_PRECISION_MS); // a delay that was never measured would be told as an absurd number
  }

  /** Times every request by the route that matched, so that paths with ids do not become labels. */
  observe(instance: FastifyInstance): void {
    instance.addHook('onResponse', async (request, reply) => {
      this.requests.observe(
        { method: request.method, route: request.routeOptions.url ?? 'none', status: String(reply.statusCode) },
        reply.elapsedTime / 1000,
      );
    });
  }

  /** A scrape during an outage shows what can still be seen, and that something could not. */
  private async look<T>(read: () => Promise<T>, otherwise: T): Promise<T> {
    try {
      return await read();
    } catch {
      this.failures++;
      return otherwise;
    }
  }

  private addDatabaseGauges(): void {
    const { database, queues, fleet, registry } = this;
    const gauge = (name: string, help: string, labelNames: string[], fill: (gauge: Gauge) => Promise<void>): void => {
      new Gauge({
        name: `paceline_${name}`,
        help,
        labelNames,
        registers: [registry],
        async collect() {
          this.reset();
          await fill(this);
        },
      });
    };
    gauge('runs', 'Runs by status.', ['status'], async (into) => {
      const rows = await this.look(async () => database.run.groupBy({ by: ['status'], _count: true }), []);
      for (const { status, _count } of rows) into.set({ status }, _count);
    });
    gauge('outbox_waiting', 'Jobs in the outbox that were not sent.', [], async (into) => {
      into.set(await this.look(() => database.outbox.count({ where: { sentAt: null } }), NaN));
    });
    gauge('journal_lag_seconds', 'Longest time since a running coordinator reported.', [], async (into) => {
      const where = { status: 'RUNNING' } as const;
      const row = await this.look(
        () => database.run.findFirst({ where, orderBy: { coordinatorAt: 'asc' }, select: { coordinatorAt: true } }),
        null,
      );
      into.set(row?.coordinatorAt ? (databaseNow() - row.coordinatorAt.getTime()) / 1000 : 0);
    });
    // Whoever scrapes belongs to no team, so runs have no names here: those of a run are its `traffic`.
    const help = 'Bytes on the sockets between workers and servers of the runs that train now, and what they would be without a codec.';
    gauge('training_traffic_bytes', help, ['direction', 'measure'], async (into) => {
      const where = { status: 'RUNNING' } as const;
      const rows = await this.look(() => database.run.findMany({ where, select: { coordinator: true, attempt: true } }), []);
      const sums = { toServersBytes: 0, denseToServersBytes: 0, toWorkersBytes: 0, denseToWorkersBytes: 0 };
      for (const row of rows)
        for (const field of Object.keys(sums) as (keyof typeof sums)[]) sums[field] += coordinatorOf(row)?.traffic?.[field] ?? 0;
      into.set({ direction: 'to_servers', measure: 'sent' }, sums.toServersBytes);
      into.set({ direction: 'to_servers', measure: 'dense' }, sums.denseToServersBytes);
      into.set({ direction: 'to_workers', measure: 'sent' }, sums.toWorkersBytes);
      into.set({ direction: 'to_workers', measure: 'dense' }, sums.denseToWorkersBytes);
    });
    gauge('queue_jobs', 'Jobs by queue and state.', ['queue', 'state'], async (into) => {
      for (const queue of ['placement', 'worker-placement', 'step-task'] as const) {
        for (const [state, count] of Object.entries(await this.look(() => queues.counts(queue), {}))) into.set({ queue, state }, count);
      }
    });
    gauge('fleet_alive', 'Processes with a heartbeat.', ['role'], async (into) => {
      for (const role of ['worker', 'server'] as const) {
        into.set({ role }, (await this.look(() => fleet.list(role), [])).filter((row) => fleet.isAlive(row)).length);
      }
    });
  }
}
