/** Tests who may come in, and how much they may ask for: keys, what is stored of them, and what happens to those who guess or ask for too much. */
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { createClient, GRAPHQL_TRANSPORT_WS_PROTOCOL } from 'graphql-ws';
import pg from 'pg';
import request from 'supertest';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { WebSocket } from 'ws';
import { BackgroundDatabase, Database } from '../../apps/api/src/database/database.js';
import { SubscriptionServer } from '../../apps/api/src/graphql/subscription-server.js';
import { RateLimits, type Buckets } from '../../apps/api/src/http/rate-limits.js';
import { ControlPlane, until } from './services.js';

let plane: ControlPlane;
beforeAll(async () => void (plane = await ControlPlane.start()));
afterAll(() => plane?.stop());

const post = (authorization?: string) => {
  const sent = request(plane.api.url).post('/graphql').send({ query: '{ viewer { isAdmin } }' });
  return authorization === undefined ? sent : sent.set('authorization', authorization);
};

const MAKE_KEY =
  'mutation($id: ID!) { createApiKey(teamId: $id, name: "ci") { ... on CreateApiKeySuccess { secret apiKey { id prefix } } } }';

const socketUrl = (api = plane.api): string => api.url.replace('http', 'ws') + '/graphql';

/** How a WebSocket that shows `params` is closed. */
function closeOf(params: Record<string, unknown>, api = plane.api): Promise<{ code: number; reason: string }> {
  return new Promise((resolve) => {
    const client = createClient({
      url: socketUrl(api),
      webSocketImpl: WebSocket,
      connectionParams: params,
      retryAttempts: 0,
      lazy: false,
      onNonLazyError: () => undefined,
      on: { closed: (event) => resolve(event as { code: number; reason: string }) },
    });
    client.on('error', () => undefined);
  });
}

/** A WebSocket by hand, with its key accepted. `closed` settles with how it ends. */
async function openSocket(apiKey: string | undefined, api = plane.api): Promise<{ socket: WebSocket; closed: Promise<number> }> {
  const socket = new WebSocket(socketUrl(api), GRAPHQL_TRANSPORT_WS_PROTOCOL);
  const closed = new Promise<number>((resolve) => socket.on('error', () => undefined).once('close', resolve));
  await Promise.race([once(socket, 'open'), closed]);
  if (apiKey === undefined) return { socket, closed };
  socket.send(JSON.stringify({ type: 'connection_init', payload: { apiKey } }));
  await Promise.race([once(socket, 'message'), closed]);
  return { socket, closed };
}
const subscribe = (socket: WebSocket, id: number, query: string): void =>
  socket.send(JSON.stringify({ type: 'subscribe', id: String(id), payload: { query } }));

const REVOKE =
  'mutation($id: ID!) { revokeApiKey(id: $id) { __typename ... on Conflict { message } ... on RevokeApiKeySuccess { apiKey { revokedAt } } } }';

describe('a request is refused', () => {
  it('without a key, with a wrong one, with a truncated one, with another scheme of token', async () => {
    const unsigned = `${Buffer.from('{"alg":"none"}').toString('base64url')}.${Buffer.from('{"isAdmin":true}').toString('base64url')}.`;
    for (const authorization of [
      undefined,
      '',
      'Bearer',
      'Bearer nonsense',
      `Bearer ${plane.adminKey.slice(0, -1)}`,
      `Bearer ${unsigned}`,
      `Bearer ${'x'.repeat(9_000)}`,
    ]) {
      const { status, body } = await post(authorization);
      expect([status, body.errors?.[0]?.extensions?.code ?? body.code], String(authorization).slice(0, 40)).toEqual([
        401,
        'UNAUTHENTICATED',
      ]);
    }
  });

  it('on every REST path but health, by a problem document that says what to send', async () => {
    for (const path of ['/api/v1/runs', '/api/v1/runs/0190c5a5-0000-7000-8000-000000000000', '/%61pi/v1/runs']) {
      const { status, body, headers } = await request(plane.api.url).get(path);
      expect([path, status, body.code]).toEqual([path, 401, 'UNAUTHENTICATED']);
      expect(headers['content-type']).toContain('application/problem+json');
      expect(headers['www-authenticate']).toContain('Bearer');
      expect(body.detail).toContain('Authorization: Bearer');
    }
    for (const path of ['/healthz', '/readyz']) expect((await request(plane.api.url).get(path)).status).toBe(200);
  });

  it('over WebSocket, by close code 4401', async () => {
    expect(await closeOf({})).toMatchObject({ code: 4401, reason: 'UNAUTHENTICATED' });
    expect(await closeOf({ apiKey: 'pcl_wrong' })).toMatchObject({ code: 4401 });
  });
});

