/**
 * One local stack per data folder. The lock is a file with the holder's pid and its start time, so that neither a crash nor a pid that was given
 * to another process leaves the folder locked. Beside it stands what others need to know of the running stack.
 */
import { mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { isAlive, startTicks, UserError } from '@paceline/runtime';

export interface StackState {
  readonly pid: number;
  readonly ticks: string | null;
  readonly startedAt: string;
  /** Of the api and the dashboard; null while it is starting. */
  readonly url: string | null;
  readonly processes: readonly { readonly name: string; readonly pid: number }[];
}

const fileIn = (dataDir: string): string => join(dataDir, 'up.pid.json');

/** The running stack of a folder, undefined when there is none. */
export function runningStack(dataDir: string): StackState | undefined {
  let state: StackState;
  try {
    state = JSON.parse(readFileSync(fileIn(dataDir), 'utf8')) as StackState;
  } catch {
    return undefined; // no file, or one that was cut short: nobody holds it
  }
  if (!Number.isInteger(state.pid) || state.pid <= 1 || !isAlive(state.pid)) return undefined;
  const ticks = startTicks(state.pid);
  return ticks !== undefined && state.ticks !== null && ticks !== state.ticks ? undefined : state;
}

export interface StackLock {
  update(changes: Partial<Pick<StackState, 'url' | 'processes'>>): void;
  release(): void;
}

/** @throws UserError ALREADY_RUNNING */
export function lockStack(dataDir: string): StackLock {
  mkdirSync(dataDir, { recursive: true });
  const file = fileIn(dataDir);
  let state: StackState = {
    pid: process.pid,
    ticks: startTicks(process.pid) ?? null,
    startedAt: new Date().toISOString(),
    url: null,
    processes: [],
  };
  for (let attempt = 0; ; attempt++) {
    try {
      writeFileSync(file, JSON.stringify(state), { flag: 'wx', mode: 0o600 });
      break;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    }
    const running = runningStack(dataDir);
    if (running || attempt === 3) throw alreadyRunning(dataDir, running);
    rmSync(file, { force: true }); // its holder is gone
  }
  return {
    update(changes) {
      state = { ...state, ...changes };
      writeFileSync(`${file}.new`, JSON.stringify(state), { mode: 0o600 });
      renameSync(`${file}.new`, file);
    },
    release: () => rmSync(file, { force: true }),
  };
}

function alreadyRunning(dataDir: string, running: StackState | undefined): UserError {
  const where = running?.url ? ` Its dashboard is at ${running.url}.` : '';
  return new UserError('ALREADY_RUNNING', `Paceline runs already (pid ${running?.pid ?? 'unknown'}, data in ${dataDir}).${where}`, {
    hint: '`paceline down` stops it. PACELINE_HOME=<folder> runs a second one beside it.',
    exit: 'temporary',
  });
}
