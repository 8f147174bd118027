import { Injectable } from '@nestjs/common';
import { LIMITS, type SpecIssue } from '@paceline/spec';
import { Database } from '../database/database.js';
import { Conflict, InvalidInput } from '../graphql/result.types.js';
import { IdempotencyKeys, type KeyedRequest, type Remember } from '../idempotency/idempotency-keys.js';
import type { Viewer } from '../teams/authentication.js';
import { isUuid, readName } from '../text-input.js';
import { CreateClusterSpecSuccess, toClusterSpec, type ClusterSpec, type CreateClusterSpecInput } from './cluster-spec.types.js';

type Created = CreateClusterSpecSuccess | InvalidInput | Conflict;

const MAX_PER_TEAM = 500;
const ADDRESS = /^(?:\[[0-9a-f:.]{2,45}\]|[a-z0-9_](?:[a-z0-9_.-]{0,252}[a-z0-9])?):(\d{1,5})$/i;

@Injectable()
export class ClusterSpecs {
  constructor(
    private readonly database: Database,
    private readonly keys: IdempotencyKeys,
  ) {}

  async list(viewer: Viewer): Promise<ClusterSpec[]> {
    const rows = await this.database.clusterSpec.findMany({
      where: { teamId: viewer.teamId },
      orderBy: { createdAt: 'asc' },
      take: MAX_PER_TEAM,
    });
    return rows.map(toClusterSpec);
  }

  async find(viewer: Viewer, id: string): Promise<ClusterSpec | null> {
    const row = isUuid(id) ? await this.database.clusterSpec.findFirst({ where: { id, teamId: viewer.teamId } }) : null;
    return row && toClusterSpec(row);
  }

  create(viewer: Viewer, input: CreateClusterSpecInput, keyed: Pick<KeyedRequest, 'key' | 'onReplay'> = {}): Promise<Created> {
    return this.keys.once<Created>(
      viewer,
      { operation: 'createClusterSpec', input, ...keyed },
      (remember) => this.createOnce(viewer, input, remember),
      async (id) => new CreateClusterSpecSuccess(toClusterSpec(await this.database.clusterSpec.findUniqueOrThrow({ where: { id } }))),
    );
  }

  private async createOnce(viewer: Viewer, input: CreateClusterSpecInput, remember: Remember): Promise<Created> {
    const { name, issues } = readName('name', input.name);
    const servers = input.servers ?? [];
    const workers = input.workers ?? [];
    issues.push(...addressIssues('servers', servers, LIMITS.servers), ...addressIssues('workers', workers, LIMITS.replicas));
    if (issues.length > 0) return new InvalidInput(issues.slice(0, 20));
    const { teamId } = viewer;
    if ((await this.database.clusterSpec.count({ where: { teamId } })) >= MAX_PER_TEAM)
      return new Conflict(`The team has ${MAX_PER_TEAM} cluster specs already.`);
    return this.database.transact(async (transaction) => {
      const { count } = await transaction.clusterSpec.createMany({ data: { teamId, name, servers, workers }, skipDuplicates: true });
      if (count === 0) return new Conflict(`There is a cluster spec ${JSON.stringify(name)} already.`);
      const row = await transaction.clusterSpec.findUniqueOrThrow({ where: { teamId_name: { teamId, name } } });
      await remember(transaction, row.id);
      return new CreateClusterSpecSuccess(toClusterSpec(row));
    });
  }
}

function addressIssues(path: string, addresses: readonly string[], most: number): SpecIssue[] {
  if (addresses.length > most) return [{ path, message: `must not have more than ${most} addresses` }];
  const wrong = addresses.findIndex((address) => !(Number(ADDRESS.exec(address)?.[1]) <= 65_535));
  if (wrong >= 0) return [{ path: `${path}.${wrong}`, message: 'must be an address like 10.0.0.5:7000' }];
  const twice = addresses.findIndex((address, i) => addresses.indexOf(address) < i);
  return twice >= 0 ? [{ path: `${path}.${twice}`, message: 'is listed twice' }] : [];
}