describe('a key', () => {
  it('is shown once, stored as a hash, and works for its team only until it is revoked', async () => {
    const { data } = await plane.admin.gql('{ viewer { isAdmin team { id name } } }');
    expect(data.viewer).toMatchObject({ isAdmin: true, team: { name: 'default' } });
    const made = await plane.admin.gql(MAKE_KEY, { id: data.viewer.team.id });
    const { secret, apiKey } = made.data.createApiKey;
    expect(secret).toMatch(/^pcl_[0-9a-f]{12}_[\w-]{32}$/);
    expect(secret).toContain(apiKey.prefix);

    const client = new pg.Client({ connectionString: plane.postgres.url });
    await client.connect();
    const rows = await client.query('SELECT * FROM "ApiKey"');
    await client.end();
    expect(JSON.stringify(rows.rows.map((row) => ({ ...row, hash: row.hash.toString('latin1') })))).not.toContain(
      secret.slice('pcl_0123456789ab_'.length),
    );

    const caller = plane.as(secret);
    expect((await caller.gql('{ viewer { isAdmin } }')).data.viewer.isAdmin).toBe(false);
    expect((await caller.gql('mutation { createTeam(name: "mine") { __typename } }')).errors?.[0]?.extensions.code).toBe('FORBIDDEN');
    await plane.admin.gql('mutation($id: ID!) { revokeApiKey(id: $id) { __typename } }', { id: apiKey.id });
    expect((await post(`Bearer ${secret}`)).status).toBe(401);
    const listed = await plane.admin.gql('{ viewer { team { apiKeys { id revokedAt } } } }');
    expect(listed.data.viewer.team.apiKeys.find((key: { id: string }) => key.id === apiKey.id).revokedAt).not.toBeNull();
  });

  it('cannot be made for another team, nor a team twice, nor with a name that a terminal would execute', async () => {
    const team = await plane.team('keys-a');
    const other = await plane.team('keys-b');
    expect((await team.gql(MAKE_KEY.replace('{ ... on', '{ __typename ... on'), { id: other.teamId })).data.createApiKey.__typename).toBe(
      'NotFound',
    );
    const again = await plane.admin.gql('mutation { createTeam(name: "keys-a") { __typename ... on Conflict { code } } }');
    expect(again.data.createTeam).toEqual({ __typename: 'Conflict', code: 'CONFLICT' });
    for (const name of ['', ' ', 'a\u001b[31mred', 'a\r\nb', 'x'.repeat(101)]) {
      const { data } = await plane.admin.gql(
        'mutation($n: String!) { createTeam(name: $n) { __typename ... on InvalidInput { issues { path } } } }',
        { n: name },
      );
      expect(data.createTeam, JSON.stringify(name)).toEqual({ __typename: 'InvalidInput', issues: [{ path: 'name' }] });
    }
  });
});

