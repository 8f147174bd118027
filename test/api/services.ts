/** A real PostgreSQL, a real Redis and apis on them, each on a free port, all ended by `stop`. */
import { randomBytes } from 'node:crypto';
import { mkdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createLogger, startRedis, type RunningRedis, type RunningService } from '@paceline/runtime';
import { Redis } from 'ioredis';
import pg from 'pg';
import request from 'supertest';
import { startApi, type RunningApi } from '../../apps/api/src/api-process.js';
import { Dispatcher } from '../../apps/api/src/dispatch/dispatcher.js';
import type { Settings } from '../../apps/api/src/environment.js';
import { patient, startMigratedPostgres } from '@paceline/testkit';

export const TOKEN_SECRET = 'a secret of more than thirty-two characters';

export interface GraphqlReply {
  readonly status: number;
  readonly headers: Record<string, string>;
  // Tests look into answers by hand; a wrong path fails them.
  // oxlint-disable-next-line typescript/no-explicit-any
  readonly data: any;
  readonly errors: { message: string; path?: string[]; extensions: { code: string } }[] | undefined;
}

/** Everything that one key can do. */
export interface Caller {
  readonly key: string;
  gql(query: string, variables?: object): Promise<GraphqlReply>;
  get(path: string): request.Test;
  post(path: string): request.Test;
  put(path: string): request.Test;
  head(path: string): request.Test;
}

export class ControlPlane {
  readonly folder = join(tmpdir(), `paceline-api-test-${process.pid}-${randomBytes(4).toString('hex')}`);
  readonly dataDir = join(this.folder, 'data');
  readonly adminKey = `pcl_${randomBytes(6).toString('hex')}_${randomBytes(24).toString('base64url')}`;
  postgres!: RunningService;
  redis!: RunningRedis;
  api!: RunningApi;
  private readonly apis: RunningApi[] = [];

  /** @param options.durable PostgreSQL and Redis keep their data when they are stopped and started again */
  static async start({ durable = false, settings = {} }: { durable?: boolean; settings?: Partial<Settings> } = {}): Promise<ControlPlane> {
    const plane = new ControlPlane();
    mkdirSync(plane.dataDir, { recursive: true });
    try {
      [plane.postgres, plane.redis] = await Promise.all([plane.startPostgres(durable), plane.startRedis(durable)]);
      plane.api = await plane.startApi(settings);
    } catch (error) {
      await plane.stop();
      throw error;
    }
    return plane;
  }

  startPostgres(durable = true, port = 0): Promise<RunningService> {
    return startMigratedPostgres({ dataDir: `${this.folder}-postgres`, temporary: !durable, port });
  }

  startRedis(durable = true, port = 0, former?: RunningRedis): Promise<RunningRedis> {
    const password = former ? { password: new URL(former.url).password } : {};
    return startRedis({ dataDir: `${this.folder}-redis`, temporary: !durable, port, ...password });
  }

  settings(): Settings {
    return {
      databaseUrl: this.postgres.url,
      redisUrl: this.redis.urlOf('api'),
      host: '127.0.0.1',
      port: 0,
      tokenSecret: TOKEN_SECRET,
      bootstrapKey: this.adminKey,
      dataDir: this.dataDir,
      dataStore: join(this.folder, 'datasets'),
    };
  }

  /** Another api on the same PostgreSQL and Redis. */
  async startApi(settings: Partial<Settings> = {}): Promise<RunningApi> {
    const api = await startApi({ ...this.settings(), ...settings }, createLogger('api'));
    this.apis.push(api);
    return api;
  }

  as(key: string, api = this.api): Caller {
    const authorization = `Bearer ${key}`;
    return {
      key,
      async gql(query, variables = {}) {
        const { status, headers, body } = await request(api.url)
          .post('/graphql')
          .set('authorization', authorization)
          .send({ query, variables });
        return { status, headers, data: body.data, errors: body.errors };
      },
      get: (path) => request(api.url).get(path).set('authorization', authorization),
      post: (path) => request(api.url).post(path).set('authorization', authorization),
      put: (path) => request(api.url).put(path).set('authorization', authorization),
      head: (path) => request(api.url).head(path).set('authorization', authorization),
    };
  }

  get admin(): Caller {
    return this.as(this.adminKey);
  }

  /** A new team with one key. */
  async team(name: string): Promise<Caller & { teamId: string }> {
    const made = await this.admin.gql('mutation($name: String!) { createTeam(name: $name) { ... on CreateTeamSuccess { team { id } } } }', {
      name,
    });
    const teamId: string = made.data.createTeam.team.id;
    const key = await this.admin.gql(
      'mutation($id: ID!) { createApiKey(teamId: $id, name: "test") { ... on CreateApiKeySuccess { secret } } }',
      { id: teamId },
    );
    return { ...this.as(key.data.createApiKey.secret), teamId };
  }

