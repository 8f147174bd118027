/** A file that a command writes once it has computed what belongs into it. */
import { rmSync } from 'node:fs';
import { open, rm, type FileHandle } from 'node:fs/promises';
import { UserError } from '@paceline/runtime/user-error';
import { cleanUpOnInterrupt } from './command.js';

/**
 * The file is opened first: that it is taken, or cannot be written, is said before anything is computed. An old one stays until there is something to
 * replace it; without anything to write, or with Ctrl-C, no new one is left. @throws UserError OUTPUT_UNUSABLE
 */
export async function intoFile<T>(
  file: string,
  { mayReplace, textOf }: { readonly mayReplace: boolean; readonly textOf: (made: T) => string },
  make: () => Promise<T>,
): Promise<T> {
  const unusable = (cause: unknown): UserError => {
    const isTaken = (cause as NodeJS.ErrnoException).code === 'EEXIST';
    return new UserError('OUTPUT_UNUSABLE', `${file} ${isTaken ? 'is there already' : `cannot be written: ${(cause as Error).message}`}.`, {
      hint: isTaken ? 'Choose another one with --out, or replace it with --force.' : 'Choose another one with --out.',
      exit: 'usage',
      cause,
    });
  };
  const { handle, isNew } = await openForWriting(file, mayReplace).catch((cause: unknown) => {
    throw unusable(cause);
  });
  const interrupt = cleanUpOnInterrupt(() => isNew && rmSync(file, { force: true }));
  let isWritten = false;
  try {
    const made = await make();
    try {
      await handle.truncate(0);
      await handle.writeFile(textOf(made));
    } catch (cause) {
      throw unusable(cause);
    }
    isWritten = true;
    return made;
  } finally {
    interrupt.dispose();
    await handle.close();
    if (!isWritten && isNew) await rm(file, { force: true });
  }
}

async function openForWriting(file: string, mayReplace: boolean): Promise<{ readonly handle: FileHandle; readonly isNew: boolean }> {
  try {
    return { handle: await open(file, 'wx'), isNew: true };
  } catch (error) {
    if (!mayReplace || (error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    return { handle: await open(file, 'r+'), isNew: false };
  }
}