describe('the keys of a team', () => {
  it('are listed with all that are live, however many have ended before, and those that have ended do not count', async () => {
    const team = await plane.team('keepers');
    const { apiKey } = plane.api.app.get(Database);
    const at = (minute: number): Date => new Date(Date.UTC(2026, 0, 1, 0, minute));
    const row = (i: number, ended: object) => {
      const hash = createHash('sha256').update(`${team.teamId} ${i}`).digest();
      return Object.assign(
        { teamId: team.teamId, name: `key ${i}`, prefix: hash.toString('hex').slice(0, 12), hash, createdAt: at(i) },
        ended,
      );
    };
    const ended = (i: number) => (i % 2 === 0 ? { revokedAt: at(i) } : { expiresAt: at(i + 1) });
    await apiKey.createMany({ data: Array.from({ length: 500 }, (_, i) => row(i, ended(i))) });
    const listed = async () => {
      const { data } = await team.gql('query($id: ID!) { team(id: $id) { apiKeys { name revokedAt } } }', { id: team.teamId });
      return data.team.apiKeys.map(({ name }: { name: string }) => name);
    };
    expect((await team.gql(MAKE_KEY, { id: team.teamId })).data.createApiKey.secret).toMatch(/^pcl_/);
    expect(await listed()).toEqual(['test', 'ci', ...Array.from({ length: 200 }, (_, i) => `key ${499 - i}`)]);
    await apiKey.createMany({ data: Array.from({ length: 198 }, (_, i) => row(1_000 + i, {})) });
    expect((await listed()).slice(0, 200).filter((name: string) => name.startsWith('key 1'))).toHaveLength(198);
    // 200 are live now, and that is as many as a team may have.
    const refused = await team.gql(
      'mutation($id: ID!) { createApiKey(teamId: $id, name: "more") { __typename ... on InvalidInput { issues { message } } } }',
      { id: team.teamId },
    );
    expect(refused.data.createApiKey.issues[0].message).toBe('the team has 200 keys; revoke one first');
  });
});

describe('a key that is revoked', () => {
  it('loses its subscriptions at once at every api, and nobody else does', async () => {
    const other = await plane.startApi();
    const caller = await plane.team('revoked');
    // The keys are checked every 30 s anyhow: not here.
    const checks = SubscriptionServer.prototype as unknown as { checkKeys(): Promise<void> };
    vi.spyOn(checks, 'checkKeys').mockResolvedValue();
    const sockets = await Promise.all([openSocket(caller.key), openSocket(caller.key, other), openSocket(plane.adminKey, other)]);
    const { data } = await caller.gql('{ viewer { apiKey { id } } }');
    expect((await plane.admin.gql(REVOKE, { id: data.viewer.apiKey.id })).data.revokeApiKey.apiKey.revokedAt).not.toBeNull();
    expect(await Promise.all(sockets.slice(0, 2).map(({ closed }) => closed))).toEqual([4401, 4401]);
    vi.mocked(checks.checkKeys).mockRestore();
    expect(sockets[2]!.socket.readyState).toBe(WebSocket.OPEN);
    sockets[2]!.socket.terminate();
  });

  it('without a word to this api loses its sockets to the next check of keys, which counts nobody as one who guesses', async () => {
    const [caller, second] = [await plane.team('swept'), await plane.team('swept too')];
    const open = (key: string) => Promise.all(Array.from({ length: 50 }, () => openSocket(key)));
    const sockets = [...(await open(caller.key)), ...(await open(second.key)), ...(await open((await plane.team('swept as well')).key))];
    expect(new Set(sockets.map(({ socket }) => socket.readyState))).toEqual(new Set([WebSocket.OPEN]));
    const stays = await openSocket(plane.adminKey);
    const where = { team: { name: { startsWith: 'swept' } } };
    await plane.api.app.get(Database).apiKey.updateMany({ where, data: { revokedAt: new Date() } });
    await plane.api.app.get(SubscriptionServer)['checkKeys']();
    expect(new Set(await Promise.all(sockets.map(({ closed }) => closed)))).toEqual(new Set([4401]));
    expect(stays.socket.readyState).toBe(WebSocket.OPEN);
    stays.socket.terminate();
    // More than a hundred wrong keys of an address are answered 429.
    expect((await post('Bearer pcl_000000000000_nobody-has-this')).status).toBe(401);
  });

  it("is never the administrator's, unless an administrator asks and another one is left", async () => {
    const { data } = await plane.admin.gql('{ viewer { apiKey { id } team { id } } }');
    const { team, apiKey } = data.viewer;
    const made = await plane.admin.gql(MAKE_KEY, { id: team.id });
    const ordinary = plane.as(made.data.createApiKey.secret);
    expect((await ordinary.gql(REVOKE, { id: apiKey.id })).errors?.[0]?.extensions.code).toBe('FORBIDDEN');
    const last = await plane.admin.gql(REVOKE, { id: apiKey.id });
    expect(last.data.revokeApiKey).toMatchObject({ __typename: 'Conflict', message: expect.stringContaining('PACELINE_BOOTSTRAP_KEY') });
    expect((await plane.admin.gql('{ viewer { isAdmin } }')).data.viewer.isAdmin).toBe(true);
  });
});

