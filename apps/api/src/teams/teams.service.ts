/** Teams, their keys and their limits: who may see and change which. Keys and runs are counted under the lock of the team's row. */
import { Injectable } from '@nestjs/common';
import { TEAM_LIMITS, type TeamLimits, type TeamUse } from '@paceline/control-plane';
import type { SpecIssue } from '@paceline/spec';
import { Database } from '../database/database.js';
import { LIVE_STATUSES } from '../dispatch/shares.js';
import { Settings } from '../environment.js';
import { Fault } from '../fault.js';
import { Conflict, InvalidInput, NotFound } from '../graphql/result.types.js';
import { IdempotencyKeys, type KeyedRequest, type Remember } from '../idempotency/idempotency-keys.js';
import { isUuid, readName } from '../text-input.js';
import { generateApiKey } from './api-keys.js';
import type { Viewer } from './authentication.js';
import { activeUse, datasetBytesOf, limitsOfTeam, lockTeam } from './team-limits.js';
import { liveAdminKeys, liveKeys, lockAdminKeys } from './bootstrap.js';
import { Revocations } from './revocations.js';
import {
  CreateApiKeySuccess,
  CreateTeamSuccess,
  RevokeApiKeySuccess,
  SetTeamLimitsSuccess,
  toApiKey,
  toTeam,
  type ApiKey,
  type Team,
  type TeamLimitsInput,
  type ViewerType,
} from './team.types.js';

type CreateApiKeyOutcome = CreateApiKeySuccess | InvalidInput | NotFound | Conflict;
/** The idempotency key of a request. */
type Keyed = Pick<KeyedRequest, 'key' | 'onReplay'>;
export interface KeyOptions extends Keyed {
  readonly expiresAt?: Date | null | undefined;
  readonly readOnly?: boolean | null | undefined;
}

const MAX_TEAMS = 1_000;
const MAX_KEYS_PER_TEAM = 200;

@Injectable()
export class TeamsService {
  constructor(
    private readonly database: Database,
    private readonly keys: IdempotencyKeys,
    private readonly settings: Settings,
    private readonly revocations: Revocations,
  ) {}

  async viewer(viewer: Viewer): Promise<ViewerType> {
    const row = await this.database.apiKey.findUniqueOrThrow({ where: { id: viewer.apiKeyId }, include: { team: true } });
    return { team: toTeam(row.team), apiKey: toApiKey(row), isAdmin: viewer.isAdmin };
  }

  /** The viewer's own team, or any for an administrator. */
  async team(viewer: Viewer, id: string): Promise<Team | null> {
    if (!isUuid(id) || (id !== viewer.teamId && !viewer.isAdmin)) return null;
    const row = await this.database.team.findUnique({ where: { id } });
    return row && toTeam(row);
  }

  async apiKey(viewer: Viewer, id: string): Promise<ApiKey | null> {
    const row = isUuid(id) ? await this.database.apiKey.findFirst({ where: { id, ...this.visible(viewer) } }) : null;
    return row && toApiKey(row);
  }

  /** All that are live, the oldest first, and of those that were revoked or have expired the newest. */
  async apiKeysOf(viewer: Viewer, teamId: string): Promise<ApiKey[]> {
    if (teamId !== viewer.teamId && !viewer.isAdmin) return [];
    const live = liveKeys();
    const [own, ended] = await Promise.all([
      // The limit was another one once, and keys of administrators are not counted.
      this.database.apiKey.findMany({ where: { teamId, ...live }, orderBy: { createdAt: 'asc' } }),
      this.database.apiKey.findMany({ where: { teamId, NOT: live }, orderBy: { createdAt: 'desc' }, take: MAX_KEYS_PER_TEAM }),
    ]);
    return [...own, ...ended].map(toApiKey);
  }

