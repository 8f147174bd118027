/** One local stack per data folder. Beside the lock stands what others need to know of the running stack. */
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { lockFile, runningHolder, UserError, type Holder } from '@paceline/runtime';

interface Told {
  readonly startedAt: string;
  /** Folder of the program that runs it. */
  readonly checkout?: string;
  /** Address of the api and the dashboard; null while the stack starts. */
  readonly url: string | null;
  readonly processes: readonly { readonly name: string; readonly pid: number }[];
  /** TCP between workers and servers is encrypted. */
  readonly tls?: boolean;
}

export type StackState = Holder & Told;

export const CHECKOUT = fileURLToPath(new URL('../../../..', import.meta.url)).replace(/\/$/, '');

const fileIn = (dataDir: string): string => join(dataDir, 'up.pid.json');

/** The running stack of a folder, undefined when there is none. */
export const runningStack = (dataDir: string): StackState | undefined => runningHolder<Told>(fileIn(dataDir));

export interface StackLock {
  update(changes: Partial<Pick<StackState, 'url' | 'processes' | 'tls'>>): void;
  release(): void;
}

/** @throws UserError ALREADY_RUNNING */
export function lockStack(dataDir: string): StackLock {
  let told: Told = { startedAt: new Date().toISOString(), checkout: CHECKOUT, url: null, processes: [] };
  const lock = lockFile(fileIn(dataDir), told);
  if ('heldBy' in lock) throw alreadyRunning(dataDir, lock.heldBy);
  return {
    update(changes) {
      told = { ...told, ...changes };
      lock.tell(told);
    },
    release: () => lock.release(),
  };
}

function alreadyRunning(dataDir: string, pid: number): UserError {
  const running = runningStack(dataDir);
  const where = running?.url ? ` Its dashboard is at ${running.url}.` : '';
  const whose = running?.checkout ? `, started from ${running.checkout === CHECKOUT ? 'this checkout' : running.checkout}` : '';
  return new UserError('ALREADY_RUNNING', `Paceline runs already (pid ${pid || 'unknown'}${whose}, data in ${dataDir}).${where}`, {
    hint: `\`paceline down\` stops it. PACELINE_HOME=${join(CHECKOUT, '.paceline', 'home')} runs a second one beside it, on the next free port.`,
    exit: 'temporary',
  });
}
