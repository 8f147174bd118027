/**
 * The npm package: made, unpacked beside what it declares, and used there as its README says: what it needs and does not declare is not found. In the
 * soak npm itself installs it into an empty folder; without a registry, and with nothing of it in npm's cache, that is left out.
 */
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { makePackage } from '../../tools/package.mjs';

const run = promisify(execFile);
const ROOT = join(import.meta.dirname, '../..');
const UNREACHABLE = /ENOTFOUND|ECONNREFUSED|ETIMEDOUT|EAI_AGAIN|ENOTCACHED|ECONNRESET|network/u;

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
  for (const file of ['apps/cli/bin/paceline.mjs', 'apps/api/dist/main.js', 'apps/dashboard/dist/index.html', 'index.d.ts', 'README.md'])
    expect(files).toContain(`package/${file}`);
  expect(files.filter((file) => /\.test\.|\.map$|\/src\/|testkit/u.test(file))).toEqual([]);
});

interface Manifest {
  readonly dependencies: Readonly<Record<string, string>>;
  readonly optionalDependencies?: Readonly<Record<string, string>>;
  readonly peerDependencies: Readonly<Record<string, string>>;
}

/** What programs import of tf.js, of which this repository has the parts alone. */
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
  for (const name of Object.keys({ ...dependencies, ...optionalDependencies, ...peerDependencies })) {
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

test('installed into an empty folder it trains a model, and `npx paceline demo` a cluster', { timeout: 600_000 }, async ({ skip }) => {
  const home = join(folder, 'project');
  await run('mkdir', [home]);
  await writeFile(join(home, 'package.json'), '{ "name": "project", "private": true, "type": "module" }');
  const refused = process.env['PACELINE_SOAK'] === '1' ? await install(home) : await unpack(home);
  if (refused !== undefined && UNREACHABLE.test(refused)) return skip('no registry can be reached, and its packages are not in the cache');
  expect(refused).toBeUndefined();

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
});
