/**
 * Folders for what a command keeps on the disk meanwhile: rows of an import, a downloaded model. Each has the host and the process in its name, so what a killed one has left is removed by
 * the next: at once where its process is gone, and by age where it cannot be asked (another host on the same home, a number that was given again).
 */
import { mkdirSync, mkdtempSync, readdirSync, rmSync, statSync } from 'node:fs';
import { hostname } from 'node:os';
import path from 'node:path';

const NAME = /^work-(?:(.+)-(\d+)-)?[A-Za-z0-9]{6}$/;
const LEFT_AFTER_MS = 7 * 86_400_000;

/** @param cache where they lie; made when it is missing @returns a new folder, to be removed by whoever asked */
export function openWorkFolder(cache: string, now = Date.now()): string {
  mkdirSync(cache, { recursive: true });
  for (const name of readdirSync(cache)) {
    const left = NAME.exec(name);
    if (left && isLeft(path.join(cache, name), left[1], Number(left[2]), now))
      rmSync(path.join(cache, name), { recursive: true, force: true });
  }
  return mkdtempSync(path.join(cache, `work-${host()}-${process.pid}-`));
}

/** As a part of a file's name. */
const host = (): string => hostname().replaceAll(/[^A-Za-z0-9.-]/g, '_');

function isLeft(folder: string, of: string | undefined, pid: number, now: number): boolean {
  if (of === host() && !isAlive(pid)) return true;
  const found = statSync(folder, { throwIfNoEntry: false }); // removed by its own process meanwhile
  return found !== undefined && found.mtimeMs < now - LEFT_AFTER_MS;
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}