describe('a key with limits', () => {
  const MAKE_LIMITED = `mutation($id: ID!, $expiresAt: DateTime, $readOnly: Boolean) {
    createApiKey(teamId: $id, name: "limited", expiresAt: $expiresAt, readOnly: $readOnly) {
      ... on CreateApiKeySuccess { secret apiKey { id expiresAt isReadOnly } } ... on InvalidInput { issues { path } } } }`;

  it('that is read-only looks at everything and changes nothing, over GraphQL and REST', async () => {
    const team = await plane.team('read-only');
    const made = await team.gql(MAKE_LIMITED, { id: team.teamId, readOnly: true });
    expect(made.data.createApiKey.apiKey).toMatchObject({ isReadOnly: true, expiresAt: null });
    const reader = plane.as(made.data.createApiKey.secret);
    expect((await reader.gql('{ runs { totalCount } }')).data.runs.totalCount).toBe(0);
    expect((await reader.get('/api/v1/runs')).status).toBe(200);
    const mutation = await reader.gql('mutation { createRun(spec: {}) { __typename } }');
    expect([mutation.status, mutation.errors?.[0]?.extensions.code]).toEqual([403, 'FORBIDDEN']);
    const post = await reader.post('/api/v1/runs').send({});
    expect([post.status, post.body.code]).toEqual([403, 'FORBIDDEN']);
    expect((await reader.gql('{ runs { totalCount } }')).data.runs.totalCount).toBe(0);
  });

  it('that expires is refused from then on, and makes none that lives longer', async () => {
    const team = await plane.team('expiring');
    const expiresAt = new Date(Date.now() + 3_600_000);
    const made = await team.gql(MAKE_LIMITED, { id: team.teamId, expiresAt });
    const expiring = plane.as(made.data.createApiKey.secret);
    for (const wrong of [{}, { expiresAt: new Date(expiresAt.getTime() + 1_000) }, { expiresAt: new Date(Date.now() - 1_000) }])
      expect((await expiring.gql(MAKE_LIMITED, { id: team.teamId, ...wrong })).data.createApiKey).toEqual({
        issues: [{ path: 'expiresAt' }],
      });
    expect((await expiring.gql(MAKE_LIMITED, { id: team.teamId, expiresAt })).data.createApiKey.secret).toMatch(/^pcl_/);
    await plane.api.app.get(Database).apiKey.update({ where: { id: made.data.createApiKey.apiKey.id }, data: { expiresAt: new Date() } });
    const { status, errors } = await expiring.gql('{ viewer { isAdmin } }');
    expect([status, errors?.[0]?.message.includes('has expired')]).toEqual([401, true]);
  });
});

