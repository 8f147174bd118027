/**
 * Who may pass, decided before a body is read. Everything needs a key unless its route is named here as public, so a new route is
 * closed by default. Routes are compared as the router matched them: `/%61pi/v1/runs` is the same route as `/api/v1/runs`.
 */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { Logger } from '@paceline/runtime';
import type { AuthenticatedRequest } from '../graphql/viewer.decorator.js';
import type { Authentication } from '../teams/authentication.js';
import { sendFault, toFault } from './problem.filter.js';

/** Health for orchestrators, the dashboard's files and the OpenAPI document: they hold no data, and what they offer asks for a key. */
const PUBLIC_ROUTES: ReadonlySet<string | undefined> = new Set(['/healthz', '/readyz', '/api/v1/openapi.json', '/', '/*', undefined]);
/** Prometheus beside the api needs no key. */
const LOOPBACK_ROUTES: ReadonlySet<string | undefined> = new Set(['/metrics']);
const LOOPBACK = /^(?:127\.\d+\.\d+\.\d+|::1|::ffff:127\.\d+\.\d+\.\d+)$/;

export function addGate(instance: FastifyInstance, authentication: Authentication, log: Logger): void {
  instance.decorateRequest('viewer', undefined);
  instance.addHook('onRequest', async (request: FastifyRequest, reply: FastifyReply) => {
    const { url } = request.routeOptions;
    if (PUBLIC_ROUTES.has(url)) return;
    if (LOOPBACK_ROUTES.has(url) && LOOPBACK.test(request.ip)) return;
    try {
      (request as AuthenticatedRequest).viewer = await authentication.viewerOf(request.headers.authorization, request.ip);
    } catch (error) {
      return sendFault(request, reply, toFault(error, log));
    }
  });
}
