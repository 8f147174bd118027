/** Data-plane tokens: one run, one attempt, one role, 24 hours (longer than any api outage that a run should survive). */
import { Injectable } from '@nestjs/common';
import { TOKEN_AUDIENCE, TOKEN_ISSUER, type TokenClaims } from '@paceline/control-plane';
import { SignJWT } from 'jose';
import { Settings } from '../environment.js';

const LIFETIME = '24h';

@Injectable()
export class AccessTokens {
  private readonly secret: Uint8Array;

  constructor(settings: Settings) {
    this.secret = new TextEncoder().encode(settings.tokenSecret);
  }

  sign({ run, attempt, role }: Omit<TokenClaims, 'exp'>): Promise<string> {
    return new SignJWT({ run, attempt, role })
      .setProtectedHeader({ alg: 'HS256' })
      .setIssuer(TOKEN_ISSUER)
      .setAudience(TOKEN_AUDIENCE)
      .setIssuedAt()
      .setExpirationTime(LIFETIME)
      .sign(this.secret);
  }
}
