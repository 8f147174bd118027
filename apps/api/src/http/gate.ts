/**
 * The gate decides who may pass, and how often, before a body is read. Every route needs a key unless it is named here as public, so a new route is
 * closed by default. Routes are compared as the router matched them: `/%61pi/v1/runs` is the same route as `/api/v1/runs`.
 */
import { createHash, timingSafeEqual } from 'node:crypto';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { Logger } from '@paceline/runtime';
import { Fault } from '../fault.js';
import type { Documents } from '../graphql/documents.js';
import { GRAPHQL_LIMITS } from '../graphql/limits.js';
import type { AuthenticatedRequest } from '../graphql/viewer.decorator.js';
import type { Authentication } from '../teams/authentication.js';
import { isLoopback } from './client-address.js';
import { sendFault, toFault } from './problem.filter.js';
import type { RateLimits } from './rate-limits.js';

/** Health for orchestrators, the dashboard's files and the OpenAPI document: they hold no data, and what they offer asks for a key. */
const PUBLIC_ROUTES: ReadonlySet<string | undefined> = new Set(['/healthz', '/readyz', '/api/v1/openapi.json', '/', '/*', undefined]);
const METRICS_ROUTE = '/metrics';
const GRAPHQL_ROUTE = '/graphql';
const READING_METHODS = new Set(['GET', 'HEAD', 'OPTIONS']);

export interface GateSettings {
  readonly metricsToken?: string | undefined;
  readonly trustedProxies?: readonly string[] | undefined;
}

export function addGate(
  instance: FastifyInstance,
  parts: { authentication: Authentication; rates: RateLimits; documents: Documents; log: Logger; settings: GateSettings },
): void {
  const { authentication, rates, documents, log, settings } = parts;
  const refuse = (request: FastifyRequest, reply: FastifyReply, error: unknown) =>
    sendFault(request, reply, toFault(error, log, request.id));
  instance.decorateRequest('viewer', undefined);
  instance.decorateRequest('rate', undefined);
  instance.addHook('onRequest', async (request: FastifyRequest, reply: FastifyReply) => {
    void reply.header('x-request-id', request.id);
    const { url } = request.routeOptions;
    if (PUBLIC_ROUTES.has(url) || (url === METRICS_ROUTE && mayScrape(request, settings))) return undefined;
    try {
      const viewer = await authentication.viewerOf(request.headers.authorization, request.ip);
      (request as AuthenticatedRequest).viewer = viewer;
      const rate = rates.request(viewer);
      if (rate) {
        (request as AuthenticatedRequest).rate = rate;
        const { limit, remaining, resetSeconds } = rate;
        void reply.headers({ 'ratelimit-limit': limit, 'ratelimit-remaining': remaining, 'ratelimit-reset': resetSeconds });
      }
      if (url === METRICS_ROUTE && !viewer.isAdmin)
        throw new Fault('FORBIDDEN', "Metrics of all teams need an administrator's key or the metrics token.");
      // What changes something over GraphQL is known when the operation is (graphql/graphql.options.ts).
      if (viewer.isReadOnly && url !== GRAPHQL_ROUTE && !READING_METHODS.has(request.method))
        throw new Fault('FORBIDDEN', 'This key is read-only.');
    } catch (error) {
      return refuse(request, reply, error);
    }
    return undefined;
  });
  instance.addHook('preHandler', async (request: FastifyRequest, reply: FastifyReply) => {
    const { viewer } = request as AuthenticatedRequest;
    const sent = (request.method === 'GET' ? request.query : request.body) as { query?: unknown } | null | undefined;
    const source = sent?.query;
    if (request.routeOptions.url !== GRAPHQL_ROUTE || !viewer || typeof source !== 'string' || documents.find(source)) return undefined;
    try {
      rates.text(viewer, source, GRAPHQL_LIMITS.tokens);
    } catch (error) {
      return refuse(request, reply, error);
    }
    return undefined;
  });
}

/**
 * The metrics token, or Prometheus beside the api. Behind a proxy on this host everybody comes from the loopback address, and a page in
 * a browser may reach it under a name of its own: who comes so needs a key.
 */
function mayScrape(request: FastifyRequest, { metricsToken, trustedProxies = [] }: GateSettings): boolean {
  const { authorization, host = '', ...headers } = request.headers;
  if (metricsToken !== undefined) return authorization !== undefined && sameText(authorization, `Bearer ${metricsToken}`);
  const isForwarded = ['x-forwarded-for', 'x-forwarded-host', 'x-forwarded-proto', 'x-real-ip', 'forwarded', 'via'].some(
    (name) => name in headers,
  );
  const hostname = host
    .replace(/:\d+$/, '')
    .replace(/^\[(.*)\]$/, '$1')
    .toLowerCase();
  const isLocalName = hostname === 'localhost' || isLoopback(hostname);
  return trustedProxies.length === 0 && !isForwarded && isLocalName && isLoopback(request.socket.remoteAddress ?? '');
}

const digest = (text: string): Buffer => createHash('sha256').update(text).digest();
const sameText = (a: string, b: string): boolean => timingSafeEqual(digest(a), digest(b));
