/** Data-plane tokens as the api signs them: HS256, issuer, audience, expiry. */
import type { TokenVerifier } from '@paceline/hosting';
import { TOKEN_AUDIENCE, TOKEN_ISSUER, tokenClaimsSchema } from '@paceline/control-plane';
import { ProtocolError } from '@paceline/protocol';
import { jwtVerify } from 'jose';

export function tokenVerifier(secret: string): TokenVerifier {
  const key = new TextEncoder().encode(secret);
  return async (token) => {
    try {
      const { payload } = await jwtVerify(token, key, {
        algorithms: ['HS256'],
        issuer: TOKEN_ISSUER,
        audience: TOKEN_AUDIENCE,
        requiredClaims: ['exp'],
      });
      return tokenClaimsSchema.parse(payload);
    } catch (cause) {
      throw new ProtocolError('TOKEN_INVALID', (cause as Error).message.slice(0, 200));
    }
  };
}
