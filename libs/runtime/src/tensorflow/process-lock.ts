/**
 * One process at a time: a file with the holder's pid and start time, so that neither a crash nor a pid that was given to another process
 * leaves it locked. A stale file is renamed away before it is replaced: of two that find it, one gets it.
 */
import { linkSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { isAlive, startTicks } from '../end-process.js';

interface Holder {
  readonly pid: number;
  readonly ticks: string | null;
}

export type LockResult = { readonly release: () => void } | { readonly heldBy: number };

export function lockFile(file: string): LockResult {
  mkdirSync(dirname(file), { recursive: true });
  const own = `${file}.${process.pid}`;
  writeFileSync(own, JSON.stringify({ pid: process.pid, ticks: startTicks(process.pid) ?? null } satisfies Holder));
  try {
    for (let attempt = 0; attempt < 10; attempt++) {
      try {
        // A link appears with its content, where a file that is created is empty for a moment.
        linkSync(own, file);
        return { release: () => rmSync(file, { force: true }) };
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
      }
      const holder = readHolder(file);
      if (holder && isRunning(holder)) return { heldBy: holder.pid };
      const stale = `${file}.stale-${process.pid}`;
      try {
        renameSync(file, stale);
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
      }
      // Another one may have taken the lock between the reading and the renaming: it gets it back.
      const moved = readHolder(stale);
      if (moved && isRunning(moved)) linkSync(stale, file);
      rmSync(stale, { force: true });
    }
    return { heldBy: readHolder(file)?.pid ?? 0 };
  } finally {
    rmSync(own, { force: true });
  }
}

function readHolder(file: string): Holder | undefined {
  try {
    return JSON.parse(readFileSync(file, 'utf8')) as Holder;
  } catch {
    return undefined; // gone meanwhile
  }
}

function isRunning({ pid, ticks }: Holder): boolean {
  if (!isAlive(pid)) return false;
  const now = startTicks(pid);
  return ticks === null || now === undefined || ticks === now;
}
