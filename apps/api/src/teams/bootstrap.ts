/**
 * The first team and its administrator's key, made at the first start. Two apis that start together agree on one.
 *
 * PACELINE_BOOTSTRAP_KEY is the administrator's key: a new value becomes a key at the next start, and the keys that it had before are revoked
 * (rotation). A value that was revoked stays refused and stops nobody: an api that was started with an old environment says so and goes on.
 * Only when no administrator's key is left one is made and shown, as at the first start.
 */
import { Inject, Injectable } from '@nestjs/common';
import { UserError, type Logger } from '@paceline/runtime';
import { Database, type Transaction } from '../database/database.js';
import { Settings } from '../environment.js';
import { LOGGER } from '../logger.js';
import { describeApiKey, generateApiKey, type NewApiKey } from './api-keys.js';
import { Revocations } from './revocations.js';

export const DEFAULT_TEAM = 'default';
const BOOTSTRAP_NAME = 'bootstrap';
const LOCK_KEY = 7_264_102;

/** Until the end of the transaction nobody else makes or revokes administrators' keys. */
export async function lockAdminKeys(transaction: Transaction): Promise<void> {
  await transaction.$executeRaw`SELECT pg_advisory_xact_lock(${LOCK_KEY})`;
}

/** Those that open the door now. */
export const liveKeys = () => ({ revokedAt: null, OR: [{ expiresAt: null }, { expiresAt: { gt: new Date() } }] });
export const liveAdminKeys = () => Object.assign(liveKeys(), { isAdmin: true });

@Injectable()
export class Bootstrap {
  constructor(
    private readonly database: Database,
    private readonly settings: Settings,
    private readonly revocations: Revocations,
    @Inject(LOGGER) private readonly log: Logger,
  ) {}

  /**
   * @returns the new administrator's key when one was made here: the only time that it can be shown
   * @throws UserError BOOTSTRAP_KEY_TAKEN
   */
  async run(): Promise<string | undefined> {
    const wanted = this.settings.bootstrapKey === undefined ? undefined : describeApiKey(this.settings.bootstrapKey);
    const { shown, replaced } = await this.database.transact(async (transaction) => {
      await lockAdminKeys(transaction);
      const team = await transaction.team.upsert({ where: { name: DEFAULT_TEAM }, create: { name: DEFAULT_TEAM }, update: {} });
      const make = ({ prefix, hash }: NewApiKey) =>
        transaction.apiKey.create({ data: { teamId: team.id, name: BOOTSTRAP_NAME, isAdmin: true, prefix, hash } });
      if (wanted) {
        const present = await this.present(transaction, wanted);
        if (!present?.revokedAt) {
          const { id, createdAt } = present ?? (await make(wanted));
          return { shown: undefined, replaced: await this.replace(transaction, id, createdAt) };
        }
        const { revokedAt, prefix } = present;
        this.log.warn({ prefix, revokedAt }, 'PACELINE_BOOTSTRAP_KEY names a key that was revoked: it stays refused. Choose a new value');
      }
      if ((await transaction.apiKey.count({ where: liveAdminKeys() })) > 0) return { shown: undefined, replaced: [] };
      const made = generateApiKey();
      await make(made);
      return { shown: made.key, replaced: [] };
    });
    for (const { id, prefix } of replaced) {
      this.log.info({ prefix }, 'the administrator key before the one in PACELINE_BOOTSTRAP_KEY is revoked');
      this.revocations.revoked(id);
    }
    return shown;
  }

  private async present(transaction: Transaction, { prefix, hash }: NewApiKey) {
    const same = await transaction.apiKey.findUnique({ where: { hash } });
    if (same?.isAdmin) return same;
    const other = same ?? (await transaction.apiKey.findUnique({ where: { prefix } }));
    if (!other) return null;
    throw new UserError(
      'BOOTSTRAP_KEY_TAKEN',
      `PACELINE_BOOTSTRAP_KEY names the key ${prefix}, which is ${same ? "an ordinary key and not an administrator's" : 'another one'}.`,
      { hint: 'Set the right key, or choose a new one: openssl rand -hex 24', exit: 'configuration' },
    );
  }

  /** Keys that the variable had before: only older ones, so that an api with an old environment takes nothing back. */
  private async replace(transaction: Transaction, id: string, createdAt: Date) {
    const older = await transaction.apiKey.findMany({
      where: { isAdmin: true, name: BOOTSTRAP_NAME, revokedAt: null, createdAt: { lt: createdAt }, NOT: { id } },
      select: { id: true, prefix: true },
    });
    await transaction.apiKey.updateMany({ where: { id: { in: older.map((key) => key.id) } }, data: { revokedAt: new Date() } });
    return older;
  }
}
