/**
 * One process at a time: a file with the holder's pid and start time, so that neither a crash nor a pid that was given to another process
 * leaves it locked (the start time is known on Linux only), and with what the holder has to tell. Who finds a stale file removes it under
 * a second, short-lived lock for this file as it is (the broom): of two that find it, none takes away what the other has just made.
 */
import { createHash } from 'node:crypto';
import { linkSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { isAlive, startTicks } from './end-process.js';

export interface Holder {
  readonly pid: number;
  readonly ticks: string | null;
}

export interface HeldLock<T> {
  /** What others read from now on, in place of what was there. */
  tell(what: T): void;
  release(): void;
}

export type LockResult<T> = HeldLock<T> | { readonly heldBy: number };

/** Private to the user: what a holder tells may be a secret. */
const MODE = 0o600;

/** @param what the holder tells, beside who it is */
export function lockFile<T extends object = object>(file: string, what?: T): LockResult<T> {
  mkdirSync(dirname(file), { recursive: true });
  const own = `${file}.${process.pid}`;
  const holder: Holder = { pid: process.pid, ticks: startTicks(process.pid) ?? null };
  const write = (told: T | undefined): void => writeFileSync(own, JSON.stringify({ ...told, ...holder }), { mode: MODE });
  // Whoever removed the file by hand may have let another process take it.
  const isOurs = (): boolean => runningHolder(file)?.pid === process.pid;
  const held: HeldLock<T> = {
    tell(told) {
      if (!isOurs()) return;
      write(told);
      renameSync(own, file);
    },
    release() {
      if (isOurs()) rmSync(file, { force: true });
    },
  };
  write(what);
  try {
    for (let attempt = 0; attempt < 10; attempt++) {
      try {
        // A link appears with its content, where a file that is created is empty for a moment.
        linkSync(own, file);
        return held;
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
      }
      const running = runningHolder(file);
      if (running) return { heldBy: running.pid };
      removeStale(file, own);
    }
    return { heldBy: runningHolder(file)?.pid ?? 0 };
  } finally {
    rmSync(own, { force: true });
  }
}

/**
 * One at a time removes a file that a dead process left: who holds the broom that bears this content in its name, and only when the file has it
 * still, so that whoever looked long ago takes away nothing that was made since. A broom of a dead sweeper is removed in the same way.
 */
function removeStale(file: string, own: string): void {
  const found = readText(file);
  if (found === undefined || runningIn(found)) return;
  const broom = `${file}.sweep-${createHash('sha256').update(found).digest('hex').slice(0, 8)}`;
  try {
    linkSync(own, broom);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    return removeStale(broom, own); // whoever sweeps is done at once
  }
  try {
    if (readText(file) === found) rmSync(file, { force: true });
  } finally {
    rmSync(broom, { force: true });
  }
}

function readText(file: string): string | undefined {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return undefined;
  }
}

/** The holder of the lock with the data that it stored; undefined when nobody holds it. */
export function runningHolder<T extends object = object>(file: string): (Holder & T) | undefined {
  const text = readText(file);
  return text === undefined ? undefined : runningIn<T>(text);
}

function runningIn<T extends object = object>(text: string): (Holder & T) | undefined {
  let holder: Holder & T;
  try {
    holder = JSON.parse(text) as Holder & T;
  } catch {
    return undefined; // it was cut short: nobody holds it
  }
  const { pid, ticks } = holder;
  if (!Number.isInteger(pid) || pid < 1 || !isAlive(pid)) return undefined;
  const now = startTicks(pid);
  return ticks === null || now === undefined || ticks === now ? holder : undefined;
}
