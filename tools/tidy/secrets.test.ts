/** deploy/secrets.mjs, which makes the secrets of `docker compose up`, without Docker: what its image has to carry, and what it writes. */
import { spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { X509Certificate } from 'node:crypto';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { findFreePort, findRedis } from '@paceline/runtime';
import { Redis } from 'ioredis';
import { describe, expect, it } from 'vitest';
import { APPS, copiesOf, librariesOf, STAGES } from './dockerfile.js';
import { jsonOf, repositoryRoot, textOf } from './tree.js';

describe('deploy/secrets.mjs', () => {
  const RUNTIME = ['redis-users.js', 'tls/certificates.js'];
  const run = (folder: string, env: Record<string, string> = {}) =>
    spawnSync(process.execPath, [join(repositoryRoot, 'deploy/secrets.mjs'), folder], {
      encoding: 'utf8',
      env: { PATH: process.env['PATH'], ...env },
    });
  const SECRET_FOLDERS = ['postgres', 'redis', 'redis-api', 'redis-ps', 'redis-worker', 'token', 'key', 'tls-ca', 'tls-ps', 'tls-worker'];
  const files = ['postgres/password', 'redis/password', 'redis/redis.conf', 'token/secret', 'key/bootstrap-key', 'redis-worker/password'];

  it('finds in its image all that it imports, below the folders that it imports it from', () => {
    const stage = STAGES.find(({ name }) => name === 'secrets')!;
    const copied = copiesOf(stage).flatMap(({ sources, target }) =>
      sources.map((source) => join('/app', target, source.split('/').at(-1)!)),
    );
    const packages = new Set<string>();
    const seen = new Set<string>();
    /** What a file imports, when it is loaded or later. */
    const follow = (path: string): void => {
      if (seen.has(path)) return;
      seen.add(path);
      expect(copied).toContain(path);
      const source = path.replace(/^\/app\//u, '').replace(/\/dist\/(.*)\.js$/u, '/src/$1.ts');
      const code = textOf(source).replaceAll(/typeof import\([^)]*\)/gu, '');
      for (const [, from, later] of code.matchAll(/^(?:import|export)\b(?! type)[^;]*? from '([^']+)'|\bimport\('([^']+)'\)/gmu)) {
        const name = (from ?? later)!;
        if (name.startsWith('.')) follow(join(path, '..', name));
        else if (!name.startsWith('node:')) packages.add(name);
      }
    };
    follow('/app/deploy/secrets.mjs');
    expect([...seen].sort()).toEqual(['/app/deploy/secrets.mjs', ...RUNTIME.map((file) => `/app/libs/runtime/dist/${file}`)]);
    expect([...packages].sort()).toEqual(['@peculiar/x509', 'reflect-metadata']);
    // They come with the packages of a server: those of its libraries, where they are required, at the top of node_modules.
    expect(copiesOf(stage)).toContainEqual({ from: 'ps-assembled', sources: ['/app/node_modules'], target: 'node_modules' });
    const lock = jsonOf('package-lock.json') as { packages: Record<string, { dev?: boolean; optional?: boolean }> };
    const { dependencies } = jsonOf('libs/runtime/package.json') as { dependencies: Record<string, string> };
    expect(librariesOf('apps/ps')).toContain('runtime');
    for (const name of packages) {
      expect(Object.keys(dependencies)).toContain(name);
      expect(lock.packages[`node_modules/${name}`], name).toBeDefined();
      expect(lock.packages[`node_modules/${name}`], name).not.toMatchObject({ dev: true });
      expect(lock.packages[`libs/runtime/node_modules/${name}`], name).toBeUndefined();
    }
  });

  it('makes users of Redis with the passwords that the processes mount', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'paceline-secrets-'));
    for (const name of SECRET_FOLDERS) mkdirSync(join(folder, name));
    const { command, libraryPath } = await findRedis();
    const port = await findFreePort();
    let server: ChildProcess | undefined;
    try {
      expect(run(folder, { REDIS_PASSWORD: 'with "quotes" \\ and more' }).stderr).toBe('');
      const env = { PATH: process.env['PATH'], ...(libraryPath ? { LD_LIBRARY_PATH: libraryPath } : {}) };
      const words = [join(folder, 'redis/redis.conf'), '--port', String(port), '--bind', '127.0.0.1', '--save', '', '--dir', folder];
      server = spawn(command, words, { env, stdio: 'ignore' });
      const whoAmI = async (username: string, file: string) => {
        const redis = new Redis({ port, username, password: readFileSync(join(folder, file), 'utf8') });
        redis.on('error', () => undefined); // it is still starting, or refuses: the call says so
        return redis
          .call('ACL', 'WHOAMI')
          .then(String, (error: Error) => error.message)
          .finally(() => redis.disconnect());
      };
      expect(await whoAmI('default', 'redis/password')).toBe('default');
      for (const app of APPS) expect(await whoAmI(app, `redis-${app}/password`)).toMatch(/^NOPERM .*acl/);
    } finally {
      server?.kill('SIGKILL');
      rmSync(folder, { recursive: true, force: true });
    }
  });

  it('makes certificates for servers and workers, when it is asked to', () => {
    const folder = mkdtempSync(join(tmpdir(), 'paceline-secrets-'));
    try {
      for (const name of SECRET_FOLDERS) mkdirSync(join(folder, name));
      expect(run(folder).status).toBe(0);
      expect(existsSync(join(folder, 'tls-ps/tls.crt'))).toBe(false);
      expect(run(folder, { PACELINE_TLS: 'off' })).toMatchObject({ status: 78 });
      const made = run(folder, { PACELINE_TLS: 'on' });
      expect([made.status, made.stderr]).toEqual([0, '']);
      expect(made.stdout).toMatch(/is encrypted\. Certificates end on \d{4}-/);
      const authority = new X509Certificate(readFileSync(join(folder, 'tls-ca/ca/ca.crt')));
      for (const name of ['tls-ps', 'tls-worker']) {
        const certificate = new X509Certificate(readFileSync(join(folder, name, 'tls.crt')));
        expect(certificate.checkIssued(authority) && certificate.verify(authority.publicKey)).toBe(true);
        expect(statSync(join(folder, name, 'tls.key')).mode & 0o777).toBe(0o600);
      }
      const before = readFileSync(join(folder, 'tls-ps/tls.crt'), 'utf8');
      expect(run(folder, { PACELINE_TLS: 'on' }).status).toBe(0);
      expect(readFileSync(join(folder, 'tls-ps/tls.crt'), 'utf8')).toBe(before);
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  });

  it('makes each secret once, says how to sign in, and takes those that are given', () => {
    const folder = mkdtempSync(join(tmpdir(), 'paceline-secrets-'));
    try {
      for (const name of SECRET_FOLDERS) mkdirSync(join(folder, name));
      const read = () => files.map((file) => readFileSync(join(folder, file), 'utf8'));
      const first = run(folder, { PACELINE_PORT: '4207' });
      const made = read();
      expect([first.status, first.stderr]).toEqual([0, '']);
      expect(first.stdout).toContain('http://127.0.0.1:4207');
      expect(first.stdout).toContain(made[4]);
      expect(new Set(made).size).toBe(made.length);
      expect(run(folder).status).toBe(0);
      expect(read()).toEqual(made);

      expect(run(folder, { REDIS_PASSWORD: 'with "quotes" \\ and more', PACELINE_BOOTSTRAP_KEY: '' }).status).toBe(0);
      expect(readFileSync(join(folder, 'redis/redis.conf'), 'utf8')).toMatch(
        /^requirepass "with \\"quotes\\" \\\\ and more"\n(user .+\n){3}$/,
      );
      expect(readFileSync(join(folder, 'redis-worker/password'), 'utf8'), 'changes with it').not.toBe(made[5]);
      const changed = run(folder, { POSTGRES_PASSWORD: 'another-password' });
      expect([changed.status, changed.stderr]).toEqual([
        78,
        expect.stringContaining('differs from the password that the database was made with'),
      ]);
      const before = read();
      const refused = run(folder, { REDIS_PASSWORD: 'a-new-password', PACELINE_TOKEN_SECRET: 'short' });
      expect(refused.stderr).toContain('at least 32 characters');
      expect(read(), 'all or nothing').toEqual(before);
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  });
});
