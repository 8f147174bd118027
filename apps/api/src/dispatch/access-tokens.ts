/**
 * Data-plane tokens: one run, one attempt, one role. Servers and workers are sent theirs once and show it again at every connection, which an attempt may need after
 * weeks: a standby that takes over, a link that breaks. So what ends a token is the end of its attempt: servers refuse every attempt but the present one.
 */
import { Injectable } from '@nestjs/common';
import { attemptKey, TOKEN_AUDIENCE, TOKEN_ISSUER, type TokenClaims } from '@paceline/control-plane';
import { SignJWT } from 'jose';
import { Settings } from '../environment.js';

/** Longer than any attempt. */
const LIFETIME = '10y';

@Injectable()
export class AccessTokens {
  constructor(private readonly settings: Settings) {}

  /** Where workers hold the shards: with a key of this attempt alone, which they are given to check tokens with. */
  async ofMembers(
    run: string,
    attempt: number,
  ): Promise<{ readonly tokenKey: string; readonly token: string; readonly seatToken: string }> {
    const tokenKey = attemptKey(this.settings.tokenSecret, run, attempt);
    const [token, seatToken] = await Promise.all(
      (['server', 'worker'] as const).map((role) => this.sign({ run, attempt, role }, tokenKey)),
    );
    return { tokenKey, token: token!, seatToken: seatToken! };
  }

  sign({ run, attempt, role }: Omit<TokenClaims, 'exp'>, key = this.settings.tokenSecret): Promise<string> {
    return new SignJWT({ run, attempt, role })
      .setProtectedHeader({ alg: 'HS256' })
      .setIssuer(TOKEN_ISSUER)
      .setAudience(TOKEN_AUDIENCE)
      .setIssuedAt()
      .setExpirationTime(LIFETIME)
      .sign(new TextEncoder().encode(key));
  }
}
