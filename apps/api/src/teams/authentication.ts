/** Authentication finds the viewer from an Authorization header or from connection parameters. Every surface goes through here. */
import { Injectable } from '@nestjs/common';
import { Database } from '../database/database.js';
import { Fault } from '../fault.js';
import type { ApiKey } from '../generated/prisma/client.js';
import { Turns } from '../turns.js';
import { hashOf, MAX_KEY_CHARACTERS } from './api-keys.js';
import { BadKeyLimiter } from './bad-key-limiter.js';
import { Revocations } from './revocations.js';
import { RightKeys } from './right-keys.js';

export interface Viewer {
  readonly apiKeyId: string;
  readonly teamId: string;
  readonly isAdmin: boolean;
  /** It may look at everything of its team and change nothing. */
  readonly isReadOnly: boolean;
}

const READ_KEY = `SELECT "id", "teamId", "isAdmin", "isReadOnly", "expiresAt", "revokedAt" FROM "ApiKey" WHERE "hash" = $1`;
type StoredKey = Pick<ApiKey, 'id' | 'teamId' | 'isAdmin' | 'isReadOnly' | 'expiresAt' | 'revokedAt'>;

const LAST_USED_EVERY_MS = 60_000;
const MAX_NOTED_KEYS = 10_000;
const HINT = 'Send "Authorization: Bearer pcl_..."; `paceline up` shows the first key.';
/** Bounds for addresses that guess: their look-ups must not take the connections to PostgreSQL from everybody else. */
const LOOKUPS_OF_GUESSERS = { atOnce: 2, waiting: 64, waitMs: 2_000 };

@Injectable()
export class Authentication {
  private readonly limiter = new BadKeyLimiter();
  private readonly guessers = new Turns(LOOKUPS_OF_GUESSERS, () => tooMany(1));
  private readonly rightKeys = new RightKeys();
  private readonly notedAt = new Map<string, number>();

  constructor(
    private readonly database: Database,
    revocations: Revocations,
  ) {
    revocations.listen((apiKeyId) => this.rightKeys.forget(apiKeyId));
  }

  /**
   * @param credential an Authorization header (`Bearer KEY`) or a bare key
   * @throws Fault UNAUTHENTICATED, TOO_MANY_ATTEMPTS
   */
  async viewerOf(credential: unknown, remoteAddress: string): Promise<Viewer> {
    const key = typeof credential === 'string' ? credential.replace(/^Bearer\s+/i, '').trim() : '';
    if (!key) throw new Fault('UNAUTHENTICATED', `No API key was sent. ${HINT}`);
    const hash = hashOf(key.slice(0, MAX_KEY_CHARACTERS + 1));
    const hashText = Buffer.from(hash).toString('hex');
    const row = key.length > MAX_KEY_CHARACTERS || this.limiter.wasWrong(hashText) ? null : await this.find(hash, hashText, remoteAddress);
    const isExpired = row?.expiresAt != null && row.expiresAt.getTime() <= Date.now();
    if (!row || row.revokedAt || isExpired) {
      if (row) this.rightKeys.forget(row.id);
      this.limiter.failed(remoteAddress, hashText);
      const waitSeconds = this.limiter.retryAfterSeconds(remoteAddress);
      if (waitSeconds > 0) throw tooMany(waitSeconds);
      throw new Fault('UNAUTHENTICATED', `This API key ${isExpired ? 'has expired' : 'is not known, or was revoked'}. ${HINT}`);
    }
    this.rightKeys.remember(hashText, row.id);
    this.noteUse(row.id);
    return { apiKeyId: row.id, teamId: row.teamId, isAdmin: row.isAdmin, isReadOnly: row.isReadOnly };
  }

  /** Which of these keys may go on with what they opened. Nothing here counts as an attempt. */
  async valid(apiKeyIds: readonly string[]): Promise<ReadonlySet<string>> {
    const notExpired = [{ expiresAt: null }, { expiresAt: { gt: new Date() } }];
    const where = { id: { in: [...apiKeyIds] }, revokedAt: null, OR: notExpired };
    return new Set((await this.database.apiKey.findMany({ where, select: { id: true } })).map(({ id }) => id));
  }

  /** A key that was right a moment ago is no guess: it is looked up past those who guess at its address. */
  private find(hash: Uint8Array<ArrayBuffer>, hashText: string, remoteAddress: string) {
    const look = async (): Promise<StoredKey | undefined> =>
      (await this.database.rows<StoredKey>('api-key', READ_KEY, [Buffer.from(hash)]))[0];
    const mayBeGuess = this.limiter.retryAfterSeconds(remoteAddress) > 0 && !this.rightKeys.wasRight(hashText);
    return mayBeGuess ? this.guessers.run('', look) : look();
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

const tooMany = (waitSeconds: number): Fault =>
  new Fault('TOO_MANY_ATTEMPTS', `Too many wrong API keys came from this address; try again in ${waitSeconds} s.`, waitSeconds);
