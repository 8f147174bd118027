/** An archive into a folder, which appears when it is whole. */
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

/** What is there of a folder before it is whole, for who interrupts. */
export const partialOf = (folder: string): string => `${path.resolve(folder)}.${process.pid}.partial`;

/**
 * Writes beside the folder and renames.
 * @param mayReplace the folder where it is there, with everything in it, if it is an export
 * @throws ExportError FOLDER_TAKEN, ARCHIVE_UNREADABLE; what the disk says
 */
export async function unpack(stream: Bytes, folder: string, mayReplace: boolean): Promise<UnpackedFile[]> {
  const target = path.resolve(folder);
  const partial = partialOf(folder);
  await (mayReplace ? refuseOther(target, folder) : refuseTaken(target, folder));
  await rm(partial, { recursive: true, force: true });
  await mkdir(partial, { recursive: true });
  try {
    const files = await unzip(stream);
    for (const { path: name, bytes } of files) await writeFile(path.join(partial, name), bytes, { flag: 'wx' });
    if (files.length === 0) throw new ExportError('ARCHIVE_UNREADABLE', 'the archive is empty');
    if (mayReplace) await rm(target, { recursive: true, force: true });
    await rename(partial, target).catch(async (error: unknown) => {
      await refuseTaken(target, folder);
      throw error;
    });
    return files.map(({ path: name, bytes }) => ({ path: name, bytes: bytes.length }));
  } finally {
    await rm(partial, { recursive: true, force: true });
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
