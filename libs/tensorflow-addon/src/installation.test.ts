import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { engineFolders, removeEngineFolder, tensorflowEngines } from './installation.js';

function home(): { folder: string; env: NodeJS.ProcessEnv } {
  const folder = mkdtempSync(join(tmpdir(), 'paceline-engines-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  return { folder, env: { PACELINE_HOME: folder } };
}

function writePackage(folder: string, name: string, hasBinding: boolean): void {
  const at = join(folder, 'node_modules', name);
  mkdirSync(join(at, 'lib/napi-v8'), { recursive: true });
  writeFileSync(join(at, 'package.json'), JSON.stringify({ name, version: '4.22.0', main: 'dist/index.js' }));
  if (hasBinding) writeFileSync(join(at, 'lib/napi-v8/tfjs_binding.node'), '');
}

function writeInstallation(folder: string, name: string, record?: unknown): void {
  const at = join(folder, 'cache/engines', name);
  mkdirSync(at, { recursive: true });
  if (record !== undefined) writeFileSync(join(at, 'installation.json'), typeof record === 'string' ? record : JSON.stringify(record));
}

it("finds a project's package when its binary is there, and takes it after what was installed", () => {
  const { folder, env } = home();
  writePackage(folder, '@tensorflow/tfjs-node', false);
  expect(tensorflowEngines(env, folder)).toEqual([]);
  writePackage(folder, '@tensorflow/tfjs-node', true);
  writeInstallation(folder, 'tensorflow-2.21.0-cpu', { variant: 'cpu' });
  expect(tensorflowEngines(env, folder)).toMatchObject([
    { source: 'installed', name: 'tensorflow-2.21.0-cpu', packageDir: join(folder, 'cache/engines/tensorflow-2.21.0-cpu/package') },
    { source: 'project', name: '@tensorflow/tfjs-node 4.22.0', variant: 'cpu' },
  ]);
});

it('what is being built, was replaced or lost its record is no engine, and is removed with the others', () => {
  const { folder, env } = home();
  writeInstallation(folder, 'tensorflow-2.21.0-cpu.building', { variant: 'cpu' });
  writeInstallation(folder, 'tensorflow-2.21.0-cpu.replaced', { variant: 'cpu' });
  writeInstallation(folder, 'tensorflow-2.20.0-cpu');
  writeInstallation(folder, 'tensorflow-2.19.0-cpu', '{"variant":');
  expect(tensorflowEngines(env, folder)).toEqual([]);
  for (const found of engineFolders(env)) removeEngineFolder(found);
  expect(engineFolders(env)).toEqual([]);
  expect(existsSync(join(folder, 'cache/engines'))).toBe(true);
});
