/** Folders for what a process of the api keeps on the disk while it works. */
import { mkdir, mkdtemp, readdir, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { Settings } from './environment.js';

/**
 * On the disk of the weights, where there is one: the folder of the system may be memory. What an api that died has left is removed.
 * @param kind a folder for each kind of work
 * @param leftAfterMs longer than one may be in use
 */
export async function openWorkFolder({ dataDir }: Settings, kind: string, leftAfterMs: number): Promise<string> {
  const parent = path.join(dataDir ?? tmpdir(), kind);
  await mkdir(parent, { recursive: true });
  for (const name of await readdir(parent)) {
    // Another one may have ended meanwhile.
    const found = await stat(path.join(parent, name)).catch(() => undefined);
    if (found && found.mtimeMs < Date.now() - leftAfterMs) await rm(path.join(parent, name), { recursive: true, force: true });
  }
  return mkdtemp(path.join(parent, 'work-'));
}
