/**
 * Where the npm package `webgpu` lies, which brings Dawn, and with it WebGPU, to Node. It is 130 MB and no dependency of ours: it is taken from
 * the project in whose folder the process was started, or from beside Paceline.
 */
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';

/** Its folder; undefined where it is not installed. Whether a GPU is there is another question. */
export function webgpuPackage(projectDir = process.cwd()): string | undefined {
  const folders = [join(projectDir, 'package.json'), import.meta.url].flatMap((from) => createRequire(from).resolve.paths('webgpu') ?? []);
  return folders.map((folder) => join(folder, 'webgpu')).find((folder) => existsSync(join(folder, 'package.json')));
}
