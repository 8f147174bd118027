/** An archive into a folder, which appears when it is whole. */
import { lstatSync, renameSync, rmSync } from 'node:fs';
import { mkdir, readdir, rename, rm, stat, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { unzip } from './archive.js';
import type { Bytes } from './byte-stream.js';
import { ExportError } from './export-error.js';

/** In every export. */
const CARD = 'model-card.json';

export interface UnpackedFile {
  readonly path: string;
  readonly bytes: number;
}

const besideOf = (folder: string) => {
  const beside = `${path.resolve(folder)}.${process.pid}`;
  return { partial: `${beside}.partial`, replaced: `${beside}.replaced` };
};

/** What lies beside a folder while it is written, and may be removed by who interrupts: a folder that is not whole, or one that was replaced. */
export const leftoversOf = (folder: string): string[] => Object.values(besideOf(folder));

/**
 * Writes beside the folder and renames.
 * @param mayReplace the folder where it is there, with everything in it, if it is an export
 * @throws ExportError FOLDER_TAKEN, ARCHIVE_UNREADABLE; what the disk says
 */
export async function unpack(stream: Bytes, folder: string, mayReplace: boolean): Promise<UnpackedFile[]> {
  const target = path.resolve(folder);
  const { partial, replaced } = besideOf(folder);
  await (mayReplace ? refuseOther(target, folder) : refuseTaken(target, folder));
  await rm(partial, { recursive: true, force: true });
  await mkdir(partial, { recursive: true });
  try {
    const files = await unzip(stream);
    for (const { path: name, bytes } of files) await writeFile(path.join(partial, name), bytes, { flag: 'wx' });
    if (files.length === 0) throw new ExportError('ARCHIVE_UNREADABLE', 'the archive is empty');
    if (mayReplace) {
      replace(target, partial, replaced);
      await rm(replaced, { recursive: true, force: true });
    } else {
      await rename(partial, target).catch(async (error: unknown) => {
        await refuseTaken(target, folder);
        throw error;
      });
    }
    return files.map(({ path: name, bytes }) => ({ path: name, bytes: bytes.length }));
  } finally {
    await rm(partial, { recursive: true, force: true });
  }
}

/** In one go, so that whoever interrupts finds the old folder or the new one at its place. */
function replace(target: string, partial: string, replaced: string): void {
  const isThere = lstatSync(target, { throwIfNoEntry: false }) !== undefined;
  if (isThere) {
    rmSync(replaced, { recursive: true, force: true }); // of a process that was killed
    renameSync(target, replaced);
  }
  try {
    renameSync(partial, target);
  } catch (error) {
    if (isThere) renameSync(replaced, target);
    throw error;
  }
}

/** A name that was mistyped must not cost somebody their home. */
async function refuseOther(target: string, said: string): Promise<void> {
  const files = await readdir(target).catch((error: NodeJS.ErrnoException): string[] => {
    if (error.code === 'ENOENT') return [];
    throw error;
  });
  if (files.length === 0 || files.includes(CARD)) return;
  throw new ExportError('FOLDER_TAKEN', `${said} holds something else than an exported model and is not replaced`);
}

async function refuseTaken(target: string, said: string): Promise<void> {
  const isThere = await stat(target).then(
    () => true,
    () => false,
  );
  if (isThere) throw new ExportError('FOLDER_TAKEN', `${said} is there already`);
}
