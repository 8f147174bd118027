/** The api as a process: how it starts, what it says when it cannot, how it ends, and its migrations. */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, readdirSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  endProcess,
  findFreePort,
  startPostgres,
  startRedis,
  waitForReady,
  type RunningRedis,
  type RunningService,
} from '@paceline/runtime';
import { createClient } from 'graphql-ws';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { WebSocket } from 'ws';
import { TOKEN_SECRET } from './services.js';

const API = join(import.meta.dirname, '../../apps/api/dist');
const folder = join(tmpdir(), `paceline-api-process-${process.pid}`);
let postgres: RunningService;
let redis: RunningRedis;
const children: ChildProcess[] = [];
beforeAll(async () => {
  [postgres, redis] = await Promise.all([
    startPostgres({ dataDir: `${folder}-postgres`, temporary: true }),
    startRedis({ dataDir: `${folder}-redis`, temporary: true }),
  ]);
});
afterAll(async () => {
  for (const child of children) await endProcess(child);
  await Promise.all([postgres?.stop(), redis?.stop()]);
});

function start(
  script: string,
  changes: Record<string, string | undefined> = {},
): { child: ChildProcess; stderr: () => string; stdout: () => string; ended: Promise<number | null> } {
  const env = {
    PATH: process.env['PATH'],
    DATABASE_URL: postgres.url,
    REDIS_URL: redis.url,
    PACELINE_PORT: '0',
    PACELINE_TOKEN_SECRET: TOKEN_SECRET,
    ...changes,
  };
  const child = spawn(process.execPath, [join(API, script)], { env, stdio: ['ignore', 'pipe', 'pipe'] });
  children.push(child);
  let [stderr, stdout] = ['', ''];
  child.stderr!.on('data', (chunk: Buffer) => (stderr += chunk.toString()));
  child.stdout!.on('data', (chunk: Buffer) => (stdout += chunk.toString()));
  return {
    child,
    stderr: () => stderr,
    stdout: () => stdout,
    ended: new Promise((resolve) => child.once('exit', (code) => resolve(code))),
  };
}

/** What a person reads, without a stack. */
async function refusal(changes: Record<string, string | undefined>): Promise<{ code: number | null; text: string }> {
  const { ended, stderr, stdout } = start('bundle/main.js', changes);
  const code = await ended;
  expect(stdout()).toBe('');
  expect(stderr()).not.toMatch(/\n\s+at /);
  return { code, text: stderr() };
}

const database = async (name: string) => {
  const client = new pg.Client({ connectionString: postgres.url });
  await client.connect();
  await client.query(`CREATE DATABASE "${name}"`);
  await client.end();
  return Object.assign(new URL(postgres.url), { pathname: `/${name}` }).toString();
};

