/** RFC 9457 problem documents for REST; GraphQL errors go on to its own formatter. */
import { Catch, HttpException, type ArgumentsHost, type ExceptionFilter } from '@nestjs/common';
import type { Logger } from '@paceline/runtime';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { databaseFault } from '../database/database-fault.js';
import { Fault, FAULTS, type FaultCode } from '../fault.js';
import { RedisUnavailableError } from '@paceline/control-plane';
import type { FieldIssue } from '../graphql/result.types.js';

export const PROBLEM = 'application/problem+json; charset=utf-8';

export interface Problem {
  readonly type: string;
  readonly title: string;
  readonly status: number;
  readonly code: FaultCode;
  readonly detail: string;
  readonly issues?: readonly FieldIssue[];
}

export function problemOf(code: FaultCode, detail: string, issues?: readonly FieldIssue[]): Problem {
  const { title, status } = FAULTS[code];
  return {
    type: `urn:paceline:error:${code.toLowerCase().replaceAll('_', '-')}`,
    title,
    status,
    code,
    detail,
    ...(issues ? { issues } : {}),
  };
}

/** Sends a fault in the language of the path: GraphQL's error list at /graphql, a problem document elsewhere. */
export function sendFault(request: FastifyRequest, reply: FastifyReply, fault: Fault): FastifyReply {
  const { code, message, status, retryAfterSeconds, issues } = fault;
  void reply.status(status).header('cache-control', 'no-store');
  if (retryAfterSeconds) void reply.header('retry-after', String(retryAfterSeconds));
  if (code === 'UNAUTHENTICATED') void reply.header('www-authenticate', 'Bearer realm="paceline"');
  if (request.routeOptions.url === '/graphql') {
    return reply
      .type('application/json; charset=utf-8')
      .send({ errors: [{ message, extensions: { code, ...(retryAfterSeconds ? { retryAfterSeconds } : {}) } }] });
  }
  return reply.type(PROBLEM).send(problemOf(code, message, issues));
}

const CODES_BY_STATUS: Readonly<Record<number, FaultCode>> = {
  400: 'BAD_REQUEST',
  404: 'NOT_FOUND',
  405: 'METHOD_NOT_ALLOWED',
  413: 'TOO_LARGE',
  414: 'BAD_REQUEST',
  415: 'UNSUPPORTED_MEDIA_TYPE',
  408: 'REQUEST_TIMEOUT',
  431: 'HEADERS_TOO_LARGE',
};

/** Whatever was thrown, as a fault; unknown things are ours and are logged. */
export function toFault(error: unknown, log: Logger, requestId?: string): Fault {
  if (error instanceof Fault) return error;
  const ofDatabase = databaseFault(error);
  if (ofDatabase) return ofDatabase;
  if (error instanceof RedisUnavailableError) return new Fault('SERVICE_UNAVAILABLE', 'Redis does not answer. Try again shortly.', 5);
  const status = error instanceof HttpException ? error.getStatus() : (error as { statusCode?: unknown } | null)?.statusCode;
  const code = typeof status === 'number' ? CODES_BY_STATUS[status] : undefined;
  if (code) return new Fault(code, (error as Error).message.slice(0, 300));
  log.error({ err: error as Error, requestId }, 'a request failed');
  return new Fault('INTERNAL_SERVER_ERROR', 'The log of the api says more.');
}

@Catch()
export class ProblemFilter implements ExceptionFilter {
  constructor(private readonly log: Logger) {}

  catch(error: unknown, host: ArgumentsHost): unknown {
    if (host.getType<string>() === 'graphql') return error;
    const http = host.switchToHttp();
    const reply = http.getResponse<FastifyReply>();
    if (reply.sent) return undefined;
    const request = http.getRequest<FastifyRequest>();
    sendFault(request, reply, toFault(error, this.log, request.id));
    return undefined;
  }
}
