/** The first team and its administrator's key, made at the first start. Two apis that start together agree on one. */
import { Injectable } from '@nestjs/common';
import { Database } from '../database/database.js';
import { Settings } from '../environment.js';
import { UserError } from '@paceline/runtime';
import { describeApiKey, generateApiKey, sameHash } from './api-keys.js';

export const DEFAULT_TEAM = 'default';
const LOCK_KEY = 7_264_102;

@Injectable()
export class Bootstrap {
  constructor(
    private readonly database: Database,
    private readonly settings: Settings,
  ) {}

  /**
   * @returns the new administrator's key when one was made here: the only time that it can be shown
   * @throws UserError BOOTSTRAP_KEY_TAKEN
   */
  run(): Promise<string | undefined> {
    const wanted = this.settings.bootstrapKey === undefined ? undefined : describeApiKey(this.settings.bootstrapKey);
    return this.database.transact(async (transaction) => {
      await transaction.$executeRaw`SELECT pg_advisory_xact_lock(${LOCK_KEY})`;
      const team = await transaction.team.upsert({ where: { name: DEFAULT_TEAM }, create: { name: DEFAULT_TEAM }, update: {} });
      if (wanted) {
        const present = await transaction.apiKey.findUnique({ where: { prefix: wanted.prefix } });
        if (present && (!sameHash(present.hash, wanted.hash) || present.revokedAt)) {
          throw new UserError(
            'BOOTSTRAP_KEY_TAKEN',
            `PACELINE_BOOTSTRAP_KEY names the key ${wanted.prefix}, which is ${present.revokedAt ? 'revoked' : 'another one'}.`,
            {
              hint: 'Leave the variable away, or choose a new key.',
              exit: 'configuration',
            },
          );
        }
        if (present) return undefined;
      } else if ((await transaction.apiKey.count({ where: { isAdmin: true, revokedAt: null } })) > 0) return undefined;
      const { prefix, hash, key } = wanted ?? generateApiKey();
      await transaction.apiKey.create({ data: { teamId: team.id, name: 'bootstrap', isAdmin: true, prefix, hash } });
      return wanted ? undefined : key;
    });
  }
}
