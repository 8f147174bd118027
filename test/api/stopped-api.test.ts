/**
 * Two apis as processes, of which the one that reconciles is stopped (SIGSTOP) with the lock in its hands: the other goes on with its work.
 * PostgreSQL itself writes down which of the two changes rows of a run.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { startMigratedPostgres } from '@paceline/testkit';
import { endProcess, startRedis, waitForReady, type RunningRedis, type RunningService } from '@paceline/runtime';
import { TICK_MS } from '@paceline/control-plane';
import pg from 'pg';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { ScriptedFleet } from './scripted-fleet.js';
import { TOKEN_SECRET, until } from './services.js';

/** `npm run soak` has these too. */
const IS_SOAK = process.env['PACELINE_SOAK'] === '1';

const API = join(import.meta.dirname, '../../apps/api/dist/bundle/main.js');
const KEY = `pcl_000000000000_${'k'.repeat(32)}`;
const folder = join(tmpdir(), `paceline-stopped-api-${process.pid}`);

/** What the reconciler changes: not what is copied from reports, which any api may store. */
const TABLES = ['Run', 'Attempt', 'RunServer', 'StepTask', 'Outbox', 'RunEvent'];
const CHANGED = `- '{spec,model,coordinator,coordinatorAt}'::text[]`;
/** The name of the api that wrote is a setting of its sessions. */
const AUDIT = `
  CREATE TABLE audit (n bigserial, api text, what text);
  CREATE FUNCTION audited() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF TG_OP = 'UPDATE' AND to_jsonb(NEW) ${CHANGED} = to_jsonb(OLD) ${CHANGED} THEN RETURN NULL; END IF;
    INSERT INTO audit (api, what)
      VALUES (current_setting('paceline.api', true), TG_OP || ' ' || TG_TABLE_NAME || ' ' || (to_jsonb(NEW) ${CHANGED})::text);
    RETURN NULL;
  END $$;
  ${TABLES.map((table) => `CREATE TRIGGER audited AFTER INSERT OR UPDATE ON "${table}" FOR EACH ROW EXECUTE FUNCTION audited();`).join('\n')}`;

interface Api {
  readonly name: string;
  readonly child: ChildProcess;
  readonly url: string;
  readonly log: () => string;
}

let postgres: RunningService;
let redis: RunningRedis;
let database: pg.Client;
let fleet: ScriptedFleet | undefined;
const children: ChildProcess[] = [];
beforeEach(async () => {
  [postgres, redis] = await Promise.all([
    startMigratedPostgres({ dataDir: `${folder}-postgres`, temporary: true }),
    startRedis({ dataDir: `${folder}-redis`, temporary: true }),
  ]);
  database = new pg.Client({ connectionString: postgres.url });
  await database.connect();
});
afterEach(async () => {
  await fleet?.stop();
  fleet = undefined;
  for (const child of children.splice(0)) {
    child.kill('SIGCONT');
    await endProcess(child);
  }
  await database?.end();
  await Promise.all([postgres?.stop(), redis?.stop()]);
});

async function startApi(name: string): Promise<Api> {
  const databaseUrl = new URL(postgres.url);
  databaseUrl.searchParams.set('options', `-c paceline.api=${name}`);
  const env = {
    PATH: process.env['PATH'],
    DATABASE_URL: databaseUrl.href,
    REDIS_URL: redis.urlOf('api'),
    PACELINE_PORT: '0',
    PACELINE_TOKEN_SECRET: TOKEN_SECRET,
    PACELINE_BOOTSTRAP_KEY: KEY,
  };
  const child = spawn(process.execPath, [API], { env, stdio: ['ignore', 'pipe', 'pipe'] });
  children.push(child);
  let log = '';
  child.stderr!.on('data', (chunk: Buffer) => (log += chunk.toString()));
  const { url } = (await waitForReady(child, 60_000, 'api')) as unknown as { url: string };
  return { name, child, url, log: () => log };
}

/** The api that held the lock before it has not let it go. What that costs in time is held by dispatch-lock.test.ts, on a clock of its own. */
const TAKEN_FROM_A_STOPPED_ONE = 'the api that reconciled stood still';

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

/** @returns the one that reconciles, and the other */
async function twoApis(): Promise<{ first: Api; other: Api }> {
  const apis = [await startApi('a'), await startApi('b')];
  await database.query(AUDIT);
  const first = await until('an api that reconciles', async () => {
    for (const api of apis) if (await reconciles(api)) return api;
    return undefined;
  });
  const other = apis.find((api) => api !== first)!;
  expect(await reconciles(other)).toBe(false);
  return { first, other };
}

/** Every row of every run. */
async function rows(): Promise<Record<string, unknown[]>> {
  const tables: Record<string, unknown[]> = {};
  for (const table of TABLES)
    tables[table] = (await database.query<{ row: unknown }>(`SELECT to_jsonb(t) ${CHANGED} AS row FROM "${table}" t ORDER BY 1`)).rows;
  return tables;
}

/** When the one that reconciles has nothing more to do. */
async function restingRows(): Promise<Record<string, unknown[]>> {
  let last = JSON.stringify(await rows());
  return until('the rows to rest', async () => {
    await new Promise((resolve) => setTimeout(resolve, 3 * TICK_MS));
    const before = last;
    const present = await rows();
    last = JSON.stringify(present);
    return last === before && present;
  });
}

async function writtenBy(api: Api): Promise<string[]> {
  const found = await database.query<{ what: string }>('SELECT "what" FROM audit WHERE "api" = $1 ORDER BY "n"', [api.name]);
  return found.rows.map(({ what }) => what);
}

