/** docker-compose.yml and deploy/, checked without Docker: what they name exists, nothing runs as root, no secret has a default. */
import { spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { X509Certificate } from 'node:crypto';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { findFreePort, findRedis, VARIABLES } from '@paceline/runtime';
import { Redis } from 'ioredis';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { argumentsOf, copiesOf, only, STAGES, stagesOf } from './dockerfile.js';
import { files, jsonOf, repositoryRoot, textOf } from './tree.js';

const APPS = ['api', 'ps', 'worker'] as const;

/** Libraries of ours that an app needs, through others too. */
function librariesOf(folder: string, seen = new Set<string>()): Set<string> {
  const manifest = jsonOf(`${folder}/package.json`) as { dependencies?: Record<string, string> };
  for (const name of Object.keys(manifest.dependencies ?? {})) {
    const library = /^@paceline\/(.+)$/.exec(name)?.[1];
    if (!library || seen.has(library)) continue;
    seen.add(library);
    librariesOf(`libs/${library}`, seen);
  }
  return seen;
}

/** A path below dist is produced by the build when its source is there; tools/bundle.mjs makes bundles of all processes. */
const isBuilt = (path: string): boolean => {
  const source = /^((?:apps|libs)\/[^/]+)\/dist(?:\/(?:bundle\/)?(.*)\.js)?$/.exec(path);
  if (!source) return false;
  return source[2] === undefined
    ? existsSync(join(repositoryRoot, source[1]!, 'src'))
    : ['ts', 'tsx'].some((end) => existsSync(join(repositoryRoot, source[1]!, 'src', `${source[2]}.${end}`)));
};

/** Variables that a process reads: those its environment schema takes from VARIABLES, and those every process reads. */
function variablesOf(app: string): Set<string> {
  const texts = files.filter((path) => path.startsWith(`apps/${app}/src/`) && path.endsWith('.ts')).map(textOf);
  const read = [...texts.join('\n').matchAll(/\bVARIABLES\.([A-Z_]+)/g)].map((match) => match[1]!);
  const passwords = read.flatMap((name) => (/^(DATABASE|REDIS)_URL$/.test(name) ? [name.replace('URL', 'PASSWORD')] : []));
  const values = [...read, ...passwords];
  return new Set([...values, ...values.map((name) => `${name}_FILE`), 'NODE_ENV', 'NODE_OPTIONS', 'PACELINE_LOG_LEVEL']);
}

describe.each(APPS)('deploy/Dockerfile, target %s', (app) => {
  const stages = stagesOf(app);
  const runtime = stages.at(-1)!;

  it('builds in stages and runs the last one', () => {
    expect(stages.map(({ name }) => name)).toEqual(['manifests', 'build', `${app}-assembled`, app]);
    expect(new Set(STAGES.map(({ image }) => image))).toEqual(new Set([`$\{NODE_IMAGE}`]));
    const major = Number(/^ARG NODE_IMAGE=node:(\d+)/mu.exec(textOf('deploy/Dockerfile'))?.[1]);
    expect(major).toBeGreaterThanOrEqual(20);
  });

  it('copies only what exists, from stages that exist', () => {
    const names: string[] = [];
    const missing: string[] = [];
    for (const stage of stages) {
      for (const { from, sources } of copiesOf(stage)) {
        if (from !== undefined && !names.includes(from)) missing.push(`stage ${from}`);
        for (const source of sources) {
          if (from === undefined && !existsSync(join(repositoryRoot, source))) missing.push(source);
          if (from === 'build' && !isBuilt(source.replace(/^\/app\//, ''))) missing.push(source);
        }
      }
      names.push(stage.name);
    }
    expect(missing).toEqual([]);
  });

  it('installs by the lockfile, without scripts, and only what runs in the end', () => {
    const installs = stages
      .flatMap((stage) => only(stage, 'RUN').map(argumentsOf))
      .filter((command) => /\bnpm (ci|i|install)\b/.test(command))
      .map((command) => command.replace('--mount=type=cache,target=/npm-cache ', '').replace('--cache /npm-cache ', ''));
    // What decodes images is an optional package.
    const optional = app === 'ps' ? '--omit=optional ' : '';
    expect(installs).toEqual(['npm ci --ignore-scripts', `npm ci --ignore-scripts --omit=dev ${optional}--workspace=apps/${app}`]);
  });

  it('carries exactly the libraries that the app needs', () => {
    const assembled = stages.find(({ name }) => name.endsWith('-assembled'))!;
    const carried = copiesOf(assembled).flatMap(({ sources }) =>
      sources.flatMap((source) => /\/libs\/([^/]+)\/dist$/.exec(source)?.[1] ?? []),
    );
    expect([...carried].sort()).toEqual([...librariesOf(`apps/${app}`)].sort());
  });

  it('does not run as root, and starts a file that the build makes', () => {
    const user = runtime.instructions.findIndex((instruction) => instruction.getKeyword() === 'USER');
    const start = runtime.instructions.findIndex((instruction) => instruction.getKeyword() === 'CMD');
    expect(user).toBeGreaterThanOrEqual(0);
    expect(start).toBeGreaterThan(user);
    expect(['root', '0']).not.toContain(argumentsOf(runtime.instructions[user]!));
    const [program, ...words] = JSON.parse(argumentsOf(runtime.instructions[start]!)) as string[];
    expect(program).toBe('node');
    expect(isBuilt(words.at(-1)!), words.at(-1)).toBe(true);
  });

  it('knows whether it is healthy, and sets only variables that the app reads', () => {
    expect(only(runtime, 'HEALTHCHECK')).toHaveLength(1);
    const set = only(runtime, 'ENV').flatMap((instruction) =>
      [...argumentsOf(instruction).matchAll(/\b([A-Z_]+)=/g)].map((match) => match[1]!),
    );
    expect(set.filter((name) => !variablesOf(app).has(name))).toEqual([]);
  });
});

it('the api starts with the heap that docs/ARCHITECTURE.md counts with', () => {
  const counted = /`--max-old-space-size=(\d+)`/u.exec(textOf('docs/ARCHITECTURE.md'))![1]!;
  const start = JSON.parse(argumentsOf(only(stagesOf('api').at(-1)!, 'CMD')[0]!)) as string[];
  expect(start.filter((word) => word.startsWith('--max'))).toEqual([`--max-old-space-size=${counted}`]);
});

interface Service {
  build?: { context: string; dockerfile: string; target: string };
  image?: string;
  environment?: Record<string, string>;
  command?: string[];
  ports?: string[];
  volumes?: string[];
  networks?: string[] | Record<string, unknown>;
  healthcheck?: { test: string[] };
  depends_on?: Record<string, { condition: string }>;
  deploy?: { resources?: { limits?: { cpus?: string; memory?: string } } };
  read_only?: boolean;
  cap_drop?: string[];
}

/** Variables of the api that change limits and proxies: compose hands them on from .env, and the local stack from the shell. */
/** Credentials of a bucket, as the library of S3 reads them: from `.env`, and empty without a bucket. */
const OF_THE_DATA_STORE = ['AWS_ACCESS_KEY_ID', 'AWS_SECRET_ACCESS_KEY', 'AWS_SESSION_TOKEN', 'AWS_REGION'];
const API_LIMITS = [...variablesOf('api')].filter(
  (name) => /^PACELINE_(TEAM|SOCKETS|REQUESTS|TRUSTED|METRICS|IMPORT)_[A-Z_]+$/.test(name) && !name.endsWith('_FILE'),
);

describe('docker-compose.yml', () => {
  const compose = parse(textOf('docker-compose.yml'), { merge: true }) as {
    services: Record<string, Service>;
    volumes: Record<string, unknown>;
    networks: Record<string, unknown>;
  };
  const services = Object.entries(compose.services);
  const namesOf = (networks: Service['networks'] = []): string[] => (Array.isArray(networks) ? networks : Object.keys(networks));

  it('has the databases and every process', () => {
    expect(Object.keys(compose.services).sort()).toEqual(['api', 'postgres', 'ps', 'redis', 'secrets', 'worker']);
  });

  it('builds from Dockerfiles and stages that exist; other images are pinned to a major version', () => {
    for (const [name, { build, image }] of services) {
      if (build) {
        expect(existsSync(join(repositoryRoot, build.context, build.dockerfile)), name).toBe(true);
        expect(STAGES.map((stage) => stage.name)).toContain(build.target);
        expect(image, name).toBe(`paceline-${build.target}`);
      } else expect(image, name).toMatch(/:\d+/);
    }
  });

  it.each(APPS)('gives %s the variables it reads, and all that it cannot do without', (app) => {
    const known = variablesOf(app);
    const given = Object.keys(compose.services[app]!.environment ?? {});
    expect(given.filter((name) => !known.has(name) && !OF_THE_DATA_STORE.includes(name))).toEqual([]);
    const appTexts = files
      .filter((path) => path.startsWith(`apps/${app}/src/`) && path.endsWith('.ts'))
      .map(textOf)
      .join('\n');
    const canBeMissing = (name: string): boolean =>
      VARIABLES[name as keyof typeof VARIABLES].safeParse(undefined).success || appTexts.includes(`VARIABLES.${name}.optional()`);
    const required = [...known].filter((name) => name in VARIABLES && !canBeMissing(name));
    const image = only(stagesOf(app).at(-1)!, 'ENV').map(argumentsOf).join(' ');
    expect(required.length).toBeGreaterThan(0);
    expect(required.filter((name) => !given.includes(name) && !given.includes(`${name}_FILE`) && !image.includes(`${name}=`))).toEqual([]);
  });

  it('has no secret in it: one service makes them, and each process mounts those that it needs', () => {
    const given = [...textOf('docker-compose.yml').matchAll(/\$\{([A-Z_]+)([^}]*)\}/g)].map(([, name, rest]) => [name!, rest!]);
    expect(Object.fromEntries(given)).toEqual({
      ...Object.fromEntries(
        ['POSTGRES_PASSWORD', 'REDIS_PASSWORD', 'PACELINE_TOKEN_SECRET', 'PACELINE_BOOTSTRAP_KEY', ...API_LIMITS, ...OF_THE_DATA_STORE].map(
          (name) => [name, ':-'],
        ),
      ),
      PACELINE_PORT: ':-4100',
      PACELINE_TLS: ':+/secrets/tls-worker/tls.key',
      PACELINE_DATA_STORE: ':-/datasets',
      PACELINE_CHECKPOINT_STORE: ':-',
    });
    for (const [name, { environment, volumes = [] }] of services.filter(([service]) => service !== 'secrets')) {
      for (const [variable, value] of Object.entries(environment ?? {})) {
        if (!/PASSWORD|SECRET|KEY|AUTH/.test(variable) || [...API_LIMITS, ...OF_THE_DATA_STORE].includes(variable)) continue;
        if (variable === 'PACELINE_TLS_KEY') continue; // a path, as the other two of its kind
        expect(variable, name).toMatch(/_FILE$/);
        const folder = /^\/secrets\/[a-z-]+/.exec(value)![0];
        expect(volumes, `${name} ${variable}`).toContain(`secret-${folder.slice('/secrets/'.length)}:${folder}:ro`);
      }
    }
    const secretsOf = (name: string) => compose.services[name]!.volumes!.flatMap((volume) => /^secret-([a-z-]+)/.exec(volume)?.[1] ?? []);
    expect(Object.fromEntries(services.map(([name]) => [name, secretsOf(name)]))).toEqual({
      secrets: ['postgres', 'redis', 'redis-api', 'redis-ps', 'redis-worker', 'token', 'key', 'tls-ca', 'tls-ps', 'tls-worker'],
      postgres: ['postgres'],
      redis: ['redis'],
      api: ['postgres', 'redis-api', 'token', 'key'],
      ps: ['redis-ps', 'token', 'tls-ps'],
      worker: ['redis-worker', 'tls-worker'],
    });
    for (const app of APPS) expect(new URL(compose.services[app]!.environment!['REDIS_URL']!).username).toBe(app);
  });

  it('hands on every limit of the api that .env may set, and so does the local stack', () => {
    expect(API_LIMITS.length).toBeGreaterThan(8);
    const stack = textOf('apps/cli/src/stack/local-stack.ts');
    expect(API_LIMITS.filter((name) => !(name in compose.services['api']!.environment!) || !stack.includes(`'${name}'`))).toEqual([]);
  });

  it('hands a store for checkpoints to every process that reads or writes one, with the credentials of a bucket', () => {
    const reading = APPS.filter((app) => variablesOf(app).has('PACELINE_CHECKPOINT_STORE'));
    expect(reading).toEqual(['api', 'ps', 'worker']);
    for (const app of reading)
      expect(Object.keys(compose.services[app]!.environment!), app).toEqual(
        expect.arrayContaining(['PACELINE_CHECKPOINT_STORE', ...OF_THE_DATA_STORE]),
      );
  });

  it('keeps .env out of git and out of the images', () => {
    expect(textOf('.gitignore').split('\n')).toContain('.env');
    expect(textOf('.dockerignore').split('\n')).toEqual(expect.arrayContaining(['.env', '.env.*']));
  });

  it('sends the image build every file that the build reads', () => {
    const ignored = textOf('.dockerignore').split('\n');
    const read = [...textOf('project.json').matchAll(/\{workspaceRoot\}\/([^"*{]+)"/gu)].map((match) => match[1]!);
    expect(read).toContain('prisma/schema.prisma');
    expect(read.filter((path) => ignored.includes(path.split('/')[0]!) && !ignored.includes(`!${path}`))).toEqual([]);
  });

  it('bounds memory and processors of every service', () => {
    for (const [name, { deploy }] of services)
      expect(deploy?.resources?.limits, name).toEqual({
        cpus: expect.stringMatching(/^\d/),
        memory: expect.stringMatching(/^\d+[mg]$/),
        pids: expect.any(Number),
      });
  });

  it('asks for the health of what starts every second, so that those that wait for it begin at once', () => {
    const seconds = (text: string): number => Number(/^(\d+)s$/u.exec(text)![1]);
    for (const [name, { healthcheck }] of services) {
      if (name === 'secrets') continue; // it ends
      const { start_interval: soon = 'none', interval = 'none', start_period: period = 'none' } = healthcheck!;
      expect(seconds(soon), name).toBe(1);
      expect(seconds(interval), name).toBeGreaterThanOrEqual(10);
      expect(seconds(period), name).toBeGreaterThanOrEqual(60);
    }
  });

  it('watches the health of every service, and starts in that order', () => {
    for (const [name, { healthcheck, build }] of services) {
      if (name === 'secrets') continue; // it ends
      const inImage =
        build &&
        only(
          STAGES.find((stage) => stage.name === build.target)!,
          'HEALTHCHECK',
        ).length > 0;
      expect(Boolean(healthcheck?.test ?? inImage), name).toBe(true);
    }
    for (const [name, { depends_on }] of services) {
      for (const [other, { condition }] of Object.entries(depends_on ?? {})) {
        expect(compose.services[other], `${name} -> ${other}`).toBeDefined();
        expect(condition).toBe(other === 'secrets' ? 'service_completed_successfully' : 'service_healthy');
      }
    }
    expect(Object.keys(compose.services['api']!.depends_on!).sort()).toEqual(['postgres', 'redis', 'secrets']);
  });

  it('uses declared volumes and networks; only the api publishes a port, on the loopback address', () => {
    for (const [name, { volumes, networks, ports }] of services) {
      for (const volume of volumes ?? []) expect(Object.keys(compose.volumes), name).toContain(volume.split(':')[0]);
      for (const network of namesOf(networks)) expect(Object.keys(compose.networks), name).toContain(network);
      for (const port of ports ?? []) expect(port, name).toMatch(/^127\.0\.0\.1:/);
    }
    expect(services.filter(([, { ports }]) => ports).map(([name]) => name)).toEqual(['api']);
    expect(namesOf(compose.services['postgres']!.networks)).toEqual(['database']);
    for (const name of ['ps', 'worker']) expect(namesOf(compose.services[name]!.networks), name).toEqual(['control', 'data']);
  });

  it('gives our processes no privileges', () => {
    for (const app of APPS) expect(compose.services[app]).toMatchObject({ read_only: true, cap_drop: ['ALL'] });
  });
});

describe('deploy/healthcheck.mjs', () => {
  const script = join(repositoryRoot, 'deploy', 'healthcheck.mjs');
  const ask = (address: string) =>
    new Promise<{ status: number | null; output: string }>((resolve) => {
      const child: ChildProcess = spawn(process.execPath, [script, address], { stdio: ['ignore', 'pipe', 'inherit'] });
      let output = '';
      child.stdout!.on('data', (piece: Buffer) => (output += piece.toString()));
      child.on('close', (status) => resolve({ status, output }));
    });

  it('follows the endpoint and the port, and keeps the password to itself', async () => {
    let status = 200;
    const server = createServer((_, response) => response.writeHead(status).end());
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const { port } = server.address() as AddressInfo;
    expect(await ask(`http://127.0.0.1:${port}/readyz`)).toEqual({ status: 0, output: '' });
    expect(await ask(`tcp://127.0.0.1:${port}`)).toEqual({ status: 0, output: '' });
    status = 503;
    expect(await ask(`http://127.0.0.1:${port}/readyz`)).toEqual({ status: 1, output: expect.stringContaining('503') });
    await new Promise((resolve) => server.close(resolve));
    const gone = await ask(`redis://:hidden-word@127.0.0.1:${port}`);
    expect(gone).toEqual({ status: 1, output: expect.stringContaining('ECONNREFUSED') });
    expect(gone.output).not.toContain('hidden-word');
  });
});

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
