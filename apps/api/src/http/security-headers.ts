import type { FastifyInstance } from 'fastify';

const CONTENT_SECURITY_POLICY = [
  "default-src 'self'",
  "img-src 'self' data:",
  "style-src 'self'",
  "style-src-attr 'unsafe-inline'", // charts set the style attribute of SVG elements
  "connect-src 'self'",
  "object-src 'none'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join('; ');

export const SECURITY_HEADERS: Readonly<Record<string, string>> = {
  'content-security-policy': CONTENT_SECURITY_POLICY,
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
  'referrer-policy': 'no-referrer',
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  'permissions-policy': 'camera=(), geolocation=(), microphone=()',
};
const ONE_YEAR_SECONDS = 31_536_000;

export function addSecurityHeaders(instance: FastifyInstance): void {
  instance.addHook('onRequest', async (request, reply) => {
    void reply.headers(SECURITY_HEADERS);
    // Only a trusted proxy can say so: the api itself speaks plain HTTP.
    if (request.protocol === 'https') void reply.header('strict-transport-security', `max-age=${ONE_YEAR_SECONDS}`);
  });
}
