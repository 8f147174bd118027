import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import { describe, expect, it } from 'vitest';
import { EnvironmentError, readEnvironment, VARIABLES } from './environment.js';
import { EXIT, EXIT_MEANINGS } from './exit-codes.js';
import { createHealthRegistry } from './health.js';
import { createLogger, redactText } from './logging.js';
import { formerData, userDirectories } from './user-directories.js';

describe('the environment', () => {
  it('fills defaults, converts numbers and counts an empty variable as not set', () => {
    const { PACELINE_PORT, PACELINE_HOST } = VARIABLES;
    expect(readEnvironment({ PACELINE_PORT, PACELINE_HOST }, { PACELINE_PORT: '8080', PACELINE_HOST: '' })).toEqual({
      PACELINE_PORT: 8080,
      PACELINE_HOST: '127.0.0.1',
    });
  });

  it('names every wrong variable at once, says what it is for, and never repeats a value', () => {
    const { DATABASE_URL, REDIS_URL, PACELINE_PORT, PACELINE_TOKEN_SECRET } = VARIABLES;
    const env = { DATABASE_URL: 'mysql://root:hunter2@db/x', PACELINE_PORT: '70000', PACELINE_TOKEN_SECRET: 'short-secret' };
    try {
      readEnvironment({ DATABASE_URL, REDIS_URL, PACELINE_PORT, PACELINE_TOKEN_SECRET }, env);
      expect.unreachable();
    } catch (error) {
      expect(error).toBeInstanceOf(EnvironmentError);
      const { issues, message, exitCode } = error as EnvironmentError;
      expect(issues.map((issue) => issue.variable).sort()).toEqual(['DATABASE_URL', 'PACELINE_PORT', 'PACELINE_TOKEN_SECRET', 'REDIS_URL']);
      expect(message).toContain('REDIS_URL: is not set (Redis for the queues and reports)');
      expect(message).toContain('openssl rand -hex 32');
      expect(message).not.toMatch(/hunter2|short-secret/);
      expect(exitCode).toBe(EXIT.configuration);
    }
  });

  it('reads a link as bytes a second and milliseconds, and refuses what is none', () => {
    const { PACELINE_LINK } = VARIABLES;
    const read = (text: string): unknown => readEnvironment({ PACELINE_LINK }, { PACELINE_LINK: text }).PACELINE_LINK;
    expect(read('20mbit,30ms')).toEqual({ bytesPerSecond: 2.5e6, delayMs: 30 });
    expect(read('1.5gbit')).toEqual({ bytesPerSecond: 187.5e6, delayMs: 0 });
    for (const wrong of ['20', '20mbit,30', 'fast', '-1mbit', '7kbit', '1mbit,30s'])
      expect(() => read(wrong)).toThrow(/PACELINE_LINK: must be like 20mbit,30ms/);
  });

  it('reads a value from the file that NAME_FILE names, and puts a password with any characters into its address', () => {
    const folder = mkdtempSync(join(tmpdir(), 'paceline-environment-'));
    try {
      const [secret, password] = [join(folder, 'secret'), join(folder, 'password')];
      writeFileSync(secret, `${'s'.repeat(40)}\n`);
      writeFileSync(password, 'p@ss/w#rd%41:?');
      const { DATABASE_URL, REDIS_URL, PACELINE_TOKEN_SECRET } = VARIABLES;
      const values = readEnvironment(
        { DATABASE_URL, REDIS_URL, PACELINE_TOKEN_SECRET },
        {
          DATABASE_URL: 'postgresql://paceline@postgres:5432/paceline',
          DATABASE_PASSWORD_FILE: password,
          REDIS_URL: 'redis://redis:6379',
          REDIS_PASSWORD: 'a b',
          PACELINE_TOKEN_SECRET_FILE: secret,
        },
      );
      expect(decodeURIComponent(new URL(values.DATABASE_URL).password)).toBe('p@ss/w#rd%41:?');
      expect(new URL(values.DATABASE_URL).host).toBe('postgres:5432');
      expect(values.REDIS_URL).toBe('redis://:a%20b@redis:6379');
      expect(values.PACELINE_TOKEN_SECRET).toBe('s'.repeat(40));
    } finally {
      rmSync(folder, { recursive: true });
    }
  });

  it('refuses a variable beside its file, and a file that cannot be read, each once', () => {
    const { PACELINE_TOKEN_SECRET, PACELINE_BOOTSTRAP_KEY } = VARIABLES;
    const env = {
      PACELINE_TOKEN_SECRET_FILE: '/nowhere/secret',
      PACELINE_BOOTSTRAP_KEY: 'k'.repeat(30),
      PACELINE_BOOTSTRAP_KEY_FILE: '/nowhere/key',
    };
    try {
      readEnvironment({ PACELINE_TOKEN_SECRET, PACELINE_BOOTSTRAP_KEY }, env);
      expect.unreachable();
    } catch (error) {
      const { issues } = error as EnvironmentError;
      expect(issues.map(({ variable }) => variable)).toEqual(['PACELINE_TOKEN_SECRET_FILE', 'PACELINE_BOOTSTRAP_KEY_FILE']);
      expect(issues[0]!.message).toContain('cannot be read');
      expect(issues[1]!.message).toContain('PACELINE_BOOTSTRAP_KEY too');
    }
  });

  it('describes every variable', () => {
    for (const [name, schema] of Object.entries(VARIABLES)) expect(schema.description, name).toBeTruthy();
  });
});

