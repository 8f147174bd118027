/**
 * Requests that no route sees: a path that cannot be decoded, headers that are too long, bytes that are no HTTP. They get the same
 * problem documents and the same security headers as everything else.
 */
import type { Socket } from 'node:net';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { Fault, FAULTS, type FaultCode } from '../fault.js';
import { PROBLEM, problemOf } from './problem.filter.js';
import { SECURITY_HEADERS } from './security-headers.js';

/** Fastify's `frameworkErrors`: hooks have not run, so the headers are put here. */
export function answerFrameworkError(
  error: { readonly statusCode?: number; readonly message: string },
  _request: FastifyRequest,
  reply: FastifyReply,
): void {
  const tooLong = error.statusCode === 414;
  const fault = new Fault(
    'BAD_REQUEST',
    tooLong ? 'A part of the path is too long.' : 'The path cannot be decoded: a % must begin an escape of UTF-8.',
  );
  void reply.status(fault.status).headers(SECURITY_HEADERS).header('cache-control', 'no-store').type(PROBLEM);
  void reply.send(JSON.stringify(problemOf(fault.code, fault.message)));
}

const ANSWERS: Readonly<Record<string, readonly [code: FaultCode, detail: string]>> = {
  HPE_HEADER_OVERFLOW: ['HEADERS_TOO_LARGE', 'The headers are longer than 16 KiB together.'],
  ERR_HTTP_REQUEST_TIMEOUT: ['REQUEST_TIMEOUT', 'The request did not arrive in time.'],
};

/** Fastify's `clientErrorHandler`: there is no request and no reply, only the socket. */
export function answerClientError(error: NodeJS.ErrnoException, socket: Socket): void {
  if (error.code === 'ECONNRESET' || socket.destroyed || !socket.writable) return void socket.destroy();
  const [code, detail] = ANSWERS[error.code ?? ''] ?? (['BAD_REQUEST', 'That is no HTTP/1.1 request.'] as const);
  const { status, title } = FAULTS[code];
  const body = JSON.stringify(problemOf(code, detail));
  const headers = {
    ...SECURITY_HEADERS,
    'content-type': PROBLEM,
    'content-length': String(Buffer.byteLength(body)),
    'cache-control': 'no-store',
    connection: 'close',
  };
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
  socket.end(`HTTP/1.1 ${status} ${title}\r\n${lines.join('')}\r\n${body}`);
}
