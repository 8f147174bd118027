/**
 * The npm package: made, unpacked beside what it declares, and used there as its README says: what it needs and does not declare is not found. In the
 * soak npm itself installs it into an empty folder, and `paceline up` starts there; without a registry, and with nothing of it in npm's cache, that is left out.
 */
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { makePackage } from '../../tools/package.mjs';

const run = promisify(execFile);
const ROOT = join(import.meta.dirname, '../..');
const IS_SOAK = process.env['PACELINE_SOAK'] === '1';
/** What npm says of itself: the codes of a registry that cannot be reached. */
const UNREACHABLE = new Set(['ENOTFOUND', 'ECONNREFUSED', 'ETIMEDOUT', 'EAI_AGAIN', 'ENOTCACHED', 'ECONNRESET', 'ERR_SOCKET_TIMEOUT']);
const npmCode = (stderr: string): string | undefined => /^npm (?:error|ERR!) code (\w+)$/mu.exec(stderr)?.[1];
const tsc = createRequire(import.meta.url).resolve('typescript/bin/tsc');

/** A program of a person; and one with mistakes that the types have to find. */
const CONSUMER = `import * as tfl from '@tensorflow/tfjs-layers';
import { MirroredStrategy, StrategyError, type ThreadStrategyOptions } from 'paceline';
import { createClient } from 'paceline/client';
const options: ThreadStrategyOptions = { threads: 2, replicas: 4 };
const strategy = new MirroredStrategy(options);
const model: tfl.Sequential = strategy.scope(() => tfl.sequential());
const trained: Promise<tfl.History> = strategy.distribute(model).fit(new Float32Array(8), [1, 0], { sampleWeight: [1, 2] });
const replicas: number = strategy.numReplicasInSync;
const code = (error: StrategyError): string => error.code;
const made: ReturnType<typeof createClient> = createClient({ url: 'http://127.0.0.1:1', apiKey: 'x' });
export { code, made, model, replicas, trained };
`;
const MISTAKES = `import { MirroredStrategy } from 'paceline';
import { createClient } from 'paceline/client';
const strategy = new MirroredStrategy({ threads: 'two' });
export const text: string = strategy.numReplicasInSync;
createClient({ adress: 1 });
`;
/** Resolution of modules, and what goes with it. */
const RESOLUTIONS = [
  ['node', 'commonjs'],
  ['nodenext', 'nodenext'],
  ['bundler', 'esnext'],
] as const;

let folder: string;
let archive: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'paceline-package-test-'));
  archive = makePackage(folder);
});
afterAll(() => rm(folder, { recursive: true, force: true }));

test('it holds what is built, and neither tests nor sources', async () => {
  const { stdout } = await run('tar', ['tzf', archive], { maxBuffer: 16 << 20 });
  const files = stdout.split('\n');
  const bundles = [...['api', 'ps', 'worker'].map((app) => `apps/${app}`), 'node_modules/@paceline/strategies'];
  const library = 'node_modules/@paceline/strategies/dist/library';
  const notices = [...bundles.map((place) => `${place}/dist/bundle`), library].map((place) => `${place}/THIRD-PARTY-NOTICES.txt`);
  const page = ['apps/dashboard/dist/index.html', 'apps/dashboard/dist/third-party-licenses.md'];
  for (const file of [
    'apps/cli/bin/paceline.mjs',
    'apps/api/dist/main.js',
    ...page,
    ...notices,
    `${library}/index.js`,
    'index.d.ts',
    'README.md',
  ])
    expect(files).toContain(`package/${file}`);
  expect(files.filter((file) => /\.test\.|\.map$|\/src\/|testkit/u.test(file))).toEqual([]);
});

interface Manifest {
  readonly dependencies: Readonly<Record<string, string>>;
  readonly optionalDependencies?: Readonly<Record<string, string>>;
  readonly peerDependencies: Readonly<Record<string, string>>;
}

/** What programs import of tf.js, of which this repository has the parts alone. */
const TFJS_PARTS = ['backend-cpu', 'core', 'layers'].map((part) => `@tensorflow/tfjs-${part}`);
const TFJS = `import '@tensorflow/tfjs-backend-cpu';
export * from '@tensorflow/tfjs-core';
export * from '@tensorflow/tfjs-layers';
`;

/** As npm lays it out: the archive unpacked, and beside it the packages that it names, out of this repository's. */
async function unpack(home: string): Promise<void> {
  const target = join(home, 'node_modules/paceline');
  await mkdir(target, { recursive: true });
  await run('tar', ['xzf', archive, '--strip-components=1', '-C', target]);
  const manifest = JSON.parse(await readFile(join(target, 'package.json'), 'utf8')) as Manifest;
  const { dependencies, optionalDependencies, peerDependencies } = manifest;
  const declared = Object.keys({ ...dependencies, ...optionalDependencies, ...peerDependencies });
  for (const name of new Set([...declared, ...TFJS_PARTS])) {
    const from = join(ROOT, 'node_modules', name);
    if (name.startsWith('@paceline/') || !existsSync(from)) continue; // in the archive, or of another platform
    const link = join(home, 'node_modules', name);
    await mkdir(dirname(link), { recursive: true });
    await symlink(from, link);
  }
  const union = join(home, 'node_modules/@tensorflow/tfjs');
  await mkdir(union);
  await writeFile(join(union, 'package.json'), '{ "name": "@tensorflow/tfjs", "type": "module", "exports": "./index.js" }');
  await writeFile(join(union, 'index.js'), TFJS);
}

