import { Injectable } from '@nestjs/common';
import { Database } from '../database/database.js';
import { Fault } from '../fault.js';
import { Conflict, InvalidInput, NotFound } from '../graphql/result.types.js';
import { IdempotencyKeys, type KeyedRequest, type Remember } from '../idempotency/idempotency-keys.js';
import { isUuid, readName } from '../text-input.js';
import { generateApiKey } from './api-keys.js';
import type { Viewer } from './authentication.js';
import {
  CreateApiKeySuccess,
  CreateTeamSuccess,
  RevokeApiKeySuccess,
  toApiKey,
  toTeam,
  type ApiKey,
  type Team,
  type ViewerType,
} from './team.types.js';

type CreateApiKeyOutcome = CreateApiKeySuccess | InvalidInput | NotFound | Conflict;
/** The idempotency key of a request. */
type Keyed = Pick<KeyedRequest, 'key' | 'onReplay'>;

const MAX_TEAMS = 1_000;
const MAX_KEYS_PER_TEAM = 200;

@Injectable()
export class TeamsService {
  constructor(
    private readonly database: Database,
    private readonly keys: IdempotencyKeys,
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

  async apiKeysOf(viewer: Viewer, teamId: string): Promise<ApiKey[]> {
    if (teamId !== viewer.teamId && !viewer.isAdmin) return [];
    const rows = await this.database.apiKey.findMany({ where: { teamId }, orderBy: { createdAt: 'asc' }, take: MAX_KEYS_PER_TEAM * 2 });
    return rows.map(toApiKey);
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

  /** The secret is shown once: asked for again under the same idempotency key, nothing is made, and the key is named. */
  createApiKey(viewer: Viewer, teamId: string, givenName: string, keyed: Keyed = {}): Promise<CreateApiKeyOutcome> {
    return this.keys.once<CreateApiKeyOutcome>(
      viewer,
      { operation: 'createApiKey', input: [teamId, givenName], ...keyed },
      (remember) => this.createApiKeyOnce(viewer, teamId, givenName, remember),
      async (id) =>
        new Conflict(
          `This idempotency key has made the API key ${id} already, and a secret is shown once. If that answer was lost, revoke the key and ask again with a new idempotency key.`,
        ),
    );
  }

  private async createApiKeyOnce(viewer: Viewer, teamId: string, givenName: string, remember: Remember): Promise<CreateApiKeyOutcome> {
    const { name, issues } = readName('name', givenName);
    if (!(await this.team(viewer, teamId))) return new NotFound('team with this id');
    if (issues.length > 0) return new InvalidInput(issues);
    if ((await this.database.apiKey.count({ where: { teamId, revokedAt: null } })) >= MAX_KEYS_PER_TEAM) {
      return new InvalidInput([{ path: 'teamId', message: `the team has ${MAX_KEYS_PER_TEAM} keys; revoke one first` }]);
    }
    const { key, prefix, hash } = generateApiKey();
    const row = await this.database.transact(async (transaction) => {
      const created = await transaction.apiKey.create({ data: { teamId, name, prefix, hash } });
      await remember(transaction, created.id);
      return created;
    });
    return new CreateApiKeySuccess(toApiKey(row), key);
  }

  /** Works at once: keys are looked up for each request. */
  async revokeApiKey(viewer: Viewer, id: string): Promise<RevokeApiKeySuccess | NotFound> {
    if (!(await this.apiKey(viewer, id))) return new NotFound('API key with this id');
    await this.database.apiKey.updateMany({ where: { id, revokedAt: null }, data: { revokedAt: new Date() } });
    return new RevokeApiKeySuccess(toApiKey(await this.database.apiKey.findUniqueOrThrow({ where: { id } })));
  }

  private visible(viewer: Viewer) {
    return viewer.isAdmin ? {} : { teamId: viewer.teamId };
  }
}
