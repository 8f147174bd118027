/**
 * Bodies that are too long for memory: routes named here get them as a stream, whatever their content type, and store them as they come
 * (datasets/dataset-shards.ts). All other bodies have to arrive within a deadline; Node has one for whole requests only, and a shard may
 * take longer.
 */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { Fault } from '../fault.js';
import { sendFault } from './problem.filter.js';
import { answerClientError } from './unreadable-requests.js';

/** As the router knows them. */
export const UPLOAD_ROUTES: ReadonlySet<string> = new Set([
  'PUT /api/v1/datasets/shards/:sha256',
  'POST /api/v1/datasets/uploads',
  'POST /api/v1/datasets/:name/versions',
  'PUT /api/v1/models/weights/:sha256',
]);
const STREAM = 'application/octet-stream';

const isUpload = (request: FastifyRequest): boolean => UPLOAD_ROUTES.has(`${request.method} ${request.routeOptions.url}`);

/** Bytes that the header Content-Length declares; undefined without one, or when it is not a number. */
export const contentLengthOf = (header: string | undefined): number | undefined =>
  header !== undefined && /^\d{1,15}$/.test(header) ? Number(header) : undefined;

export function addUploads(instance: FastifyInstance, bodyDeadlineMs: number): void {
  instance.addHook('onRequest', async (request: FastifyRequest, reply: FastifyReply) => {
    if (!isUpload(request)) return undefined;
    if (/^multipart\//i.test(request.headers['content-type'] ?? ''))
      return sendFault(request, reply, new Fault('UNSUPPORTED_MEDIA_TYPE', 'Send the bytes of the file as the body, not as a form.'));
    request.headers['content-type'] = STREAM;
    return undefined;
  });
  instance.addContentTypeParser(
    STREAM,
    (request: FastifyRequest, payload: unknown, done: (error: Error | null, body?: unknown) => void) => {
      if (isUpload(request)) return done(null, payload);
      return done(new Fault('UNSUPPORTED_MEDIA_TYPE', `Unsupported Media Type: ${STREAM}`));
    },
  );
  instance.addHook('preParsing', async (request: FastifyRequest) => {
    const { raw } = request;
    if (isUpload(request) || raw.complete || raw.method === 'GET' || raw.method === 'HEAD') return;
    const late = (): void => answerClientError(Object.assign(new Error('late'), { code: 'ERR_HTTP_REQUEST_TIMEOUT' }), raw.socket);
    const timer = setTimeout(late, bodyDeadlineMs);
    const clear = (): void => clearTimeout(timer);
    raw.once('end', clear).once('close', clear);
  });
}
