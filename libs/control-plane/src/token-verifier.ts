/**
 * Data-plane tokens as the api signs them: HS256, issuer, audience, expiry. Parameter servers check them with the secret of the installation. A worker
 * that holds a shard runs the models of every team and is not given that: tokens of such an attempt are signed with a key made from the secret, and
 * its workers get the key of their attempt alone.
 */
import { createHmac } from 'node:crypto';
import { ProtocolError } from '@paceline/protocol';
import { decodeJwt, jwtVerify } from 'jose';
import { TOKEN_AUDIENCE, TOKEN_ISSUER, tokenClaimsSchema, type TokenClaims } from './contract/access-tokens.js';

/** Signs and checks the tokens of one attempt whose workers hold the shards. Nobody gets back from it to the secret. */
export const attemptKey = (secret: string, run: string, attempt: number): string =>
  createHmac('sha256', secret).update(`paceline tokens of ${run} attempt ${attempt}`).digest('hex');

/**
 * The key for a token that names this attempt, at a worker that holds one attempt of the run. It has no other keys; a token of an older attempt is late,
 * and one of a later attempt early. @throws ProtocolError STALE_FENCE
 */
export function memberKey(
  held: { readonly attempt: number; readonly tokenKey: string | undefined } | undefined,
  attempt: number,
): string | undefined {
  if (held && attempt < held.attempt) throw new ProtocolError('STALE_FENCE', `attempt ${attempt}, present is ${held.attempt}`);
  return held?.attempt === attempt ? held.tokenKey : undefined;
}

/**
 * @param keyOf for the run and attempt that the token names, which is not checked yet; undefined where they are not known here
 * @returns a check that throws ProtocolError TOKEN_INVALID, or RUN_UNKNOWN where there is no key
 */
export function tokenVerifier(keyOf: (runId: string, attempt: number) => string | undefined): (token: string) => Promise<TokenClaims> {
  return async (token) => {
    try {
      const { run, attempt } = decodeJwt(token);
      const key = keyOf(String(run), Number(attempt));
      if (key === undefined) throw new ProtocolError('RUN_UNKNOWN');
      const { payload } = await jwtVerify(token, new TextEncoder().encode(key), {
        algorithms: ['HS256'],
        issuer: TOKEN_ISSUER,
        audience: TOKEN_AUDIENCE,
        requiredClaims: ['exp'],
      });
      return tokenClaimsSchema.parse(payload);
    } catch (cause) {
      if (cause instanceof ProtocolError) throw cause;
      throw new ProtocolError('TOKEN_INVALID', (cause as Error).message.slice(0, 200));
    }
  };
}
