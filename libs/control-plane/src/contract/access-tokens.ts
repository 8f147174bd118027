/**
 * Claims of the access token that servers and workers show in HELLO.
 */
import { z } from 'zod';
import { uuid } from './queues.js';

/** Claims of the data-plane token (JWT, HS256, signed by api with PACELINE_TOKEN_SECRET, checked by ps at HELLO). */
export const tokenClaimsSchema = z.object({
  run: uuid,
  attempt: z.int().min(1),
  role: z.enum(['worker', 'server']),
  /** Seconds since the epoch, beyond the end of any attempt. */
  exp: z.int(),
});

export type TokenClaims = z.output<typeof tokenClaimsSchema>;

export const TOKEN_ISSUER = 'paceline-api';

export const TOKEN_AUDIENCE = 'paceline-data-plane';
