/**
 * Entity tags (RFC 9110 §8.8.3) for what is read again and again: every JSON answer to a GET has one, over REST and GraphQL. Who asks with the tag that
 * it has (If-None-Match) is answered 304 without a body as long as nothing has changed. The answer is computed all the same: what this saves
 * is the way to the client, and the client's work with it.
 */
import { createHash } from 'node:crypto';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';

export function addEntityTags(instance: FastifyInstance): void {
  instance.addHook('onSend', async (request: FastifyRequest, reply: FastifyReply, payload: unknown) => {
    if (request.method !== 'GET' || reply.statusCode !== 200 || reply.hasHeader('etag')) return payload;
    const isJson = /\bjson\b/.test(String(reply.getHeader('content-type') ?? ''));
    if (!isJson || (typeof payload !== 'string' && !Buffer.isBuffer(payload))) return payload;
    // Weak: equal in content, whatever a proxy does to its bytes.
    const tag = `W/"${createHash('sha1').update(payload).digest('base64url')}"`;
    // What one key may see, another may not: kept by nobody between, and asked for again each time.
    void reply.headers({ etag: tag, vary: 'authorization', 'cache-control': 'private, no-cache' });
    if (!names(request.headers['if-none-match'], tag)) return payload;
    void reply.code(304).removeHeader('content-type').removeHeader('content-length');
    return '';
  });
}

/** Whether an If-None-Match header names the tag; strong and weak ones compare alike. */
export function names(header: string | undefined, tag: string): boolean {
  if (header === undefined) return false;
  const opaque = (text: string): string => text.trim().replace(/^W\//, '');
  return header.trim() === '*' || header.split(',').some((candidate) => opaque(candidate) === opaque(tag));
}
