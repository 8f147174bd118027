/**
 * Where the tensorflow engine lies. Ours is built once per user, below the cache folder; a package @tensorflow/tfjs-node or -gpu that the
 * project of the caller has installed, and whose binary is there, is taken as it is when ours is not.
 *
 *     CACHE/engines/tensorflow-2.21.0-cpu/       complete: it is renamed to this when everything in it has been tried
 *         installation.json                      what it is
 *         package/                               @tensorflow/tfjs-node, with deps/lib and lib/napi-v8/tfjs_binding.node
 *     CACHE/engines/tensorflow-2.21.0-cpu.building/
 */
import { existsSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { userDirectories } from '@paceline/runtime';
import { ADDON_REVISION } from './addon-source.js';
import { TENSORFLOW_VARIANTS, type TensorflowVariant } from './pins.js';

export interface TensorflowEngine {
  readonly source: 'installed' | 'project';
  /** Folder of the package: for the engine to load. */
  readonly packageDir: string;
  /** Names it in lists: `tensorflow-2.21.0-cpu`, `@tensorflow/tfjs-node 4.22.0`. */
  readonly name: string;
  readonly variant: TensorflowVariant;
  /** False when an older release built it: it works, and lacks what has been added to the addon since. */
  readonly isCurrent: boolean;
}

export interface InstallationRecord {
  readonly variant: TensorflowVariant;
  readonly tensorflow: string;
  readonly addon: string;
  readonly addonRevision: number;
  readonly installedAt: string;
}

export const RECORD_FILE = 'installation.json';
export const BUILDING = '.building';
export const REPLACED = '.replaced';

export const enginesDirectory = (env: NodeJS.ProcessEnv = process.env): string => join(userDirectories(env).cache, 'engines');

/** Everything that could be loaded here, the preferred one first: ours with CUDA where there is a GPU, ours, the project's. */
export function tensorflowEngines(env: NodeJS.ProcessEnv = process.env, projectDir = process.cwd()): TensorflowEngine[] {
  const preferred: readonly TensorflowVariant[] = hasNvidiaDevice() ? ['cuda', 'cpu'] : TENSORFLOW_VARIANTS;
  const installed = installations(env).sort((a, b) => preferred.indexOf(a.variant) - preferred.indexOf(b.variant));
  return [...installed, ...projectPackages(projectDir)];
}

function installations(env: NodeJS.ProcessEnv): TensorflowEngine[] {
  const root = enginesDirectory(env);
  if (!existsSync(root)) return [];
  return readdirSync(root).flatMap((name) => {
    const record = readRecord(join(root, name));
    return record && !name.endsWith(BUILDING) && !name.endsWith(REPLACED)
      ? [
          {
            source: 'installed',
            packageDir: join(root, name, 'package'),
            name,
            variant: record.variant,
            isCurrent: record.addonRevision === ADDON_REVISION,
          } as const,
        ]
      : [];
  });
}

/** Undefined where the folder holds no complete installation. */
export function readRecord(directory: string): InstallationRecord | undefined {
  try {
    return JSON.parse(readFileSync(join(directory, RECORD_FILE), 'utf8')) as InstallationRecord;
  } catch {
    return undefined;
  }
}

function projectPackages(projectDir: string): TensorflowEngine[] {
  const require = createRequire(join(projectDir, 'package.json'));
  return (['tfjs-node-gpu', 'tfjs-node'] as const).flatMap((short) => {
    try {
      const manifest = require.resolve(`@tensorflow/${short}/package.json`);
      const packageDir = dirname(manifest);
      if (!hasBinding(packageDir)) return [];
      const { version } = JSON.parse(readFileSync(manifest, 'utf8')) as { version: string };
      const variant = short === 'tfjs-node-gpu' ? 'cuda' : 'cpu';
      return [{ source: 'project', packageDir, name: `@tensorflow/${short} ${version}`, variant, isCurrent: true } as const];
    } catch {
      return []; // not installed there
    }
  });
}

/** `npm install --ignore-scripts` leaves the package without its binary. */
function hasBinding(packageDir: string): boolean {
  const lib = join(packageDir, 'lib');
  return existsSync(lib) && readdirSync(lib).some((napi) => existsSync(join(lib, napi, 'tfjs_binding.node')));
}

export const hasNvidiaDevice = (): boolean => existsSync('/dev/nvidiactl');

export interface EngineLeftover {
  readonly name: string;
  readonly directory: string;
}

/** Installations and begun ones, for `remove`. */
export function engineFolders(env: NodeJS.ProcessEnv = process.env): EngineLeftover[] {
  const root = enginesDirectory(env);
  if (!existsSync(root)) return [];
  return readdirSync(root, { withFileTypes: true })
    .filter((entry) => entry.isDirectory() && entry.name.startsWith('tensorflow-'))
    .map(({ name }) => ({ name, directory: join(root, name) }));
}

/** The record goes first: what is cut short here is no installation any more. */
export function removeEngineFolder({ directory }: EngineLeftover): void {
  rmSync(join(directory, RECORD_FILE), { force: true });
  rmSync(directory, { recursive: true, force: true });
}
