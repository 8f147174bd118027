import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { webgpuPackage } from './webgpu-package.js';

let home: string;
beforeEach(() => (home = mkdtempSync(join(tmpdir(), 'paceline-webgpu-package-'))));
afterEach(() => rmSync(home, { recursive: true, force: true }));

function make(path: string, packageJson = '{}'): string {
  const folder = join(home, path);
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, 'package.json'), packageJson);
  return folder;
}
const found = (projectDir: string, ownDir = 'elsewhere/paceline'): string | undefined =>
  webgpuPackage(join(home, projectDir), join(home, ownDir));

it('is taken from the project of the folder, from its workspaces, or from beside Paceline', () => {
  make('elsewhere/paceline');
  make('project', '{"workspaces":["training"]}');
  make('project/training');
  expect(found('project/training/deep')).toBeUndefined();
  const beside = make('global/node_modules/webgpu');
  expect(found('project/training/deep', 'global/node_modules/paceline/dist')).toBe(beside);
  const ofWorkspaces = make('project/node_modules/webgpu');
  expect(found('project/training/deep', 'global/node_modules/paceline/dist')).toBe(ofWorkspaces);
  const ofTraining = make('project/training/node_modules/webgpu');
  expect(found('project/training/deep')).toBe(ofTraining);
});

it('is not taken from a folder above the project, nor from any above a folder without one', () => {
  make('node_modules/webgpu');
  make('.node_modules/webgpu');
  make('project', '{"workspaces":');
  make('elsewhere/paceline');
  mkdirSync(join(home, 'bare'));
  expect([found('project/deep'), found('bare')]).toEqual([undefined, undefined]);
  const here = make('bare/node_modules/webgpu');
  expect(found('bare')).toBe(here);
});
