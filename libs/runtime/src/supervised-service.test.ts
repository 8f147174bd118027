/** A service that ends is started again: with a service of our own, and with PostgreSQL and Redis that are killed. */
import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import pg from 'pg';
import { afterAll, describe, expect, it } from 'vitest';
import { isAlive } from './end-process.js';
import { startPostgres, type RunningService } from './postgres.js';
import { startRedis } from './redis.js';
import type { RestartPolicy } from './restart-budget.js';
import { superviseService } from './supervised-service.js';
import type { SupervisorEvent } from './supervisor.js';

const QUICK: RestartPolicy = { firstDelayMs: 20, maxDelayMs: 200, settledMs: 1_000, restarts: 3, windowMs: 60_000 };
const temp = mkdtempSync(join(tmpdir(), 'paceline-supervised-'));
chmodSync(temp, 0o711); // PostgreSQL's user must pass through when the tests run as root
afterAll(() => rmSync(temp, { recursive: true, force: true }));

/** Told as they come; `next` waits for the first of its state that was not waited for yet. */
function listen() {
  const events: SupervisorEvent[] = [];
  const waiting: (() => void)[] = [];
  return {
    events,
    onEvent: (event: SupervisorEvent) => (events.push(event), waiting.splice(0).forEach((wake) => wake())),
    async next(state: SupervisorEvent['state']): Promise<SupervisorEvent> {
      for (;;) {
        const found = events.find((event) => event.state === state);
        if (found) return events.splice(0, events.indexOf(found) + 1).at(-1)!;
        await new Promise<void>((wake) => waiting.push(wake));
      }
    },
  };
}

describe('a service that cannot be kept', () => {
  const fake = () => {
    let end!: () => void;
    const ended = new Promise<void>((resolve) => (end = resolve));
    const service: RunningService = {
      url: 'x',
      host: 'h',
      port: 7,
      pid: 1,
      logFile: 'l',
      ended,
      stop: () => Promise.resolve(end()),
      kill: () => Promise.resolve(end()),
    };
    return { service, end };
  };

  it('is given up when its restarts are used up, and names why', async () => {
    const first = fake();
    const { events, onEvent } = listen();
    let starts = 0;
    const supervised = await superviseService({
      name: 'redis',
      restart: QUICK,
      onEvent,
      start: (former) => {
        starts++;
        if (!former) return Promise.resolve(first.service);
        expect(former.port).toBe(7);
        return Promise.reject(new Error('its folder is gone'));
      },
    });
    first.end();
    expect((await supervised.failed).message).toBe('could not be started: its folder is gone; 3 restarts in 60 s are used up');
    expect([starts, supervised.pid()]).toEqual([4, undefined]);
    expect(events.map(({ message }) => message).slice(0, 2)).toEqual([
      'ended; starting again in 20 ms',
      'could not be started: its folder is gone; starting again in 40 ms',
    ]);
  });

  it('is not started again when it was stopped or killed, nor without a policy', async () => {
    const [stopped, ended] = [fake(), fake()];
    const { events, onEvent } = listen();
    const one = await superviseService({ name: 'redis', restart: QUICK, onEvent, start: () => Promise.resolve(stopped.service) });
    await one.stop();
    expect(events).toEqual([]);
    const given = fake();
    given.service.stop = () => Promise.reject(new Error('it is not asked to end in order'));
    await (await superviseService({ name: 'redis', restart: QUICK, onEvent, start: () => Promise.resolve(given.service) })).kill();
    expect(events).toEqual([]);
    const other = await superviseService({ name: 'redis', start: () => Promise.resolve(ended.service) });
    ended.end();
    expect((await other.failed).message).toBe('ended; it is not started again');
  });
});

it('PostgreSQL that is killed is back at its address with all that was committed', async () => {
  const dataDir = join(temp, 'pg');
  const told = listen();
  const supervised = await superviseService({
    name: 'postgresql',
    restart: QUICK,
    onEvent: told.onEvent,
    start: (former) => startPostgres({ dataDir, port: former?.port ?? 0 }),
  });
  const { url, port } = supervised.service;
  const query = async (text: string): Promise<unknown[]> => {
    const client = new pg.Client({ connectionString: url });
    client.on('error', () => undefined); // it is killed under a connection
    await client.connect();
    return (await client.query<Record<string, unknown>>(text).finally(() => void client.end())).rows;
  };
  try {
    await query('CREATE TABLE kept (n int); INSERT INTO kept VALUES (7)');
    const busy = query('SELECT pg_sleep(60)').catch((error: Error) => error); // a process that holds its shared memory
    const before = supervised.pid()!;
    process.kill(before, 'SIGKILL');
    await told.next('READY');
    expect([supervised.service.port, await query('SELECT n FROM kept')]).toEqual([port, [{ n: 7 }]]);
    expect(supervised.pid()).not.toBe(before);
    expect(await busy).toBeInstanceOf(Error);
    // Another host has its data: what an orderly end writes and removes is the other's.
    const control = readFileSync(join(dataDir, 'cluster/global/pg_control'));
    const waits = query('SELECT pg_sleep(60)').catch((error: Error) => error);
    const pids = (await query('SELECT pid FROM pg_stat_activity')).map((row) => (row as { pid: number }).pid);
    await supervised.kill();
    expect([pids.length > 4, pids.filter(isAlive), await waits]).toEqual([true, [], expect.any(Error)]);
    expect(readFileSync(join(dataDir, 'cluster/global/pg_control'))).toEqual(control);
    expect(existsSync(join(dataDir, 'cluster/postmaster.pid'))).toBe(true);
  } finally {
    await supervised.stop();
  }
});

it('Redis that is killed is back at its address, with its password and its data', async () => {
  const dataDir = join(temp, 'redis');
  const told = listen();
  const supervised = await superviseService({
    name: 'redis',
    restart: QUICK,
    onEvent: told.onEvent,
    start: (former) => startRedis({ dataDir, port: former?.port ?? 0, password: 'the-same' }),
  });
  const { url } = supervised.service;
  const redis = new Redis(url, { retryStrategy: () => 50, maxRetriesPerRequest: null });
  redis.on('error', () => undefined);
  try {
    await redis.set('kept', '7');
    process.kill(supervised.pid()!, 'SIGKILL');
    await told.next('READY');
    expect([supervised.service.url, await redis.get('kept')]).toEqual([url, '7']);
  } finally {
    redis.disconnect();
    await supervised.stop();
  }
});
