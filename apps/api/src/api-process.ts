/**
 * Starts and stops one api:
 *
 *     PostgreSQL and Redis answer -> migrate -> bootstrap key -> listen -> reports, dispatch
 *
 * It listens before it works, so a port that is taken is found out before any job is touched. It stops in the other order.
 */
import 'reflect-metadata';
import { randomUUID } from 'node:crypto';
import type { AddressInfo } from 'node:net';
import { NestFactory } from '@nestjs/core';
import { FastifyAdapter, type NestFastifyApplication } from '@nestjs/platform-fastify';
import { connectRedis, withDeadline } from '@paceline/control-plane';
import { UserError, type Logger } from '@paceline/runtime';
import pg from 'pg';
import { AppModule } from './app.module.js';
import { migrate } from './database/migrations.js';
import { whenItAnswers } from './database/when-it-answers.js';
import { DataStore } from './datasets/data-store.js';
import { Datasets } from './datasets/datasets.js';
import { Dispatcher } from './dispatch/dispatcher.js';
import { RedisWatch } from './dispatch/redis-watch.js';
import { Queues } from './dispatch/queues.js';
import type { Settings } from './environment.js';
import { Fleet } from './fleet/fleet.js';
import { Documents } from './graphql/documents.js';
import { GRAPHQL_LIMITS } from './graphql/limits.js';
import { SubscriptionServer } from './graphql/subscription-server.js';
import { TrustedProxies } from './http/client-address.js';
import { limitConnections } from './http/connection-limits.js';
import { serveDashboard } from './http/dashboard.js';
import { addEntityTags } from './http/entity-tags.js';
import { addGate } from './http/gate.js';
import { ProblemFilter } from './http/problem.filter.js';
import { Prometheus } from './http/prometheus.js';
import { RateLimits } from './http/rate-limits.js';
import { addQueryCheck } from './http/query-parameters.js';
import { addUploads } from './http/uploads.js';
import { addSecurityHeaders } from './http/security-headers.js';
import { answerClientError, answerFrameworkError } from './http/unreadable-requests.js';
import { frameworkLogger } from './logger.js';
import { ReportsConsumer } from './reports/consumer.js';
import { Authentication } from './teams/authentication.js';
import { Bootstrap } from './teams/bootstrap.js';
import { DatabaseClock } from './database/database-clock.js';

const SERVICE_DEADLINE_MS = 5_000;
const REQUEST_DEADLINE_MS = 30_000;
const CONNECTIONS_CHECKED_EVERY_MS = 5_000;

export interface RunningApi {
  readonly url: string;
  /** Only when it was made by this start: it is never shown again. */
  readonly bootstrapKey: string | undefined;
  /** For tests that look inside. */
  readonly app: NestFastifyApplication;
  stop(): Promise<void>;
}

/** @throws UserError POSTGRES_UNREACHABLE, REDIS_UNREACHABLE, PORT_IN_USE, and those of migrations, bootstrap and dashboard */
export async function startApi(settings: Settings, log: Logger): Promise<RunningApi> {
  await requirePostgres(settings.databaseUrl);
  await requireRedis(settings.redisUrl);
  const waiting = { place: placeOf(settings.databaseUrl), log };
  const applied = await whenItAnswers('bringing the database up to date', () => migrate(settings.databaseUrl), waiting);
  if (applied.length > 0) log.info({ applied }, 'migrations applied');
  const app = await createApp(settings, log);
  try {
    const bootstrapKey = await whenItAnswers('the administrator key', () => app.get(Bootstrap).run(), waiting);
    await whenItAnswers('the datasets of the release', () => app.get(Datasets).register(), waiting);
    await whenItAnswers('the time of the database', () => app.get(DatabaseClock).start(() => app.get(Fleet).deaf()), waiting);
    await app.get(DataStore).prepare();
    await listen(app, settings);
    app.get(SubscriptionServer).attach(app.getHttpServer());
    app.get(Fleet).start();
    app.get(Queues).startStalledChecks();
    app.get(ReportsConsumer).start();
    app.get(RedisWatch).start();
    app.get(Dispatcher).start();
    const { port } = app.getHttpServer().address() as AddressInfo;
    const url = `http://${settings.host.includes(':') ? `[${settings.host}]` : settings.host}:${port}`;
    log.info({ url }, 'the api listens');
    let stopping: Promise<void> | undefined;
    return { url, bootstrapKey, app, stop: () => (stopping ??= stop(app)) };
  } catch (error) {
    await app.close();
    throw error;
  }
}

