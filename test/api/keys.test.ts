/** Who may come in: keys, what is stored of them, and what happens to those who guess. */
import { createClient } from 'graphql-ws';
import pg from 'pg';
import request from 'supertest';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { WebSocket } from 'ws';
import { ControlPlane } from './services.js';

let plane: ControlPlane;
beforeAll(async () => void (plane = await ControlPlane.start()));
afterAll(() => plane?.stop());

const post = (authorization?: string) => {
  const sent = request(plane.api.url).post('/graphql').send({ query: '{ viewer { isAdmin } }' });
  return authorization === undefined ? sent : sent.set('authorization', authorization);
};

const MAKE_KEY =
  'mutation($id: ID!) { createApiKey(teamId: $id, name: "ci") { ... on CreateApiKeySuccess { secret apiKey { id prefix } } } }';

/** How a WebSocket that shows `params` is closed. */
function closeOf(params: Record<string, unknown>): Promise<{ code: number; reason: string }> {
  return new Promise((resolve) => {
    const client = createClient({
      url: plane.api.url.replace('http', 'ws') + '/graphql',
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
    expect(JSON.stringify(rows.rows.map((row) => ({ ...row, hash: row.hash.toString('latin1') })))).not.toContain(secret.split('_')[2]);

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

it('a thousand wrong keys a minute are answered 429 with Retry-After, and a key that was right still passes', async () => {
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
  expect(statuses.get(429)).toBeGreaterThan(800);
  expect(Number(retryAfter)).toBeGreaterThan(0);
  expect(Number(retryAfter)).toBeLessThanOrEqual(60);
  expect((await post(`Bearer ${plane.adminKey}`)).status).toBe(200);
  expect(await closeOf({ apiKey: 'pcl_wrong' })).toMatchObject({ code: 4429 });
});