  /** @throws Fault FORBIDDEN for keys that are not an administrator's */
  async createTeam(viewer: Viewer, givenName: string, keyed: Keyed = {}): Promise<CreateTeamSuccess | InvalidInput | Conflict> {
    if (!viewer.isAdmin) throw new Fault('FORBIDDEN', 'Only the administrator (the bootstrap key) makes teams.');
    return this.keys.once<CreateTeamSuccess | InvalidInput | Conflict>(
      viewer,
      { operation: 'createTeam', input: givenName, ...keyed },
      (remember) => this.createTeamOnce(givenName, remember),
      async (id) => new CreateTeamSuccess(toTeam(await this.database.team.findUniqueOrThrow({ where: { id } }))),
    );
  }

  private async createTeamOnce(givenName: string, remember: Remember): Promise<CreateTeamSuccess | InvalidInput | Conflict> {
    const { name, issues } = readName('name', givenName);
    if (issues.length > 0) return new InvalidInput(issues);
    if ((await this.database.team.count()) >= MAX_TEAMS) return new Conflict(`There are ${MAX_TEAMS} teams already.`);
    return this.database.transact(async (transaction) => {
      const { count } = await transaction.team.createMany({ data: { name }, skipDuplicates: true });
      if (count === 0) return new Conflict(`There is a team ${JSON.stringify(name)} already.`);
      const row = await transaction.team.findUniqueOrThrow({ where: { name } });
      await remember(transaction, row.id);
      return new CreateTeamSuccess(toTeam(row));
    });
  }

  /**
   * The secret is shown once: asked for again under the same idempotency key, nothing is made, and the key is named.
   * @param options when it ends by itself, and whether it may only look; a key that ends makes none that lives longer
   */
  createApiKey(viewer: Viewer, teamId: string, givenName: string, options: KeyOptions = {}): Promise<CreateApiKeyOutcome> {
    const { expiresAt = null, readOnly = null, key, onReplay } = options;
    return this.keys.once<CreateApiKeyOutcome>(
      viewer,
      { operation: 'createApiKey', input: [teamId, givenName, expiresAt?.getTime() ?? null, readOnly], key, onReplay },
      (remember) => this.createApiKeyOnce(viewer, teamId, givenName, options, remember),
      async (id) =>
        new Conflict(
          `This idempotency key has made the API key ${id} already, and a secret is shown once. If that answer was lost, revoke the key and ask again with a new idempotency key.`,
        ),
    );
  }

  private async createApiKeyOnce(
    viewer: Viewer,
    teamId: string,
    givenName: string,
    limits: KeyOptions,
    remember: Remember,
  ): Promise<CreateApiKeyOutcome> {
    const { name, issues } = readName('name', givenName);
    if (!(await this.team(viewer, teamId))) return new NotFound('team with this id');
    issues.push(...(await this.checkExpiry(viewer, limits.expiresAt ?? null)));
    if (issues.length > 0) return new InvalidInput(issues);
    const { key, prefix, hash } = generateApiKey();
    const { expiresAt = null, readOnly } = limits;
    return this.database.transact(async (transaction) => {
      await lockTeam(transaction, teamId);
      if ((await transaction.apiKey.count({ where: { teamId, ...liveKeys() } })) >= MAX_KEYS_PER_TEAM)
        return new InvalidInput([{ path: 'teamId', message: `the team has ${MAX_KEYS_PER_TEAM} keys; revoke one first` }]);
      const data = { teamId, name, prefix, hash, expiresAt, isReadOnly: readOnly ?? false };
      const created = await transaction.apiKey.create({ data });
      await remember(transaction, created.id);
      return new CreateApiKeySuccess(toApiKey(created), key);
    });
  }