/** @returns why npm could not */
async function install(home: string): Promise<string | undefined> {
  const args = ['install', '--prefer-offline', '--no-audit', '--no-fund', archive, '@tensorflow/tfjs@4.22.0'];
  return run('npm', args, { cwd: home }).then(
    () => undefined,
    (error: { stderr: string }) => error.stderr,
  );
}

async function expectOneCopy(home: string): Promise<void> {
  const { stdout: copies } = await run('find', ['node_modules', '-type', 'd', '-path', '*/@tensorflow/tfjs-*', '-name', 'tfjs-*'], {
    cwd: home,
  });
  const found = copies.trim().split('\n');
  for (const name of ['core', 'layers'])
    expect(found.filter((path) => path.endsWith(`/tfjs-${name}`))).toEqual([`node_modules/@tensorflow/tfjs-${name}`]);
}

/** `npx paceline up` in the folder of the project: a run is trained, and `down` ends it. */
async function expectStack(cwd: string, given: NodeJS.ProcessEnv): Promise<void> {
  const data = join(cwd, 'data');
  await mkdir(data);
  const env = { ...given, PACELINE_HOME: data };
  const paceline = (...args: string[]) =>
    run(process.execPath, ['node_modules/paceline/apps/cli/bin/paceline.mjs', ...args, '--json'], { cwd, env });
  const up = paceline('up', '--port', '0', '--workers', '1');
  let said = '';
  up.child.stdout!.on('data', (text: Buffer) => (said += text.toString()));
  try {
    for (let i = 0; i < 900 && said === ''; i++) await new Promise((resolve) => setTimeout(resolve, 100));
    expect(JSON.parse(said)).toMatchObject({ pid: up.child.pid });
    const { stdout } = await paceline('train', '--model', 'mlp', '--rounds', '5', '--replicas', '2', '--global-batch', '32');
    expect(stdout).toContain('"SUCCEEDED"');
    await paceline('down');
  } finally {
    up.child.kill('SIGTERM');
    await up.catch(() => undefined);
  }
}

test(
  `${IS_SOAK ? 'installed by npm into an empty folder' : 'unpacked into an empty folder, beside what it declares,'} it trains a model, and \`npx paceline demo\` a cluster`,
  { timeout: 600_000 },
  async ({ skip }) => {
    const home = join(folder, 'project');
    await run('mkdir', [home]);
    await writeFile(join(home, 'package.json'), '{ "name": "project", "private": true, "type": "module" }');
    const refused = IS_SOAK ? await install(home) : await unpack(home);
    if (refused !== undefined && UNREACHABLE.has(npmCode(refused) ?? ''))
      return skip('no registry can be reached, and its packages are not in the cache');
    expect(refused).toBeUndefined();

    // One copy of tf.js, that of the program; nothing of it lies below the package.
    if (IS_SOAK) await expectOneCopy(home);

    await writeFile(join(home, 'consumer.ts'), CONSUMER);
    await writeFile(join(home, 'mistakes.ts'), MISTAKES);
    for (const [resolution, module] of RESOLUTIONS) {
      const flags = ['--noEmit', '--strict', '--skipLibCheck', '--target', 'es2022', '--ignoreDeprecations', '6.0'];
      const checked = await run(
        process.execPath,
        [tsc, ...flags, '--moduleResolution', resolution, '--module', module, 'consumer.ts', 'mistakes.ts'],
        {
          cwd: home,
        },
      ).catch((error: { stdout: string }) => error);
      const places = [...checked.stdout.matchAll(/^(\w+\.ts)\((\d+),/gmu)].map(([, file, line]) => `${file} ${line}`);
      expect(places, `${resolution}: ${checked.stdout}`).toEqual(['mistakes.ts 3', 'mistakes.ts 4', 'mistakes.ts 5']);
    }

    const [, library] = /```ts\n(import \* as tf[^`]*)```/u.exec(await readFile(join(home, 'node_modules/paceline/README.md'), 'utf8'))!;
    await writeFile(join(home, 'program.mjs'), `${library!}console.log(JSON.stringify(history));\n`);
    const { stdout } = await run(process.execPath, ['program.mjs'], { cwd: home });
    const { loss } = JSON.parse(stdout.trim().split('\n').at(-1)!) as { loss: number[] };
    expect(loss).toHaveLength(5);
    expect(loss.at(-1)).toBeLessThan(loss[0]!);

    const { PGHOST: _host, REDIS_URL: _redis, ...env } = process.env;
    const program = ['node_modules/paceline/apps/cli/bin/paceline.mjs', 'demo', '--epochs', '1', '--json'];
    const demo = await run(process.execPath, program, { cwd: home, env });
    expect(JSON.parse(demo.stdout)).toMatchObject({ rounds: expect.any(Number) as number });
    if (IS_SOAK) await expectStack(home, env);
  },
);