describe('what needs no key', () => {
  it("metrics of who comes through a proxy or under another name need more: a key, the administrator's, or the token", async () => {
    const caller = await plane.team('scrapers');
    const scrape = (headers: Record<string, string>, url = plane.api.url) => request(url).get('/metrics').set(headers);
    for (const headers of [{ 'x-forwarded-for': '203.0.113.9' }, { host: 'rebound.example' }, { via: '1.1 proxy' }])
      expect((await scrape(headers as Record<string, string>)).status, JSON.stringify(headers)).toBe(401);
    expect((await caller.get('/metrics').set('host', 'api.example')).status).toBe(403);
    expect((await plane.admin.get('/metrics').set('host', 'api.example')).status).toBe(200);
    const { url } = await plane.startApi({ metricsToken: 'a token for Prometheus', trustedProxies: ['127.0.0.1'] });
    expect((await scrape({}, url)).status).toBe(401);
    expect((await scrape({ authorization: 'Bearer a token for Prometheuz' }, url)).status).toBe(401);
    const { status, headers } = await scrape({ authorization: 'Bearer a token for Prometheus', 'x-forwarded-proto': 'https' }, url);
    expect([status, headers['strict-transport-security']]).toEqual([200, 'max-age=31536000']);
    expect((await scrape({ 'x-forwarded-proto': 'https' })).headers['strict-transport-security']).toBeUndefined();
  });

  it('readiness is looked up once for all who ask at the same time', async () => {
    await new Promise((resolve) => setTimeout(resolve, 1_000)); // what was found before is too old then
    const asked = vi.spyOn(plane.api.app.get(BackgroundDatabase), '$queryRaw');
    const from = performance.now();
    const replies = await Promise.all(Array.from({ length: 50 }, () => request(plane.api.url).get('/readyz')));
    expect(new Set(replies.map(({ status }) => status))).toEqual(new Set([200]));
    const most = 2 + Math.floor((performance.now() - from) / 1_000);
    // The background work asks other things of the same database.
    const checks = asked.mock.calls.filter(([text]) => String(text) === 'SELECT 1').length;
    asked.mockRestore();
    expect(checks).toBeGreaterThanOrEqual(1);
    expect(checks).toBeLessThanOrEqual(most);
    // And headers that come by drops are found late soon after their deadline; bodies have one of their own (http/uploads.ts).
    expect(plane.api.app.getHttpServer()).toMatchObject({ requestTimeout: 0, headersTimeout: 30_000, connectionsCheckingInterval: 5_000 });
  });
});