  /** Fields that are left out stay; null is the limit that holds for all teams. @throws Fault FORBIDDEN for keys that are not an administrator's */
  async setLimits(viewer: Viewer, teamId: string, given: TeamLimitsInput): Promise<SetTeamLimitsSuccess | InvalidInput | NotFound> {
    if (!viewer.isAdmin) throw new Fault('FORBIDDEN', 'Only the administrator (the bootstrap key) sets limits of teams.');
    const issues = TEAM_LIMITS.flatMap((limit) => {
      const value = given[limit];
      if (value === undefined || value === null || (Number.isSafeInteger(value) && value >= 0)) return [];
      return [{ path: `limits.${limit}`, message: 'must be a whole number from 0, or null for the limit of all teams' }];
    });
    if (issues.length > 0) return new InvalidInput(issues);
    if (!(await this.team(viewer, teamId))) return new NotFound('team with this id');
    const data = {
      maxActiveRuns: given.activeRuns,
      maxServerPlaces: given.serverPlaces,
      maxWorkers: given.workers,
      maxParameters: given.parameters,
      maxDatasetBytes: given.datasetBytes,
    };
    const set = Object.fromEntries(Object.entries(data).filter(([, value]) => value !== undefined));
    return new SetTeamLimitsSuccess(toTeam(await this.database.team.update({ where: { id: teamId }, data: set })));
  }

  /** What a team may have, its own limits before those of all teams. Null for others than the team itself and the administrator. */
  async limits(viewer: Viewer, teamId: string): Promise<TeamLimits | null> {
    if (teamId !== viewer.teamId && !viewer.isAdmin) return null;
    return limitsOfTeam(await this.database.team.findUniqueOrThrow({ where: { id: teamId } }), this.settings);
  }

  async use(viewer: Viewer, teamId: string): Promise<TeamUse | null> {
    if (teamId !== viewer.teamId && !viewer.isAdmin) return null;
    const [active, live, workers, datasetBytes] = await Promise.all([
      activeUse(this.database, teamId),
      this.database.run.aggregate({ where: { teamId, status: { in: LIVE_STATUSES } }, _sum: { serverCount: true } }),
      this.database.stepTask.count({ where: { state: 'HELD', run: { teamId, status: { in: LIVE_STATUSES } } } }),
      datasetBytesOf(this.database, teamId),
    ]);
    return { ...active, serverPlaces: live._sum.serverCount ?? 0, workers, datasetBytes };
  }

  /**
   * Works at once: keys are looked up for each request, and what the key has opened is closed.
   * @throws Fault FORBIDDEN
   */
  async revokeApiKey(viewer: Viewer, id: string): Promise<RevokeApiKeySuccess | NotFound | Conflict> {
    if (!(await this.apiKey(viewer, id))) return new NotFound('API key with this id');
    const result = await this.database.transact(async (transaction) => {
      await lockAdminKeys(transaction);
      const row = await transaction.apiKey.findUniqueOrThrow({ where: { id } });
      if (row.isAdmin && !viewer.isAdmin) throw new Fault('FORBIDDEN', "Only an administrator's key revokes an administrator's key.");
      if (row.revokedAt) return row;
      if (row.isAdmin && (await transaction.apiKey.count({ where: { ...liveAdminKeys(), NOT: { id } } })) === 0) {
        return new Conflict(
          "This is the last administrator's key. Start the api with another PACELINE_BOOTSTRAP_KEY: it takes the place of this one.",
        );
      }
      return transaction.apiKey.update({ where: { id }, data: { revokedAt: new Date() } });
    });
    if (result instanceof Conflict) return result;
    this.revocations.revoked(id);
    return new RevokeApiKeySuccess(toApiKey(result));
  }

  private async checkExpiry(viewer: Viewer, expiresAt: Date | null): Promise<SpecIssue[]> {
    if (expiresAt !== null && !(expiresAt.getTime() > Date.now())) return [{ path: 'expiresAt', message: 'must be in the future' }];
    const own = await this.database.apiKey.findUniqueOrThrow({ where: { id: viewer.apiKeyId }, select: { expiresAt: true } });
    if (own.expiresAt === null || (expiresAt !== null && expiresAt <= own.expiresAt)) return [];
    return [{ path: 'expiresAt', message: `must not be after ${own.expiresAt.toISOString()}, when the key that asks expires` }];
  }

  private visible(viewer: Viewer) {
    return viewer.isAdmin ? {} : { teamId: viewer.teamId };
  }
}