async function createApp(settings: Settings, log: Logger): Promise<NestFastifyApplication> {
  const proxies = new TrustedProxies(settings.trustedProxies ?? []);
  const adapter = new FastifyAdapter({
    bodyLimit: GRAPHQL_LIMITS.bodyBytes,
    // Headers have this deadline from Node, which looks for late ones only so often; bodies have theirs from http/uploads.ts.
    requestTimeout: 0,
    http: { headersTimeout: REQUEST_DEADLINE_MS, connectionsCheckingInterval: CONNECTIONS_CHECKED_EVERY_MS },
    genReqId: () => randomUUID(),
    connectionTimeout: 0,
    keepAliveTimeout: 72_000,
    forceCloseConnections: 'idle',
    trustProxy: proxies.ranges.length > 0 && ((address: string) => proxies.has(address)),
    frameworkErrors: answerFrameworkError as never,
    clientErrorHandler: answerClientError as never,
  });
  const app = await NestFactory.create<NestFastifyApplication>(AppModule.with(settings, log), adapter, {
    logger: frameworkLogger(log),
    abortOnError: false,
    forceCloseConnections: true,
  });
  const instance = adapter.getInstance();
  addSecurityHeaders(instance as never);
  app.get(Prometheus).observe(instance as never);
  addGate(instance as never, {
    authentication: app.get(Authentication),
    rates: app.get(RateLimits),
    documents: app.get(Documents),
    log,
    settings,
  });
  addQueryCheck(instance as never);
  addUploads(instance as never, REQUEST_DEADLINE_MS);
  addEntityTags(instance as never);
  limitConnections(app.getHttpServer(), proxies);
  await serveDashboard(instance as never, settings.dashboardDir);
  app.useGlobalFilters(new ProblemFilter(log));
  return app;
}

async function listen(app: NestFastifyApplication, { host, port }: Settings): Promise<void> {
  try {
    await app.listen({ host, port });
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    if (code === 'EADDRINUSE') {
      throw new UserError('PORT_IN_USE', `Port ${port} on ${host} is taken.`, {
        hint: 'Stop what listens there, or set PACELINE_PORT (0 takes a free port).',
        exit: 'configuration',
        cause,
      });
    }
    if (code === 'EACCES' || code === 'EADDRNOTAVAIL' || code === 'ENOTFOUND') {
      throw new UserError('ADDRESS_UNUSABLE', `The api cannot listen on ${host}:${port} (${code}).`, {
        hint: 'Set PACELINE_HOST and PACELINE_PORT to an address of this machine.',
        exit: 'configuration',
        cause,
      });
    }
    throw cause;
  }
}

async function stop(app: NestFastifyApplication): Promise<void> {
  app.get(SubscriptionServer).close();
  await app.close(); // requests end, then providers: reports, dispatch, connections
}

async function requirePostgres(connectionString: string): Promise<void> {
  const client = new pg.Client({ connectionString, connectionTimeoutMillis: SERVICE_DEADLINE_MS, query_timeout: SERVICE_DEADLINE_MS });
  client.on('error', () => undefined); // the failing call says why
  try {
    await client.connect();
    await client.query('SELECT 1');
  } catch (cause) {
    throw new UserError(
      'POSTGRES_UNREACHABLE',
      `PostgreSQL does not answer at ${placeOf(connectionString)}: ${(cause as Error).message || (cause as NodeJS.ErrnoException).code}`,
      {
        hint: 'Start it, or set DATABASE_URL. `paceline up` starts an embedded one.',
        exit: 'unavailable',
        cause,
      },
    );
  } finally {
    await client.end().catch(() => undefined); // it never connected
  }
}

async function requireRedis(url: string): Promise<void> {
  const redis = connectRedis(url, 'paceline-api-start');
  let lastError: Error | undefined;
  redis.on('error', (error: Error) => (lastError = error));
  try {
    await withDeadline('connect', SERVICE_DEADLINE_MS, async () => {
      await Promise.race([
        new Promise((ready) => redis.once('ready', ready)),
        new Promise((_, reject) => redis.once('error', (error: Error) => setTimeout(() => reject(error), 1_000))),
      ]);
      await redis.ping();
    });
  } catch (cause) {
    throw new UserError('REDIS_UNREACHABLE', `Redis does not answer at ${placeOf(url)}: ${(lastError ?? (cause as Error)).message}`, {
      hint: 'Start it, or set REDIS_URL. `paceline up` starts one.',
      exit: 'unavailable',
      cause,
    });
  } finally {
    redis.disconnect();
  }
}

/** Host and port of an address, without user and password. */
function placeOf(url: string): string {
  const { hostname, port } = new URL(url);
  return port ? `${hostname}:${port}` : hostname;
}