describe('one key, or nobody with a key, cannot take what is for all', () => {
  const RATE = { requestsPerMinute: 60 } as const;

  /** Buckets are filled by no time, however slow the machine is, until the returned function is called. */
  function stopRefilling(api = plane.api): () => void {
    const stoppedAt = performance.now();
    const { requests = [], texts } = api.app.get(RateLimits) as unknown as { requests?: Buckets[]; texts: Buckets[] };
    const clocks = [...requests, ...texts].map((each) => each as unknown as { now: () => number });
    const running = clocks.map(({ now }) => now);
    for (const clock of clocks) clock.now = () => stoppedAt;
    return () => clocks.forEach((clock, i) => (clock.now = running[i]!));
  }

  it('requests: so many at once, then 429 with Retry-After, and every answer has the state and a request id', async () => {
    const api = await plane.startApi(RATE);
    stopRefilling(api);
    const caller = await plane.team('hasty');
    const asked = await Promise.all(Array.from({ length: 40 }, () => plane.as(caller.key, api).get('/api/v1/runs?first=1')));
    const counts = [200, 429].map((status) => asked.filter((reply) => reply.status === status).length);
    expect(counts).toEqual([12, 28]);
    const first = asked.find((reply) => reply.status === 200)!.headers;
    expect(first).toMatchObject({ 'ratelimit-limit': '12', 'ratelimit-remaining': expect.stringMatching(/^\d+$/) });
    const { headers, body } = asked.find((reply) => reply.status === 429)!;
    expect([Number(headers['retry-after']) > 0, body.code, headers['content-type']]).toEqual([
      true,
      'RATE_LIMITED',
      'application/problem+json; charset=utf-8',
    ]);
    expect(new Set(asked.map((reply) => reply.headers['x-request-id'])).size).toBe(40);
    expect((await plane.as(plane.adminKey, api).get('/api/v1/runs')).status).toBe(200);
  });

  it('are told by rateLimit before anything is refused: the cost of the operation, and what the key has left', async () => {
    const api = await plane.startApi(RATE);
    stopRefilling(api);
    const caller = await plane.team('asks before');
    const query =
      'query($first: Int) { rateLimit { cost mostCost limit remaining resetAt } runs(first: $first) { edges { node { id } } } }';
    const asked = async (first: unknown) => (await plane.as(caller.key, api).gql(query, { first })).data.rateLimit;
    const [small, large] = [await asked(1), await asked(50)];
    expect(small).toMatchObject({ mostCost: 20_000, limit: 12, remaining: 11 });
    expect(large).toMatchObject({ limit: 12, remaining: 10 });
    expect(large.cost - small.cost).toBe(49 * 2); // a node and its id
    expect(Date.parse(large.resetAt)).toBeGreaterThan(Date.now());
    const free = await plane.startApi({ requestsPerMinute: 0 });
    const unlimited = (await plane.as(caller.key, free).gql('{ rateLimit { cost limit remaining resetAt } }')).data.rateLimit;
    expect(unlimited).toEqual({ cost: 5, limit: null, remaining: null, resetAt: null });
  });

  it('new GraphQL texts, but not the same one again', async () => {
    const caller = await plane.team('wordy');
    const text = (i: number) =>
      `{ ${Array.from({ length: 20 }, (_, j) => `a${i}x${j}: __typename `).join(' ')} ${'__typename '.repeat(680)} }`;
    const statuses = [];
    const refill = stopRefilling();
    for (let i = 0; i < 8; i++) statuses.push((await caller.gql(text(i))).status);
    refill();
    expect(statuses.slice(0, 4)).toEqual([200, 200, 200, 200]);
    expect(statuses).toContain(429);
    for (let i = 0; i < 8; i++) expect((await caller.gql(text(0))).status).toBe(200);
  });

  it('sockets of a key and of its team', async () => {
    const api = await plane.startApi({ socketsPerKey: 2, socketsPerTeam: 3 });
    const caller = await plane.team('many sockets');
    const second = await caller.gql(MAKE_KEY, { id: caller.teamId });
    const { secret } = second.data.createApiKey;
    const open = [await openSocket(caller.key, api), await openSocket(caller.key, api)];
    expect(await closeOf({ apiKey: caller.key }, api)).toMatchObject({ code: 4429, reason: expect.stringContaining('this key') });
    open.push(await openSocket(secret, api));
    expect(await closeOf({ apiKey: secret }, api)).toMatchObject({ code: 4429, reason: expect.stringContaining('this team') });
    const stranger = await openSocket(plane.adminKey, api);
    expect(stranger.socket.readyState).toBe(WebSocket.OPEN);
    open[0]!.socket.close();
    await open[0]!.closed;
    // The api hears of it a moment later.
    await until('a place', async () => {
      const again = await openSocket(caller.key, api);
      open.push(again);
      return again.socket.readyState === WebSocket.OPEN;
    });
    for (const { socket } of [...open, stranger]) socket.terminate();
  });

  it('sockets that show no key push out each other and nobody with a key', async () => {
    const kept = await openSocket(plane.adminKey);
    const flood = await Promise.all(Array.from({ length: 120 }, () => openSocket(undefined)));
    await until('the evicted ones', () => flood.filter(({ socket }) => socket.readyState === WebSocket.CLOSED).length >= 70);
    const late = await openSocket(plane.adminKey);
    expect([kept, late].map(({ socket }) => socket.readyState)).toEqual([WebSocket.OPEN, WebSocket.OPEN]);
    for (const { socket } of [kept, late, ...flood]) socket.terminate();
  });

  it('connections to PostgreSQL: when all are in use the answer says so, and the background work has its own', async () => {
    const { pool } = plane.api.app.get(Database) as unknown as { pool: pg.Pool };
    const held: pg.PoolClient[] = [];
    while (held.length < 10) held.push(await pool.connect());
    const graphql = await plane.admin.gql('{ viewer { isAdmin } }');
    expect([graphql.status, graphql.errors?.[0]?.extensions.code, graphql.headers['retry-after']]).toEqual([429, 'TOO_BUSY', '1']);
    expect(graphql.errors?.[0]?.message).not.toContain('does not answer');
    expect(await plane.api.app.get(BackgroundDatabase).$queryRaw`SELECT 1 AS n`).toEqual([{ n: 1 }]);
    for (const each of held) each.release();
    expect((await plane.admin.gql('{ viewer { isAdmin } }')).status).toBe(200);
  });

  it('a socket with refused subscriptions is closed by 4429', async () => {
    const { socket, closed } = await openSocket(plane.adminKey);
    for (let i = 0; i < 12; i++) subscribe(socket, i, `subscription { nothing${i} }`);
    expect(await closed).toBe(4429);
  });
});