describe('migrations', () => {
  it('are applied once by two processes at once, and found applied afterwards', async () => {
    const DATABASE_URL = await database('twice');
    const both = [start('migrate.js', { DATABASE_URL }), start('migrate.js', { DATABASE_URL })];
    const staysMs = both.map(async ({ child, ended }) => {
      await once(child.stdout!, 'data');
      const saidMs = performance.now();
      await ended;
      return performance.now() - saidMs;
    });
    expect(await Promise.all(both.map(({ ended }) => ended))).toEqual([0, 0]);
    const longestMs = Math.max(...(await Promise.all(staysMs)));
    expect(longestMs, 'nothing keeps a process that is done: the engine leaves a timer of ten seconds').toBeLessThan(5_000);
    const all = readdirSync(join(import.meta.dirname, '../../prisma/migrations')).filter((name) => /^\d+_/.test(name));
    expect(both.map(({ stdout }) => stdout()).sort()).toEqual([`applied ${all.sort().join(', ')}\n`, 'the database is up to date\n']);
    const again = start('migrate.js', { DATABASE_URL });
    expect([await again.ended, again.stdout()]).toEqual([0, 'the database is up to date\n']);
  });

  it('keep what is stored: terms of coordinators, reasons that say what a run waits for, rows of datasets by split', async () => {
    const client = new pg.Client({ connectionString: await database('kept') });
    await client.connect();
    const folders = join(import.meta.dirname, '../../prisma/migrations');
    const sqlOf = (name: string) => readFileSync(join(folders, name, 'migration.sql'), 'utf8');
    const names = readdirSync(folders).filter((name) => /^\d+_/.test(name));
    const before = names.filter((name) => name < '20261122195500').sort();
    for (const name of before) await client.query(sqlOf(name));
    const team = '00000000-0000-4000-8000-000000000000';
    await client.query(`INSERT INTO "Team" (id, name) VALUES ('${team}', 't')`);
    for (const [i, reason] of ['waits for server 1', 'training began'].entries()) {
      const id = `00000000-0000-4000-8000-00000000000${i + 1}`;
      await client.query(
        `INSERT INTO "Run" (id, "teamId", name, status, "statusReason", spec, model, "serverCount", "trainExamples", "evalExamples",
           "parameterCount", "totalRounds", "roundsPerEpoch") VALUES ($1, $2, 'r', 'RUNNING', $3, '{}', '{}', 1, 1, 1, 1, 1, 1)`,
        [id, team, reason],
      );
      await client.query('INSERT INTO "Attempt" ("runId", number, fence) VALUES ($1, 1, $2)', [id, i + 4]);
    }
    const after = names.filter((name) => !before.includes(name)).sort();
    for (const name of after.filter((name) => name < '20261123031500')) await client.query(sqlOf(name));
    await client.query(`INSERT INTO "TeamDataset" (id, "teamId", name) VALUES ('${team}', '${team}', 'd')`);
    const splits = [
      '"train":{"rows":7}',
      '"train":{"rows":7},"test":{"rows":0}',
      '"train":{"rows":7},"validation":{"rows":2},"test":{"rows":3}',
    ];
    for (const [i, each] of splits.entries())
      await client.query(
        `INSERT INTO "DatasetVersion" (id, "datasetId", version, manifest, rows, bytes, columns, source, "createdBy")
           VALUES ($1, '${team}', $2, $3, 1, 1, 1, '', '${team}')`,
        [`00000000-0000-4000-8000-00000000000${i + 1}`, String(i), `{"splits":{${each}}}`],
      );
    for (const name of after.filter((name) => name >= '20261123031500')) await client.query(sqlOf(name));
    const versions = await client.query('SELECT "trainRows", "evalRows", "manifestBytes" FROM "DatasetVersion" ORDER BY version');
    expect(versions.rows.map(({ trainRows, evalRows, manifestBytes }) => [trainRows, evalRows, manifestBytes].map(Number))).toEqual(
      splits.map((each, i) => [7, i < 2 ? 7 : 3, each.length + '{"splits":{}}'.length]),
    );
    const runs = await client.query('SELECT "isWaiting" FROM "Run" ORDER BY id');
    expect(runs.rows).toEqual([{ isWaiting: true }, { isWaiting: false }]);
    const attempts = await client.query('SELECT "coordinatorTerm" FROM "Attempt" ORDER BY "runId"');
    expect(attempts.rows).toEqual([{ coordinatorTerm: 4 }, { coordinatorTerm: 5 }]);
    await client.end();
  });

  it('refuse a database of a newer release', async () => {
    const DATABASE_URL = await database('newer');
    await start('migrate.js', { DATABASE_URL }).ended;
    const client = new pg.Client({ connectionString: DATABASE_URL });
    await client.connect();
    await client.query(
      `INSERT INTO _prisma_migrations (id, checksum, migration_name, finished_at) VALUES ('x', 'x', '29990101000000_future', now())`,
    );
    await client.end();
    const { code, text } = await refusal({ DATABASE_URL });
    expect(code).toBe(78);
    expect(text).toMatch(/DATABASE_NEWER: .*29990101000000_future/);
  });
});

