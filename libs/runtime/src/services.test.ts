/** Embedded PostgreSQL and Redis, started for real. */
import { spawn } from 'node:child_process';
import {
  appendFileSync,
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { createServer, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import pg from 'pg';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { isAlive } from './end-process.js';
import { startPostgres, type RunningService } from './postgres.js';
import { redisOf, startRedis } from './redis.js';
import { findRedis, whyUnreadable, type RedisBinary } from './redis-sources.js';

const temp = mkdtempSync(join(tmpdir(), 'paceline-services-'));
const running: RunningService[] = [];
const keep = <S extends RunningService>(service: S): S => (running.push(service), service);
const savedEnvironment = { ...process.env };
let blocker: Server;
let takenPort: number;

beforeAll(async () => {
  chmodSync(temp, 0o711); // PostgreSQL's user must pass through when the tests run as root
  blocker = createServer();
  await new Promise<void>((done) => blocker.listen(0, '127.0.0.1', done));
  takenPort = (blocker.address() as { port: number }).port;
});
afterEach(async () => {
  process.env = { ...savedEnvironment };
  await Promise.all(running.splice(0).map((service) => service.stop()));
});
afterAll(() => {
  blocker.close();
  rmSync(temp, { recursive: true, force: true });
});

async function query(url: string, text: string): Promise<pg.QueryResult> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    return await client.query(text);
  } finally {
    await client.end();
  }
}

describe('embedded PostgreSQL', () => {
  it('keeps its data between starts, listens on loopback only and asks for the password', async () => {
    process.env['PGHOST'] = 'wrong.invalid';
    process.env['PGPORT'] = '1';
    const dataDir = join(temp, 'pg');
    const first = keep(await startPostgres({ dataDir }));
    await query(first.url, 'CREATE TABLE kept (n int); INSERT INTO kept VALUES (7)');
    const settings = await query(
      first.url,
      `SELECT name, setting FROM pg_settings WHERE name IN ('listen_addresses', 'unix_socket_directories', 'fsync') ORDER BY name`,
    );
    expect(settings.rows).toEqual([
      { name: 'fsync', setting: 'on' },
      { name: 'listen_addresses', setting: '127.0.0.1' },
      { name: 'unix_socket_directories', setting: '' },
    ]);
    await expect(query(first.url.replace(/:[^:@]+@/, ':wrong@'), 'SELECT 1')).rejects.toThrow(/password authentication failed/);
    expect(statSync(join(dataDir, 'password')).mode & 0o777).toBe(0o600);
    await first.stop();
    expect(isAlive(first.pid)).toBe(false);
    const second = keep(await startPostgres({ dataDir }));
    expect((await query(second.url, 'SELECT n FROM kept')).rows).toEqual([{ n: 7 }]);
  });

  it.skipIf(process.platform !== 'linux')(
    'starts on a cluster whose postmaster.pid names another process by now, as the user whose cluster it is, and leaves that process alone',
    async () => {
      const dataDir = join(temp, 'pg-stale');
      const cluster = join(dataDir, 'cluster');
      await keep(await startPostgres({ dataDir })).stop();
      const other = spawn('sleep', ['60'], { argv0: 'postgres', stdio: 'ignore' });
      try {
        writeFileSync(join(cluster, 'postmaster.pid'), `${other.pid}\n${cluster}\n1\n5432\n\n127.0.0.1\n  1 1\nready\n`);
        if (process.getuid!() === 0) {
          for (const name of ['', ...readdirSync(cluster, { recursive: true, encoding: 'utf8' })])
            chownSync(join(cluster, name), 4321, 4321);
        }
        const again = keep(await startPostgres({ dataDir }));
        expect((await query(again.url, 'SELECT 1 AS n')).rows).toEqual([{ n: 1 }]);
        expect([isAlive(other.pid!), statSync(join(cluster, 'postmaster.pid')).uid]).toEqual([true, statSync(cluster).uid]);
      } finally {
        other.kill('SIGKILL');
      }
    },
  );

  it.skipIf(process.getuid?.() !== 0)('refuses a cluster of root', async () => {
    const dataDir = join(temp, 'pg-root');
    mkdirSync(join(dataDir, 'cluster'), { recursive: true });
    await expect(startPostgres({ dataDir })).rejects.toMatchObject({ code: 'POSTGRES_NEEDS_USER', hint: expect.stringContaining('chown') });
  });

  it('removes a temporary folder at the end, also one below a folder that only root may enter', async () => {
    mkdirSync(join(temp, 'closed'), { mode: 0o700 });
    const dataDir = join(temp, 'closed/pg');
    const service = await startPostgres({ dataDir, temporary: true });
    expect((await query(service.url, 'SELECT 1 AS n')).rows).toEqual([{ n: 1 }]);
    await service.stop();
    expect(existsSync(dataDir)).toBe(false);
  });

  it('says so when the wanted port is taken', async () => {
    await expect(startPostgres({ dataDir: join(temp, 'pg-port'), port: takenPort, temporary: true })).rejects.toMatchObject({
      code: 'PORT_TAKEN',
      exit: 'configuration',
    });
    expect(existsSync(join(temp, 'pg-port'))).toBe(false);
  });

  it('tells a start that fails by what it has logged itself, and not by what an earlier one has', async () => {
    const dataDir = join(temp, 'pg');
    appendFileSync(join(dataDir, 'postgres.log'), 'LOG:  could not bind IPv4 address "127.0.0.1": Address already in use\n');
    writeFileSync(join(dataDir, 'cluster/postgresql.auto.conf'), 'no_such_setting = 1\n');
    await expect(startPostgres({ dataDir })).rejects.toMatchObject({
      code: 'POSTGRES_START_FAILED',
      message: expect.stringContaining('no_such_setting'),
    });
  });
});