  /** As if everything had just been installed: for tests that would meet each other's servers and jobs. */
  async reset(): Promise<void> {
    for (const api of this.apis.splice(0)) await api.stop();
    const client = new pg.Client({ connectionString: this.postgres.url });
    await client.connect();
    await client.query('TRUNCATE "Team", "Dataset", "Worker", "Server" CASCADE');
    await client.end();
    const redis = new Redis(this.redis.url);
    await redis.flushall();
    redis.disconnect();
    this.api = await this.startApi();
  }

  /** As if so much time had gone by since anything that the run, or its servers and workers, are waited for: what is stored moves back. */
  async passTime(runId: string, ms: number): Promise<void> {
    const client = new pg.Client({ connectionString: this.postgres.url });
    await client.connect();
    const back = (...columns: string[]): string => columns.map((name) => `"${name}" = "${name}" - $1 * interval '1 ms'`).join(', ');
    await client.query(`UPDATE "Run" SET ${back('cancelRequestedAt', 'pauseRequestedAt', 'coordinatorAt')} WHERE "id" = $2`, [ms, runId]);
    await client.query(`UPDATE "Attempt" SET ${back('startedAt')} WHERE "runId" = $2`, [ms, runId]);
    for (const table of ['Server', 'Worker']) await client.query(`UPDATE "${table}" SET ${back('lastSeenAt')}`, [ms]);
    await client.end();
  }

  async stop(): Promise<void> {
    for (const api of this.apis) await api.stop();
    await Promise.all([this.postgres?.stop(), this.redis?.stop()]);
    for (const folder of [this.folder, `${this.folder}-postgres`, `${this.folder}-redis`]) rmSync(folder, { recursive: true, force: true });
  }
}

/** Waits until `look` returns something true-ish, at most `deadlineMs`. @throws Error that says what was waited for */
export async function until<T>(
  what: string,
  look: () => Promise<T | undefined | false> | T | undefined | false,
  deadlineMs = 20_000,
): Promise<T> {
  const end = performance.now() + patient(deadlineMs);
  for (;;) {
    const from = performance.now();
    const found = await look();
    if (found) return found;
    if (performance.now() > end) throw new Error(`waited ${deadlineMs} ms for: ${what}`);
    // A look takes the processor from what is waited for: a fifth of the time at most.
    const pauseMs = Math.min(1_000, Math.max(40, 4 * (performance.now() - from)));
    await new Promise((resolve) => setTimeout(resolve, pauseMs));
  }
}

/** Ends after `count` more ticks of the dispatcher of an api: so often it has looked at everything meanwhile, whatever time that took. */
export async function ticks({ app }: RunningApi, count: number): Promise<void> {
  const { counters } = app.get(Dispatcher);
  const last = counters.ticks + count;
  await until(`${count} ticks`, () => counters.ticks >= last);
}

/** Reads a run again and again until it has this status. @returns it as it was read then @throws Error that says how it was last seen */
// Tests look into answers by hand; a wrong path fails them.
// oxlint-disable-next-line typescript/no-explicit-any
export async function untilStatus(read: () => Promise<any>, status: string, deadlineMs?: number): Promise<any> {
  let last: { status: string; statusReason?: string } | undefined;
  const isThere = async (): Promise<unknown> => {
    last = await read();
    return last?.status === status && last;
  };
  return until(`status ${status}`, isThere, deadlineMs).catch((error: Error) => {
    throw new Error(`${error.message}; last seen ${last?.status}: ${last?.statusReason}`);
  });
}

export const CREATE_RUN = `mutation($spec: RunSpecInput!, $clusterSpecId: ID, $idempotencyKey: String) {
  createRun(spec: $spec, clusterSpecId: $clusterSpecId, idempotencyKey: $idempotencyKey) {
    __typename
    ... on CreateRunSuccess { run { id name status statusReason spec attempt parameterCount clusterSpec { id } } }
    ... on InvalidInput { code message issues { path message } }
    ... on NotFound { code message }
    ... on Conflict { code message }
  }
}`;

/** Asks again, as every client, while PostgreSQL has no time: nothing was written then. */
export async function createRun(caller: Caller, spec: object = {}, rest: object = {}): Promise<string> {
  const isThere = async () => {
    const answer = await caller.gql(CREATE_RUN, { spec, ...rest });
    return answer.errors?.[0]?.extensions?.['code'] !== 'SERVICE_UNAVAILABLE' && answer;
  };
  const { data, errors } = await until('PostgreSQL to have time for a run', isThere);
  if (data?.createRun?.__typename !== 'CreateRunSuccess') throw new Error(`no run was made: ${JSON.stringify(errors ?? data)}`);
  return data.createRun.run.id as string;
}