describe('the api does not start and says what to do', () => {
  it('when the environment is wrong: every variable by name, and no value', async () => {
    const { code, text } = await refusal({
      DATABASE_URL: 'mysql://u:hunter2@h/d',
      REDIS_URL: undefined,
      PACELINE_TOKEN_SECRET: 'short',
      PACELINE_PORT: '99999',
    });
    expect(code).toBe(78);
    for (const name of ['DATABASE_URL', 'REDIS_URL', 'PACELINE_TOKEN_SECRET', 'PACELINE_PORT']) expect(text).toContain(name);
    expect(text).not.toMatch(/hunter2|short\b.*secret/);
  });

  it('when its port is taken', async () => {
    const other = createServer();
    await new Promise<void>((resolve) => other.listen(0, '127.0.0.1', resolve));
    const { port } = other.address() as { port: number };
    const { code, text } = await refusal({ PACELINE_PORT: String(port) });
    other.close();
    expect(code).toBe(78);
    expect(text.split('\n').find((line) => line.startsWith('PORT_IN_USE'))).toBe(`PORT_IN_USE: Port ${port} on 127.0.0.1 is taken.`);
    expect(text).toContain('set PACELINE_PORT');
  });

  it('when PostgreSQL or Redis is not there, or the password is wrong', async () => {
    const nobody = await findFreePort();
    const noPostgres = await refusal({ DATABASE_URL: `postgresql://u:hunter2@127.0.0.1:${nobody}/d` });
    expect([
      noPostgres.code,
      noPostgres.text.startsWith(`POSTGRES_UNREACHABLE: PostgreSQL does not answer at 127.0.0.1:${nobody}`),
    ]).toEqual([69, true]);
    const noRedis = await refusal({ REDIS_URL: `redis://:hunter2@127.0.0.1:${nobody}` });
    expect([noRedis.code, noRedis.text.startsWith(`REDIS_UNREACHABLE: Redis does not answer at 127.0.0.1:${nobody}`)]).toEqual([69, true]);
    const wrongPassword = await refusal({ DATABASE_URL: Object.assign(new URL(postgres.url), { password: 'hunter2' }).toString() });
    expect([wrongPassword.code, /password authentication failed/.test(wrongPassword.text)]).toEqual([69, true]);
    for (const { text } of [noPostgres, noRedis, wrongPassword]) expect(text).not.toContain('hunter2');
  });
});

describe('the api', () => {
  it('prints one ready line, shows the first key in it once, and ends in order with a subscription open', async () => {
    const DATABASE_URL = await database('first');
    const first = start('bundle/main.js', { DATABASE_URL });
    const ready = await waitForReady(first.child, 30_000, 'api');
    expect(ready).toMatchObject({
      role: 'api',
      url: expect.stringMatching(/^http:\/\/127\.0\.0\.1:\d+$/),
      bootstrapKey: expect.stringMatching(/^pcl_/),
    });
    const { url, bootstrapKey } = ready as unknown as { url: string; bootstrapKey: string };
    const ask = (query: string) =>
      fetch(`${url}/graphql`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', authorization: `Bearer ${bootstrapKey}` },
        body: JSON.stringify({ query }),
      }).then((reply) => reply.json());
    const { data } = (await ask('mutation { createRun(spec: {}) { ... on CreateRunSuccess { run { id } } } }')) as {
      data: { createRun: { run: { id: string } } };
    };
    let closeCode = 0;
    const client = createClient({
      url: `${url.replace('http', 'ws')}/graphql`,
      webSocketImpl: WebSocket,
      connectionParams: { apiKey: bootstrapKey },
      retryAttempts: 0,
      on: { closed: (event) => (closeCode = (event as { code: number }).code) },
    });
    const events = client.iterate({
      query: 'subscription($id: ID!) { runEvents(runId: $id) { seq } }',
      variables: { id: data.createRun.run.id },
    });
    await events.next();

    first.child.kill('SIGTERM');
    expect(await first.ended).toBe(0);
    expect(closeCode).toBe(1001);
    await client.dispose();
    expect(first.stdout().split('\n').filter(Boolean)).toHaveLength(1);
    expect(first.stderr()).not.toContain(bootstrapKey);
    for (const line of first.stderr().split('\n').filter(Boolean)) expect(() => JSON.parse(line) as unknown, line).not.toThrow();

    const second = start('bundle/main.js', { DATABASE_URL });
    expect(await waitForReady(second.child, 30_000, 'api')).not.toHaveProperty('bootstrapKey');
    second.child.kill('SIGINT');
    expect(await second.ended).toBe(0);
  });
});