it('a thousand wrong keys a minute are answered 429 with Retry-After, and a key that was right still passes', async () => {
  const unused = await plane.team('not used yet');
  expect((await post(`Bearer ${plane.adminKey}`)).status).toBe(200);
  const statuses = new Map<number, number>();
  let retryAfter: string | undefined;
  for (let i = 0; i < 1_000; i += 50) {
    const replies = await Promise.all(
      Array.from({ length: 50 }, (_, j) => post(`Bearer pcl_${(i + j).toString(16).padStart(12, '0')}_${'a'.repeat(32)}`)),
    );
    for (const { status, headers, body } of replies) {
      statuses.set(status, (statuses.get(status) ?? 0) + 1);
      if (status === 429) {
        retryAfter = headers['retry-after'];
        expect(body.errors[0].extensions.code).toBe('TOO_MANY_ATTEMPTS');
      }
    }
  }
  expect([...statuses.keys()].sort()).toEqual([401, 429]);
  expect(statuses.get(429)).toBeGreaterThan(600); // on a machine that takes minutes for them some more are looked at
  expect(Number(retryAfter)).toBeGreaterThan(0);
  expect(Number(retryAfter)).toBeLessThanOrEqual(60);
  for (const key of [plane.adminKey, unused.key]) expect((await post(`Bearer ${key}`)).status).toBe(200);
  // By now some more may be allowed: those of a slow machine are used up first.
  await until('a socket with a wrong key to be one too many', async () => {
    await Promise.all(Array.from({ length: 50 }, () => post(`Bearer pcl_${'b'.repeat(12)}_${'a'.repeat(32)}`)));
    return (await closeOf({ apiKey: 'pcl_wrong' })).code === 4429;
  });
});

it('a new PACELINE_BOOTSTRAP_KEY takes the place of the old one, which stays refused, and neither stops an api', async () => {
  await plane.reset();
  const open = await openSocket(plane.adminKey);
  const rotated = 'a key that an administrator chose';
  const next = await plane.startApi({ bootstrapKey: rotated });
  expect(next.bootstrapKey).toBeUndefined();
  expect(await open.closed).toBe(4401);
  expect((await post(`Bearer ${plane.adminKey}`)).status).toBe(401);
  const { data } = await plane.as(rotated).gql('{ viewer { isAdmin apiKey { prefix } } }');
  expect(data.viewer.isAdmin).toBe(true);
  // Nothing of the hash of a key that may be guessed is shown.
  expect(createHash('sha256').update(rotated).digest('hex')).not.toContain(data.viewer.apiKey.prefix.slice(1));

  const old = await plane.startApi();
  expect(old.bootstrapKey).toBeUndefined();
  expect([(await post(`Bearer ${plane.adminKey}`)).status, (await post(`Bearer ${rotated}`)).status]).toEqual([401, 200]);

  // With no administrator left, by the hands of somebody in the database, a start makes one and shows it.
  await old.app.get(Database).apiKey.updateMany({ data: { revokedAt: new Date() } });
  const { bootstrapKey } = await plane.startApi();
  expect((await plane.as(bootstrapKey!).gql('{ viewer { isAdmin } }')).data.viewer.isAdmin).toBe(true);
});
