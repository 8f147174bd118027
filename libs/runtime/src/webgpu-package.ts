/**
 * Where the npm package `webgpu` lies, which brings Dawn, and with it WebGPU, to Node. It is 130 MB and no dependency of ours: it is taken from
 * the project in whose folder the process was started, or from beside Paceline. It is native code, and `engine: auto` runs it unasked: so not
 * from any folder above, as Node's own resolution would, nor from NODE_PATH or the home directory.
 */
import { existsSync, readFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';

/**
 * Its folder; undefined where it is not installed. Whether a GPU is there is another question.
 * @param ownDir a folder of Paceline's
 */
export function webgpuPackage(projectDir = process.cwd(), ownDir = import.meta.dirname): string | undefined {
  const beside = upwardsFrom(ownDir).filter((folder) => basename(folder) === 'node_modules');
  const own = beside.length > 0 ? beside : modulesOf(ownDir);
  return [...modulesOf(projectDir), ...own].map((folder) => join(folder, 'webgpu')).find((folder) => has(folder, 'package.json'));
}

/** The folders node_modules of the project that a folder lies in: up to its package.json, or that of the workspaces it is one of. */
function modulesOf(folder: string): string[] {
  const folders = upwardsFrom(folder);
  const nearest = folders.findIndex((each) => has(each, 'package.json'));
  const root = folders.findIndex((each, i) => i >= nearest && hasWorkspaces(each));
  const top = nearest === -1 ? 0 : Math.max(nearest, root);
  return folders.slice(0, top + 1).map((each) => join(each, 'node_modules'));
}

const has = (folder: string, name: string): boolean => existsSync(join(folder, name));

/** Whether a folder has workspaces of npm, Yarn or pnpm. */
function hasWorkspaces(folder: string): boolean {
  if (!has(folder, 'package.json')) return false;
  if (has(folder, 'pnpm-workspace.yaml')) return true;
  try {
    return 'workspaces' in (JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8')) as object);
  } catch {
    return false; // somebody else's file, which npm complains about
  }
}

/** The folder and those that it lies in. */
function upwardsFrom(folder: string): string[] {
  const above = dirname(folder);
  return above === folder ? [folder] : [folder, ...upwardsFrom(above)];
}
