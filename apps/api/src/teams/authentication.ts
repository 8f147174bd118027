/** Who asks: from an Authorization header or connection parameters to a viewer. Every surface goes through here. */
import { Injectable } from '@nestjs/common';
import { Database } from '../database/database.js';
import { Fault } from '../fault.js';
import { describeApiKey, MAX_KEY_CHARACTERS, sameHash } from './api-keys.js';
import { BadKeyLimiter } from './bad-key-limiter.js';

export interface Viewer {
  readonly apiKeyId: string;
  readonly teamId: string;
  readonly isAdmin: boolean;
}

const LAST_USED_EVERY_MS = 60_000;
const MAX_NOTED_KEYS = 10_000;
const HINT = 'Send "Authorization: Bearer pcl_..."; `paceline up` shows the first key.';

@Injectable()
export class Authentication {
  private readonly limiter = new BadKeyLimiter();
  private readonly notedAt = new Map<string, number>();

  constructor(private readonly database: Database) {}

  /**
   * @param credential an Authorization header (`Bearer KEY`) or a bare key
   * @throws Fault UNAUTHENTICATED, TOO_MANY_ATTEMPTS
   */
  async viewerOf(credential: unknown, remoteAddress: string): Promise<Viewer> {
    const key = typeof credential === 'string' ? credential.replace(/^Bearer\s+/i, '').trim() : '';
    if (!key) throw new Fault('UNAUTHENTICATED', `No API key was sent. ${HINT}`);
    const { prefix, hash } = describeApiKey(key.slice(0, MAX_KEY_CHARACTERS + 1));
    const hashText = Buffer.from(hash).toString('hex');
    const waitSeconds = this.limiter.retryAfterSeconds(remoteAddress, hashText);
    if (waitSeconds > 0)
      throw new Fault('TOO_MANY_ATTEMPTS', `Too many wrong API keys came from this address; try again in ${waitSeconds} s.`, waitSeconds);
    const row = key.length > MAX_KEY_CHARACTERS ? null : await this.database.apiKey.findUnique({ where: { prefix } });
    if (!row || !sameHash(row.hash, hash) || row.revokedAt) {
      this.limiter.failed(remoteAddress);
      throw new Fault('UNAUTHENTICATED', `This API key is not known, or was revoked. ${HINT}`);
    }
    this.limiter.succeeded(hashText);
    this.noteUse(row.id);
    return { apiKeyId: row.id, teamId: row.teamId, isAdmin: row.isAdmin };
  }

  /** At most once a minute per key; a failure is no reason to refuse the request. */
  private noteUse(apiKeyId: string): void {
    const now = Date.now();
    if (now - (this.notedAt.get(apiKeyId) ?? 0) < LAST_USED_EVERY_MS) return;
    if (this.notedAt.size >= MAX_NOTED_KEYS) this.notedAt.clear();
    this.notedAt.set(apiKeyId, now);
    this.database.apiKey
      .updateMany({ where: { id: apiKeyId }, data: { lastUsedAt: new Date(now) } })
      .catch(() => this.notedAt.delete(apiKeyId));
  }
}