describe('exit codes', () => {
  it('are distinct and each has a meaning', () => {
    expect(new Set(Object.values(EXIT)).size).toBe(Object.keys(EXIT).length);
    expect(Object.keys(EXIT_MEANINGS)).toEqual(Object.keys(EXIT));
  });
});

describe('user directories', () => {
  it('follow XDG and PACELINE_HOME', () => {
    expect(userDirectories({ PACELINE_HOME: '/srv/p' })).toEqual({ data: '/srv/p', cache: '/srv/p/cache', config: '/srv/p/config' });
    const xdg = userDirectories({ HOME: '/home/a', XDG_DATA_HOME: '/data', XDG_CACHE_HOME: 'relative-is-ignored' });
    expect(xdg).toEqual({ data: '/data/paceline', cache: '/home/a/.cache/paceline', config: '/home/a/.config/paceline' });
  });

  it.runIf(process.platform === 'linux')("root's data lie in its home; what an earlier version kept elsewhere is named", () => {
    const data = '/home/a/.local/share/paceline';
    expect(userDirectories({ HOME: '/home/a' }).data).toBe(data);
    const former = mkdtempSync(join(tmpdir(), 'paceline-former-'));
    expect(formerData(data, former)).toBeUndefined();
    writeFileSync(join(former, 'secrets.json'), '{}');
    expect(formerData(data, former)).toBe(process.getuid?.() === 0 ? former : undefined);
    expect(formerData(former, former)).toBeUndefined();
    rmSync(former, { recursive: true });
  });
});

describe('logs', () => {
  const logged = (log: (logger: ReturnType<typeof createLogger>) => void): string => {
    let text = '';
    const destination = new Writable({ write: (chunk: Buffer, _encoding, done) => ((text += chunk.toString()), done()) });
    log(createLogger('test', {}, destination));
    return text;
  };

  it('hold no secret, by key or in a text', () => {
    const token = 'eyJhbGciOiJIUzI1NiJ9.eyJydW4iOiJhYmNkZWYifQ.c2lnbmF0dXJlMTIzNA';
    const text = logged((logger) => {
      logger.info(
        { password: 'hunter2', job: { token: 'tok-hunter2' }, REDIS_URL: 'redis://:hunter2@h:1' },
        'connecting to postgresql://paceline:hunter2@127.0.0.1:5432/x',
      );
      logger.error(new Error(`refused Bearer hunter2hunter2 and ${token}`));
    });
    expect(text).not.toContain('hunter2');
    expect(text).not.toContain(token);
    expect(JSON.parse(text.split('\n')[0]!)).toMatchObject({
      name: 'test',
      level: 'info',
      password: '***',
      msg: 'connecting to postgresql://paceline:***@127.0.0.1:5432/x',
    });
  });

  it('stay whole where nothing is secret', () => {
    expect(redactText('round 12 on 127.0.0.1:4100, see https://example.org/a:b')).toBe(
      'round 12 on 127.0.0.1:4100, see https://example.org/a:b',
    );
  });
});

describe('health', () => {
  it('runs all checks with their deadlines and reports which one fails', async () => {
    const health = createHealthRegistry();
    health.register('fine', () => undefined);
    health.register('broken', () => Promise.reject(new Error('no route')));
    health.register('slow', () => new Promise(() => undefined), { timeoutMs: 20 });
    const report = await health.check();
    expect(report.status).toBe('failing');
    expect(report.checks).toMatchObject({
      fine: { status: 'ok' },
      broken: { message: 'no route' },
      slow: { message: 'no answer after 20 ms' },
    });
    expect(() => health.register('fine', () => undefined)).toThrow(/twice/);
  });
});
