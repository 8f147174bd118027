/** docker-compose.yml and deploy/, checked without Docker: what they name exists, nothing runs as root, no secret has a default. */
import { spawn, type ChildProcess } from 'node:child_process';
import { existsSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { VARIABLES } from '@paceline/runtime';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { APPS, argumentsOf, copiesOf, librariesOf, only, STAGES, stagesOf } from './dockerfile.js';
import { files, repositoryRoot, textOf } from './tree.js';

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
  healthcheck?: { test: string[]; start_interval?: string; interval?: string; start_period?: string };
  depends_on?: Record<string, { condition: string }>;
  deploy?: { replicas?: number | string; resources?: { limits?: { cpus?: string; memory?: string } } };
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
      PACELINE_DATA_CACHE_BYTES: ':-',
      PACELINE_SERVERS: ':-1',
      PACELINE_WORKERS: ':-2',
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

  it('starts as many servers and workers as .env says, so that the next `up -d` does not undo it', () => {
    const replicas = Object.fromEntries(
      services.flatMap(([name, { deploy }]) => (deploy?.replicas === undefined ? [] : [[name, deploy.replicas]])),
    );
    const fromEnv = (name: string, otherwise: number): string => `$\{${name}:-${otherwise}}`;
    expect(replicas).toEqual({ ps: fromEnv('PACELINE_SERVERS', 1), worker: fromEnv('PACELINE_WORKERS', 2) });
    for (const text of [textOf('.env.example'), textOf('docs/compose.md')])
      for (const name of ['PACELINE_SERVERS', 'PACELINE_WORKERS']) expect(text).toContain(name);
  });

  it('gives workers a folder for shards of a bucket, with a volume', () => {
    const { environment, volumes } = compose.services['worker']!;
    expect(volumes).toContain(`cache:${environment!['PACELINE_DATA_CACHE']}`);
    expect(only(stagesOf('worker').at(-1)!, 'RUN').map(argumentsOf).join()).toContain(environment!['PACELINE_DATA_CACHE']);
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
