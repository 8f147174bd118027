/** One local stack per data folder. Beside the lock stands what others need to know of the running stack. */
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { GONE_AFTER_MS, hostElsewhere, lockFile, runningHolder, UserError, type Holder } from '@paceline/runtime';

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
  /** @returns why others go on reading what was there, a full disk for example */
  update(changes: Partial<Pick<StackState, 'url' | 'processes' | 'tls'>>): Error | undefined;
  release(): void;
  /** Settles when another host has taken the folder, because this one stood still for minutes. */
  readonly lost: Promise<string>;
  isLost(): boolean;
}

/** @throws UserError ALREADY_RUNNING, DATA_DIR_UNUSABLE */
export function lockStack(dataDir: string): StackLock {
  let told: Told = { startedAt: new Date().toISOString(), checkout: CHECKOUT, url: null, processes: [] };
  let lose!: (why: string) => void;
  let isLost = false; // for good: the other host may have ended by now, and what it has written is there
  const lost = new Promise<string>((resolve) => (lose = resolve));
  const lock = take(dataDir, told, ({ host, pid }) => {
    isLost = true;
    lose(
      `This host stood still, and ${host} (pid ${pid}) has taken ${dataDir} meanwhile; what runs here is killed, without a last checkpoint.`,
    );
  });
  if ('heldBy' in lock)
    throw lock.host === undefined ? alreadyRunning(dataDir, lock.heldBy) : runsElsewhere(dataDir, lock.host, lock.heldBy);
  return {
    update(changes) {
      told = { ...told, ...changes };
      return lock.tell(told);
    },
    release: () => lock.release(),
    lost,
    isLost: () => (isLost ||= lock.takenBy() !== undefined),
  };
}

function take(dataDir: string, told: Told, onLost: (by: Holder) => void): ReturnType<typeof lockFile<Told>> {
  try {
    return lockFile(fileIn(dataDir), told, onLost);
  } catch (error) {
    throw dataDirUnusable(dataDir, error);
  }
}

export const dataDirUnusable = (dataDir: string, error: unknown): UserError =>
  new UserError(
    'DATA_DIR_UNUSABLE',
    `The data folder ${dataDir} cannot be written (${(error as NodeJS.ErrnoException).code ?? String(error)}).`,
    {
      hint: 'Set PACELINE_HOME to a folder that you may write, on a disk with room.',
      exit: 'configuration',
      cause: error,
    },
  );

/** Where the stack of a folder runs when that is not here: the same folder is on several hosts, or a volume of several containers. */
export const elsewhere = (running: StackState): string | undefined => hostElsewhere(running);

export const runsElsewhere = (dataDir: string, host: string, pid: number): UserError =>
  new UserError('ALREADY_RUNNING', `Paceline runs on ${host} (pid ${pid}) with the data in ${dataDir}.`, {
    hint: `\`paceline down\` there stops it. If that host or container is gone, start ${GONE_AFTER_MS / 60_000} minutes after it was there last, or remove ${fileIn(dataDir)}. Each host may have a folder of its own: PACELINE_HOME.`,
    exit: 'temporary',
  });

function alreadyRunning(dataDir: string, pid: number): UserError {
  const running = runningStack(dataDir);
  const where = running?.url ? ` Its dashboard is at ${running.url}.` : '';
  const whose = running?.checkout ? `, started from ${running.checkout === CHECKOUT ? 'this checkout' : running.checkout}` : '';
  return new UserError('ALREADY_RUNNING', `Paceline runs already (pid ${pid || 'unknown'}${whose}, data in ${dataDir}).${where}`, {
    hint: `\`paceline down\` stops it. PACELINE_HOME=${join(CHECKOUT, '.paceline', 'home')} runs a second one beside it, on the next free port.`,
    exit: 'temporary',
  });
}
