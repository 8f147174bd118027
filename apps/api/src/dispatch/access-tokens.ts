/**
 * Data-plane tokens: one run, one attempt, one role, 24 hours (longer than any api outage that a run should survive). A worker that holds a shard is sent
 * its tokens once, for the whole attempt: what ends them is the end of the attempt, with which its key opens nothing any more.
 */
import { Injectable } from '@nestjs/common';
import { attemptKey, TOKEN_AUDIENCE, TOKEN_ISSUER, type TokenClaims } from '@paceline/control-plane';
import { SignJWT } from 'jose';
import { Settings } from '../environment.js';

const LIFETIME = '24h';
/** Longer than any attempt. */
const LIFETIME_OF_MEMBERS = '10y';

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
      (['server', 'worker'] as const).map((role) => this.sign({ run, attempt, role }, tokenKey, LIFETIME_OF_MEMBERS)),
    );
    return { tokenKey, token: token!, seatToken: seatToken! };
  }

  sign({ run, attempt, role }: Omit<TokenClaims, 'exp'>, key = this.settings.tokenSecret, lifetime = LIFETIME): Promise<string> {
    return new SignJWT({ run, attempt, role })
      .setProtectedHeader({ alg: 'HS256' })
      .setIssuer(TOKEN_ISSUER)
      .setAudience(TOKEN_AUDIENCE)
      .setIssuedAt()
      .setExpirationTime(lifetime)
      .sign(new TextEncoder().encode(key));
  }
}