describe('embedded Redis', () => {
  it('asks for the password, evicts nothing and keeps its data between starts', async () => {
    const dataDir = join(temp, 'redis');
    const first = keep(await startRedis({ dataDir }));
    const redis = new Redis(first.url, { lazyConnect: true, retryStrategy: () => null });
    await redis.connect();
    expect(await redis.config('GET', 'maxmemory-policy')).toEqual(['maxmemory-policy', 'noeviction']);
    expect(await redis.config('GET', 'bind')).toEqual(['bind', '127.0.0.1']);
    await redis.set('kept', '7');
    redis.disconnect();
    const stranger = new Redis({
      host: first.host,
      port: first.port,
      lazyConnect: true,
      enableReadyCheck: false,
      retryStrategy: () => null,
    });
    stranger.on('error', () => undefined);
    await expect(stranger.connect().then(() => stranger.get('kept'))).rejects.toThrow(/NOAUTH/);
    stranger.disconnect();
    await first.stop();
    mkdirSync(join(dataDir, 'written-by.json.new')); // as a full disk would, it keeps the note from being written
    const told: string[] = [];
    const second = keep(await startRedis({ dataDir, onProgress: (text) => told.push(text) }));
    expect(told).toEqual([expect.stringContaining(`which Redis has written ${dataDir} could not be noted: EISDIR`)]);
    const again = new Redis(second.url, { retryStrategy: () => null });
    expect(await again.get('kept')).toBe('7');
    again.disconnect();
  });

  it('says so when the wanted port is taken', async () => {
    await expect(startRedis({ dataDir: join(temp, 'redis-port'), port: takenPort, temporary: true })).rejects.toMatchObject({
      code: 'PORT_TAKEN',
    });
  });

  it('goes on with the server that wrote the data, and takes none that could not read them', async () => {
    const former = redisOf(join(temp, 'redis'))!;
    expect(former).toMatchObject({ source: expect.any(String), command: expect.stringContaining('redis') });
    // What is installed later comes first on PATH, and is not taken.
    const bin = join(temp, 'later');
    mkdirSync(bin);
    const install = (version: string): void =>
      writeFileSync(join(bin, 'redis-server'), `#!/bin/sh\necho "Redis server v=${version} sha=0"\n`, { mode: 0o755 });
    process.env['PATH'] = bin;
    process.env['PACELINE_HOME'] = join(temp, 'home');
    install('9.0.1');
    expect((await findRedis({ former })).command).toBe(former.command);
    const gone = { ...former, command: join(temp, 'gone') };
    expect((await findRedis({ former: gone })).version).toContain('9.0.1');
    install('6.2.0');
    process.env['PACELINE_REDIS_SOURCE'] = 'path';
    await expect(findRedis({ former: gone })).rejects.toMatchObject({
      code: 'REDIS_NOT_FOUND',
      message: expect.stringMatching(/path: Redis 6\.2 cannot read what \S+ \d+\.\d+ has written/u),
    });
  });

  it.each([
    ['Redis', '7.0', 'Redis', '7.2', false],
    ['Redis', '8.2', 'Redis', '8.2', true],
    ['Valkey', '8.0', 'Redis', '7.2', true],
    ['Valkey', '8.0', 'Redis', '7.4', false],
    ['Redis', '7.4', 'Valkey', '8.1', true],
    ['Redis', '7.0', 'Valkey', '8.1', false],
    ['Redis', '8.2', 'Valkey', '9.0', false],
  ])('%s %s and what %s %s has written: %s', (family, version, otherFamily, otherVersion, canRead) => {
    const binary = (name: string, number: string): RedisBinary => ({
      source: 'path',
      command: 'redis',
      version: `${name} server v=${number}.1 sha=0`,
    });
    expect(whyUnreadable(binary(family, version), binary(otherFamily, otherVersion)) === undefined).toBe(canRead);
  });

  it('downloads nothing and makes nothing when it only looks', async () => {
    process.env['PATH'] = temp;
    process.env['PACELINE_HOME'] = join(temp, 'looked-at');
    process.env['PACELINE_REDIS_SOURCE'] = 'pip';
    writeFileSync(join(temp, 'python3'), '#!/bin/sh\nexit 1\n', { mode: 0o755 });
    await expect(findRedis({ isLookOnly: true })).rejects.toThrow('pip: it would be downloaded at the first start');
    rmSync(join(temp, 'python3'));
    expect(existsSync(join(temp, 'looked-at'))).toBe(false);
  });

  it('names every candidate and what to install when there is none', async () => {
    process.env['PATH'] = temp;
    process.env['PACELINE_HOME'] = join(temp, 'home');
    process.env['PACELINE_REDIS_SOURCE'] = 'path';
    await expect(findRedis()).rejects.toMatchObject({
      code: 'REDIS_NOT_FOUND',
      hint: expect.stringContaining('apt install redis-server'),
      message: expect.stringContaining('neither redis-server nor valkey-server'),
    });
    process.env['PACELINE_REDIS_SOURCE'] = 'pip';
    await expect(findRedis()).rejects.toThrow('pip: python3 is not on PATH');
    process.env['PACELINE_REDIS_SOURCE'] = 'memcached';
    await expect(findRedis()).rejects.toMatchObject({ code: 'REDIS_SOURCE_UNKNOWN' });
  });
});
