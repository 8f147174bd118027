/** Two apis as processes, of which the one that reconciles is stopped (SIGSTOP) with the lock in its hands: the other goes on with its work. */
import { spawn, type ChildProcess } from 'node:child_process';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { endProcess, startPostgres, startRedis, waitForReady, type RunningRedis, type RunningService } from '@paceline/runtime';
import { HOLDER_STALE_AFTER_MS } from '@paceline/jobs';
import pg from 'pg';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { ScriptedFleet } from './scripted-fleet.js';
import { TOKEN_SECRET, until } from './services.js';

const API = join(import.meta.dirname, '../../apps/api/dist/main.js');
const KEY = `pcl_000000000000_${'k'.repeat(32)}`;
/** What docs/guarantees.md promises. */
const TAKEN_OVER_WITHIN_MS = 15_000;
const folder = join(tmpdir(), `paceline-stopped-api-${process.pid}`);

interface Api {
  readonly child: ChildProcess;
  readonly url: string;
  readonly log: () => string;
}

let postgres: RunningService;
let redis: RunningRedis;
let fleet: ScriptedFleet | undefined;
const children: ChildProcess[] = [];
beforeAll(async () => {
  [postgres, redis] = await Promise.all([
    startPostgres({ dataDir: `${folder}-postgres`, temporary: true }),
    startRedis({ dataDir: `${folder}-redis`, temporary: true }),
  ]);
});
afterAll(async () => {
  await fleet?.stop();
  for (const child of children) {
    child.kill('SIGCONT');
    await endProcess(child);
  }
  await Promise.all([postgres?.stop(), redis?.stop()]);
});

async function startApi(): Promise<Api> {
  const env = {
    ...{ PATH: process.env['PATH'], DATABASE_URL: postgres.url, REDIS_URL: redis.url, PACELINE_PORT: '0' },
    ...{ PACELINE_TOKEN_SECRET: TOKEN_SECRET, PACELINE_BOOTSTRAP_KEY: KEY },
  };
  const child = spawn(process.execPath, [API], { env, stdio: ['ignore', 'pipe', 'pipe'] });
  children.push(child);
  let log = '';
  child.stderr!.on('data', (chunk: Buffer) => (log += chunk.toString()));
  const { url } = (await waitForReady(child, 60_000, 'api')) as unknown as { url: string };
  return { child, url, log: () => log };
}

const authorization = `Bearer ${KEY}`;

async function reconciles({ url }: Api): Promise<boolean> {
  const text = await (await fetch(`${url}/metrics`, { headers: { authorization } })).text();
  return /^\w*dispatch_is_leader(\{[^}]*\})? 1$/m.test(text);
}

async function createRun({ url }: Api): Promise<string> {
  const reply = await fetch(`${url}/graphql`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization },
    body: JSON.stringify({ query: 'mutation { createRun(spec: {}) { ... on CreateRunSuccess { run { id } } } }' }),
  });
  const { data } = (await reply.json()) as { data: { createRun: { run: { id: string } } } };
  return data.createRun.run.id;
}

it('the other takes over within its time; the stopped one, which has nothing in hand, notices when it goes on, and does not reconcile', async () => {
  const apis = [await startApi(), await startApi()];
  fleet = await new ScriptedFleet(redis.url).ready();
  const server = fleet.beat('server');
  fleet.beat('worker');
  const first = await until('an api that reconciles', async () => {
    for (const api of apis) if (await reconciles(api)) return api;
    return undefined;
  });
  const other = apis.find((api) => api !== first)!;
  expect(await reconciles(other)).toBe(false);

  first.child.kill('SIGSTOP');
  const stoppedAt = performance.now();
  const runId = await createRun(other);
  await fleet.claimPlaces(runId, [server.id]);
  // Only who reconciles tells the server to begin.
  await until('the start', () => fleet!.control(runId, 'start'), TAKEN_OVER_WITHIN_MS + 15_000);
  const takenOverMs = performance.now() - stoppedAt;
  expect(takenOverMs).toBeGreaterThan(HOLDER_STALE_AFTER_MS / 2); // it was stopped with the lock
  expect(takenOverMs).toBeLessThan(TAKEN_OVER_WITHIN_MS);
  expect(await reconciles(other)).toBe(true);
  expect(other.log()).toContain('the api that reconciled stood still');

  const rows = async (): Promise<unknown[]> => {
    const client = new pg.Client({ connectionString: postgres.url });
    await client.connect();
    const { rows: found } = await client.query<object>(
      'SELECT "status", "Run"."attempt", "made" FROM "Run" JOIN "RunServer" ON "id" = "runId"',
    );
    await client.end();
    return found;
  };
  const before = await rows();
  first.child.kill('SIGCONT');
  await until('the stopped one to notice', () => first.log().includes('the dispatch lock is lost'));
  for (let i = 0; i < 5; i++) {
    expect([await reconciles(first), await reconciles(other)]).toEqual([false, true]);
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
  expect(await rows()).toEqual(before);
  // And back: who ends in order, or dies, frees the lock at once.
  other.child.kill('SIGKILL');
  const killedAt = performance.now();
  await until('the first one to take over again', () => reconciles(first), HOLDER_STALE_AFTER_MS);
  expect(performance.now() - killedAt).toBeLessThan(HOLDER_STALE_AFTER_MS / 2);
});
