/** docker-compose.yml, deploy/ and the workflow, checked without Docker: what they name exists, nothing runs as root, no secret has a default. */
import { spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { accessSync, constants, cpSync, existsSync, mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { VARIABLES } from '@paceline/runtime';
import { DockerfileParser, type Copy, type Instruction } from 'dockerfile-ast';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { files, jsonOf, repositoryRoot, textOf } from './tree.js';

const APPS = ['api', 'ps', 'worker'] as const;

interface Stage {
  name: string;
  image: string;
  instructions: Instruction[];
}

function stagesOf(app: string): Stage[] {
  const stages: Stage[] = [];
  const dockerfile = DockerfileParser.parse(textOf(`deploy/${app}.Dockerfile`));
  for (const instruction of dockerfile.getInstructions()) {
    if (instruction.getKeyword() === 'FROM') {
      const words = (instruction.getArgumentsContent() ?? '').split(/\s+/);
      expect(words[1]?.toUpperCase(), `a stage of ${app} has no name`).toBe('AS');
      stages.push({ name: words[2]!, image: words[0]!, instructions: [] });
    } else stages.at(-1)?.instructions.push(instruction);
  }
  return stages;
}

const argumentsOf = (instruction: Instruction): string => instruction.getArgumentsContent() ?? '';
const only = (stage: Stage, keyword: string): Instruction[] =>
  stage.instructions.filter((instruction) => instruction.getKeyword() === keyword);

/** Source of a COPY and the stage that it comes from; undefined for the build context. */
function copiesOf(stage: Stage): { from: string | undefined; sources: string[]; target: string }[] {
  return only(stage, 'COPY').map((instruction) => {
    const paths = argumentsOf(instruction).split(/\s+/);
    return { from: (instruction as Copy).getFromFlag()?.getValue() ?? undefined, sources: paths.slice(0, -1), target: paths.at(-1)! };
  });
}

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

/** A path below dist is produced by the build when its source is there. */
const isBuilt = (path: string): boolean => {
  const source = /^((?:apps|libs)\/[^/]+)\/dist(?:\/(.*)\.js)?$/.exec(path);
  if (!source) return false;
  return source[2] === undefined
    ? existsSync(join(repositoryRoot, source[1]!, 'src'))
    : ['ts', 'tsx'].some((end) => existsSync(join(repositoryRoot, source[1]!, 'src', `${source[2]}.${end}`)));
};

/** Variables that a process reads: those its environment schema takes from VARIABLES, and those every process reads. */
function variablesOf(app: string): Set<string> {
  const texts = files.filter((path) => path.startsWith(`apps/${app}/src/`) && path.endsWith('.ts')).map(textOf);
  return new Set(
    [...texts.join('\n').matchAll(/\bVARIABLES\.([A-Z_]+)/g)]
      .map((match) => match[1]!)
      .concat('NODE_ENV', 'NODE_OPTIONS', 'PACELINE_LOG_LEVEL'),
  );
}

describe.each(APPS)('deploy/%s.Dockerfile', (app) => {
  const stages = stagesOf(app);
  const runtime = stages.at(-1)!;

  it('builds in stages and runs the last one', () => {
    expect(stages.map(({ name }) => name)).toEqual(['manifests', 'build', 'assembled', 'runtime']);
    expect(new Set(stages.map(({ image }) => image)).size).toBe(1);
    const major = Number(/^node:(\d+)/.exec(runtime.image)?.[1]);
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
      .filter((command) => /\bnpm (ci|i|install)\b/.test(command));
    expect(installs).toEqual(['npm ci --ignore-scripts', `npm ci --ignore-scripts --omit=dev --omit=optional --workspace=apps/${app}`]);
  });

  it('carries exactly the libraries that the app needs', () => {
    const assembled = stages.find(({ name }) => name === 'assembled')!;
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
    const command = JSON.parse(argumentsOf(runtime.instructions[start]!)) as string[];
    expect(command[0]).toBe('node');
    expect(isBuilt(command[1]!), command[1]).toBe(true);
  });

  it('knows whether it is healthy, and sets only variables that the app reads', () => {
    expect(only(runtime, 'HEALTHCHECK')).toHaveLength(1);
    const set = only(runtime, 'ENV').flatMap((instruction) =>
      [...argumentsOf(instruction).matchAll(/\b([A-Z_]+)=/g)].map((match) => match[1]!),
    );
    expect(set.filter((name) => !variablesOf(app).has(name))).toEqual([]);
  });
});

interface Service {
  build?: { context: string; dockerfile: string; target: string };
  image?: string;
  environment?: Record<string, string>;
  command?: string[];
  ports?: string[];
  volumes?: string[];
  networks?: string[];
  healthcheck?: { test: string[] };
  depends_on?: Record<string, { condition: string }>;
  deploy?: { resources?: { limits?: { cpus?: string; memory?: string } } };
  read_only?: boolean;
  cap_drop?: string[];
}

describe('docker-compose.yml', () => {
  const compose = parse(textOf('docker-compose.yml'), { merge: true }) as {
    services: Record<string, Service>;
    volumes: Record<string, unknown>;
    networks: Record<string, unknown>;
  };
  const services = Object.entries(compose.services);

  it('has the databases and every process', () => {
    expect(Object.keys(compose.services).sort()).toEqual(['api', 'postgres', 'ps', 'redis', 'worker']);
  });

  it('builds from Dockerfiles and stages that exist; other images are pinned to a major version', () => {
    for (const [name, { build, image }] of services) {
      if (build) {
        expect(existsSync(join(repositoryRoot, build.context, build.dockerfile)), name).toBe(true);
        expect(stagesOf(/([^/]+)\.Dockerfile$/.exec(build.dockerfile)![1]!).map((stage) => stage.name)).toContain(build.target);
      } else expect(image, name).toMatch(/:\d+/);
    }
  });

  it.each(APPS)('gives %s the variables it reads, and all that it cannot do without', (app) => {
    const known = variablesOf(app);
    const given = Object.keys(compose.services[app]!.environment ?? {});
    expect(given.filter((name) => !known.has(name))).toEqual([]);
    const appTexts = files
      .filter((path) => path.startsWith(`apps/${app}/src/`) && path.endsWith('.ts'))
      .map(textOf)
      .join('\n');
    const canBeMissing = (name: string): boolean =>
      VARIABLES[name as keyof typeof VARIABLES].safeParse(undefined).success || appTexts.includes(`VARIABLES.${name}.optional()`);
    const required = [...known].filter((name) => name in VARIABLES && !canBeMissing(name));
    const image = only(stagesOf(app).at(-1)!, 'ENV').map(argumentsOf).join(' ');
    expect(required.length).toBeGreaterThan(0);
    expect(required.filter((name) => !given.includes(name) && !image.includes(`${name}=`))).toEqual([]);
  });

  it('has no default for a secret, and says what to set', () => {
    const variables = [...textOf('docker-compose.yml').matchAll(/\$\{([A-Z_]+)([^}]*)\}/g)].map(([, name, rest]) => ({
      name: name!,
      rest: rest!,
    }));
    const secrets = variables.filter(({ name }) => /PASSWORD|SECRET|KEY/.test(name));
    expect(secrets.length).toBeGreaterThan(4);
    expect(secrets.filter(({ rest }) => rest !== '' && !/^:\?.{10,}/.test(rest))).toEqual([]);
    for (const name of new Set(secrets.map((secret) => secret.name)))
      expect(
        secrets.some((secret) => secret.name === name && secret.rest.startsWith(':?')),
        name,
      ).toBe(true);
    for (const [name, { environment }] of services) {
      for (const [variable, value] of Object.entries(environment ?? {}))
        if (/PASSWORD|SECRET|KEY|AUTH/.test(variable)) expect(value, `${name} ${variable}`).toMatch(/^\$\{/);
    }
  });

  it('bounds memory and processors of every service', () => {
    for (const [name, { deploy }] of services)
      expect(deploy?.resources?.limits, name).toEqual({ cpus: expect.stringMatching(/^\d/), memory: expect.stringMatching(/^\d+[mg]$/) });
  });

  it('watches the health of every service, and starts in that order', () => {
    for (const [name, { healthcheck, build }] of services) {
      const inImage = build && only(stagesOf(/([^/]+)\.Dockerfile$/.exec(build.dockerfile)![1]!).at(-1)!, 'HEALTHCHECK').length > 0;
      expect(Boolean(healthcheck ?? inImage), name).toBe(true);
    }
    for (const [name, { depends_on }] of services) {
      for (const [other, { condition }] of Object.entries(depends_on ?? {})) {
        expect(compose.services[other], `${name} -> ${other}`).toBeDefined();
        expect(condition).toBe('service_healthy');
      }
    }
    expect(Object.keys(compose.services['api']!.depends_on!).sort()).toEqual(['postgres', 'redis']);
  });

  it('uses declared volumes and networks; only the api publishes a port, on the loopback address', () => {
    for (const [name, { volumes, networks, ports }] of services) {
      for (const volume of volumes ?? []) expect(Object.keys(compose.volumes), name).toContain(volume.split(':')[0]);
      for (const network of networks ?? []) expect(Object.keys(compose.networks), name).toContain(network);
      for (const port of ports ?? []) expect(port, name).toMatch(/^127\.0\.0\.1:/);
    }
    expect(services.filter(([, { ports }]) => ports).map(([name]) => name)).toEqual(['api']);
    expect(compose.services['worker']!.networks).not.toContain('postgres');
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

describe('continuous integration', () => {
  it('a fresh clone can be installed: npm ci finds every package in the lockfile, those of other platforms too', () => {
    const folder = mkdtempSync(join(tmpdir(), 'paceline-ci-'));
    try {
      for (const file of files.filter((path) => /^(package(-lock)?\.json|\.npmrc|(libs|apps)\/[^/]+\/package\.json)$/.test(path)))
        cpSync(join(repositoryRoot, file), join(folder, file));
      const { status, stderr } = spawnSync('npm', ['ci', '--dry-run', '--offline', '--ignore-scripts'], { cwd: folder, encoding: 'utf8' });
      expect(
        stderr
          .split('\n')
          .filter((line) => line.startsWith('npm error'))
          .join('\n'),
      ).toBe('');
      expect(status).toBe(0);
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  });

  it('.ci/run can be executed and is bash that parses', () => {
    accessSync(join(repositoryRoot, '.ci', 'run'), constants.X_OK);
    expect(spawnSync('bash', ['-n', '.ci/run'], { cwd: repositoryRoot, encoding: 'utf8' })).toMatchObject({ status: 0, stderr: '' });
  });

  it('the workflow calls it on every Node that is promised', () => {
    const workflow = parse(textOf('.github/workflows/ci.yml')) as {
      jobs: { test: { strategy: { matrix: { node: number[] } }; steps: { run?: string }[] } };
    };
    const { steps, strategy } = workflow.jobs.test;
    expect(steps.at(-1)!.run).toBe('.ci/run');
    const least = Number(/>=\s*(\d+)/.exec((jsonOf('package.json')['engines'] as { node: string }).node)![1]);
    expect(Math.min(...strategy.matrix.node)).toBe(least);
    expect(strategy.matrix.node).toContain(22);
  });

  it('the workflow runs the soak and many seeds of the simulator every night, and they are commands', () => {
    const workflow = parse(textOf('.github/workflows/ci.yml')) as {
      on: { schedule: { cron: string }[] };
      jobs: { nightly: { if: string; steps: { run?: string }[] } };
    };
    expect(workflow.on.schedule).toHaveLength(1);
    const { if: condition, steps } = workflow.jobs.nightly;
    expect(condition).toContain("'schedule'");
    const commands = steps.flatMap(({ run }) => run ?? []);
    expect(commands).toEqual(expect.arrayContaining(['npm run soak', 'npm run simulate -- --seeds 10000']));
    const { scripts } = jsonOf('package.json') as { scripts: Record<string, string> };
    for (const [, script] of commands.join('\n').matchAll(/npm run (\S+)/g)) expect(Object.keys(scripts)).toContain(script);
  });
});