/** Goes on with a stopped api and watches it for a second after it noticed: nothing in the rows of the run moves, and it writes nothing. */
async function goesOnInVain(first: Api, other: Api): Promise<void> {
  const [before, written] = [await restingRows(), await writtenBy(first)];
  expect(written.length).toBeGreaterThan(0); // the watch sees what it writes
  first.child.kill('SIGCONT');
  await until('the stopped one to notice', () => first.log().includes('the dispatch lock is lost'));
  for (let i = 0; i < 5; i++) {
    expect([await reconciles(first), await reconciles(other)]).toEqual([false, true]);
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
  expect(await writtenBy(first)).toEqual(written);
  expect(await rows()).toEqual(before);
}

it.runIf(IS_SOAK)(
  'the other takes over; the stopped one, which has nothing in hand, notices when it goes on, and does not reconcile',
  async () => {
    const { first, other } = await twoApis();
    fleet = await new ScriptedFleet(redis.url).ready();
    const server = fleet.beat('server');
    fleet.beat('worker');
    await createRun(first);
    await until('something that it wrote', async () => (await writtenBy(first)).length > 0);
    await fleet.takePlacement(); // another run's, so that the server is there for the next
    // That it was sent is written down after it was: in hand, though nothing is to be decided.
    await until('nothing in hand', async () => (await database.query('SELECT 1 FROM "Outbox" WHERE "sentAt" IS NULL')).rows.length === 0);

    first.child.kill('SIGSTOP');
    const runId = await createRun(other);
    await fleet.claimPlaces(runId, [server.id]);
    // Only who reconciles tells the server to begin.
    await until('the start', () => fleet!.control(runId, 'start'));
    expect(await reconciles(other)).toBe(true);
    expect(other.log()).toContain(TAKEN_FROM_A_STOPPED_ONE);
    await goesOnInVain(first, other);
    // And back: who ends in order, or dies, frees the lock at once.
    other.child.kill('SIGKILL');
    await until('the first one to take over again', () => reconciles(first));
    expect(first.log()).not.toContain(TAKEN_FROM_A_STOPPED_ONE);
  },
);

/**
 * It has read rows by which a seat is due to be opened, and stands still before it decides. Meanwhile the other opens the seat and a worker holds
 * it. The stop is short, because PostgreSQL ends the session itself: after a long one the deadlines of what it waited for would break its tick off.
 */
it('one that is stopped with a decision in hand drops it when it goes on', async () => {
  const { first, other } = await twoApis();
  fleet = await new ScriptedFleet(redis.url).ready();
  const server = fleet.beat('server');
  const worker = fleet.beat('worker');
  const runId = await createRun(first);
  const coordinator = await fleet.claim(runId, [server.id]);
  const seat = {
    kind: 'seat.failed',
    runId,
    attempt: 1,
    workerId: worker.id,
    code: 'ENGINE_MISSING',
    message: 'no wasm',
    serverIndex: null,
  } as const;
  for (let incarnation = 0; incarnation < 3; incarnation++) {
    const { payload, complete } = await takeSeat(fleet, incarnation);
    await fleet.report({ ...seat, seat: payload.seat, incarnation });
    await complete();
  }
  // The pause before the fourth is 2 s: the rows say that no seat is open. Then reading why the last one failed waits.
  const failures = async () =>
    (await database.query<{ seatFailures: number }>('SELECT "seatFailures" FROM "Attempt"')).rows[0]?.seatFailures;
  await until('the third failure', async () => (await failures()) === 3);
  const locker = new pg.Client({ connectionString: postgres.url });
  await locker.connect();
  await locker.query('BEGIN; LOCK TABLE "RunEvent" IN ACCESS EXCLUSIVE MODE');
  await until('a look of the reconciler', async () => {
    const { rows: waiting } = await database.query(
      `SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'SELECT%RunEvent%'`,
    );
    return waiting.length > 0;
  });
  first.child.kill('SIGSTOP');
  await locker.end();
  expect((await database.query('SELECT 1 FROM "StepTask" WHERE "state" <> \'CLOSED\'')).rows).toEqual([]);
  await database.query(`SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted`);
  await until('the other one to take over', () => reconciles(other));
  const task = await takeSeat(fleet, 3);
  await coordinator.train(worker.id, task.payload);
  await task.complete();
  await coordinator.acknowledged();
  const held = async () =>
    (await database.query('SELECT 1 FROM "StepTask" WHERE "state" = \'HELD\'')).rows.length === 1 && (await failures()) === 0;
  await until('the seat that is held', held);
  await goesOnInVain(first, other);
});

it.runIf(IS_SOAK)('while Redis is out of memory the one that reconciles says so in the runs, and the other does not', async () => {
  const { first, other } = await twoApis();
  fleet = await new ScriptedFleet(redis.url).ready();
  const runId = await createRun(first);
  await fleet.takePlacement();
  const reason = async () =>
    (await database.query<{ statusReason: string }>('SELECT "statusReason" FROM "Run" WHERE "id" = $1', [runId])).rows[0]!.statusReason;
  await fleet.redis.config('SET', 'maxmemory', '1');
  const isTold = () => reason().then((text) => text.startsWith('waits for Redis, which is out of memory'));
  await until('the reason', isTold);
  await until('the other one to know', () => other.log().includes('Redis is out of memory'));
  const before = await writtenBy(other);
  // Both look at every tick: were it up to chance who is first, the other one would be, some of these times.
  for (let i = 0; i < 6; i++) {
    await database.query(`UPDATE "Run" SET "statusReason" = 'something else'`);
    await until('the reason again', isTold);
  }
  expect(await writtenBy(other)).toEqual(before);
});

async function takeSeat(from: ScriptedFleet, incarnation: number) {
  const held = await from.takeStepTask();
  expect(held.payload).toMatchObject({ seat: 0, incarnation });
  return { payload: held.payload, complete: () => held.complete('given-up') };
}
