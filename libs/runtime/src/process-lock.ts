/**
 * One process at a time: a file with the holder's pid and start time, so that neither a crash nor a pid that was given to another process
 * leaves it locked (the start time is known on Linux only), and with what the holder has to tell. Who finds a stale file removes it under
 * a second, short-lived lock for this file as it is (the broom): of two that find it, none takes away what the other has just made.
 *
 * A folder may be on several hosts, or a volume of several containers. A pid of another place cannot be asked, so the holder touches its file while it runs (the
 * beat), and one of another place counts as gone when its file was left alone for minutes. Times are those of the file system: that of the lock against that of
 * a file that was just written beside it, whatever the clocks of the hosts say.
 */
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  closeSync,
  fstatSync,
  linkSync,
  mkdirSync,
  openSync,
  readFileSync,
  readlinkSync,
  renameSync,
  rmSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { hostname } from 'node:os';
import { dirname } from 'node:path';
import { isAlive, startTicks } from './end-process.js';

/** Where a process runs, as a pid says something only there: on Linux a boot of the kernel and a namespace of pids, so that containers of one machine differ. */
interface Place {
  /** For people. */
  readonly host: string;
  /** No other host or container has it, nor this host after its next boot. */
  readonly place: string;
  /** Stays from boot to boot; empty in containers, whose names and files come from elsewhere, and where no id is known. */
  readonly machine: string;
}

const INITIAL_NAMESPACE = 'pid:[4026531836]';
let own: Place | undefined;

const ownPlace = (): Place => (own ??= process.platform === 'linux' ? ofLinux() : ofOthers(output));

function ofLinux(): Place {
  const host = hostname();
  const boot = asked(() => readFileSync('/proc/sys/kernel/random/boot_id', 'utf8'));
  const namespace = asked(() => readlinkSync('/proc/self/ns/pid'));
  const id = namespace === INITIAL_NAMESPACE ? asked(() => readFileSync('/etc/machine-id', 'utf8')) : '';
  // The id of a machine is to be shown to nobody as it is.
  const machine = id && `${host} ${digest(id)}`;
  return { host, place: boot && namespace ? `${boot} ${namespace}` : host, machine };
}

/**
 * macOS. Without the id of the boot or of the machine nothing tells this machine before its boot from another one: a name of a host is not its own.
 * @param run a program and its arguments, for what it writes
 */
export function ofOthers(run: (command: string, args: readonly string[]) => string): Place {
  const host = hostname();
  const boot = asked(() => run('/usr/sbin/sysctl', ['-n', 'kern.bootsessionuuid']));
  const hardware = boot && asked(() => run('/usr/sbin/ioreg', ['-rd1', '-c', 'IOPlatformExpertDevice']));
  const id = /"IOPlatformUUID" = "([^"]+)"/.exec(hardware)?.[1];
  return { host, place: boot || host, machine: id ? `${host} ${digest(id)}` : '' };
}

const output = (command: string, args: readonly string[]): string => spawnSync(command, args, { encoding: 'utf8', timeout: 5000 }).stdout;

function asked(read: () => string): string {
  try {
    return read().trim();
  } catch {
    return ''; // this system does not tell
  }
}

/** Files of earlier versions name no place: they are taken for files of this one. */
export interface Holder extends Partial<Place> {
  readonly pid: number;
  readonly ticks: string | null;
}

export interface HeldLock<T> {
  /** What others read from now on, in place of what was there. @returns why they go on reading what was there, a full disk for example */
  tell(what: T): Error | undefined;
  /** Somebody else who holds it: from another place, because this process stood still for minutes. */
  takenBy(): Holder | undefined;
  release(): void;
}

/** `host` when the holder is not of this place. */
export type LockResult<T> = HeldLock<T> | { readonly heldBy: number; readonly host?: string | undefined };

/** Private to the user: what a holder tells may be a secret. */
const MODE = 0o600;
const BEAT_MS = 15_000;
/** For how long a holder of another place may leave its file alone. */
export const GONE_AFTER_MS = 180_000;

/**
 * @param what the holder tells, beside who it is
 * @param onLost told once when somebody else has taken it
 */
export function lockFile<T extends object = object>(file: string, what?: T, onLost?: (by: Holder) => void): LockResult<T> {
  mkdirSync(dirname(file), { recursive: true });
  // A pid of another container may be the same.
  const own = `${file}.${process.pid}-${digest(ownPlace().place)}`;
  const holder: Holder = Object.assign({ pid: process.pid, ticks: startTicks(process.pid) ?? null }, ownPlace());
  const write = (told: T | undefined): void => writeFileSync(own, JSON.stringify({ ...told, ...holder }), { mode: MODE });
  // Whoever removed the file by hand may have let another process take it.
  const isOurs = (): boolean => isSame(runningHolder(file), holder);
  let beat: NodeJS.Timeout | undefined;
  const held: HeldLock<T> = {
    tell(told) {
      if (!isOurs()) return undefined;
      try {
        write(told);
        renameSync(own, file);
        return undefined;
      } catch (error) {
        rmSync(own, { force: true });
        return error as Error;
      }
    },
    takenBy() {
      const found = runningHolder(file);
      return isSame(found, holder) ? undefined : found;
    },
    release() {
      clearInterval(beat);
      if (isOurs()) rmSync(file, { force: true });
    },
  };
  const hold = (): HeldLock<T> => {
    const touchOrTell = beatOf(file);
    beat = setInterval(() => {
      if (isOurs()) return touchOrTell();
      const other = held.takenBy();
      if (!other) return;
      clearInterval(beat);
      onLost?.(other);
    }, BEAT_MS).unref();
    return held;
  };
  try {
    write(what);
    const now = (): number => modifiedMs(own) ?? Date.now();
    for (let attempt = 0; attempt < 10; attempt++) {
      try {
        // A link appears with its content, where a file that is created is empty for a moment.
        linkSync(own, file);
        return hold();
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
      }
      const running = runningHolder(file, now());
      if (running) return { heldBy: running.pid, host: hostElsewhere(running) };
      removeStale(file, own, now());
    }
    return { heldBy: runningHolder(file)?.pid ?? 0 };
  } finally {
    rmSync(own, { force: true });
  }
}

const digest = (text: string): string => createHash('sha256').update(text).digest('hex').slice(0, 8);

const isSame = (found: Holder | undefined, own: Holder): boolean =>
  found?.pid === own.pid && found.ticks === own.ticks && found.place === own.place;

/** Another place than this one, which the holder of a lock names; undefined for one of this place. */
export function hostElsewhere({ place, host = 'another host' }: Holder): string | undefined {
  const own = ownPlace();
  if (place === undefined || place === own.place) return undefined;
  return host === own.host ? `another host or container called ${host}` : host;
}

/** Its first byte is written again, which takes no room on a full disk and says the time of the file system. @returns why that failed */
function touch(file: string): Error | undefined {
  try {
    const descriptor = openSync(file, 'r+');
    try {
      writeSync(descriptor, '{', 0);
    } finally {
      closeSync(descriptor);
    }
    return undefined;
  } catch (error) {
    return error as Error;
  }
}

/** The next beat tries again; a problem is told once as long as it lasts. */
export function beatOf(file: string): () => void {
  let told: string | undefined;
  return () => {
    const problem = touch(file);
    if (problem && problem.message !== told)
      process.emitWarning(
        `${file} cannot be touched (${problem.message}). If that lasts ${GONE_AFTER_MS / 60_000} minutes, another host may take it.`,
      );
    told = problem?.message;
  };
}

/**
 * One at a time removes a file that a dead process left: who holds the broom that bears this content in its name, and only when the file has it
 * still, so that whoever looked long ago takes away nothing that was made since. A broom of a dead sweeper is removed in the same way.
 */
function removeStale(file: string, own: string, nowMs: number): void {
  const found = readText(file);
  if (found === undefined || runningIn(found, file, nowMs)) return;
  const broom = `${file}.sweep-${digest(found)}`;
  try {
    linkSync(own, broom);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    return removeStale(broom, own, nowMs); // whoever sweeps is done at once
  }
  try {
    if (readText(file) === found && !runningIn(found, file, nowMs)) rmSync(file, { force: true });
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

/** When the file was touched last; asked of the open file, as a file system of a network then asks its server. */
function modifiedMs(file: string): number | undefined {
  try {
    const descriptor = openSync(file, 'r');
    try {
      return fstatSync(descriptor).mtimeMs;
    } finally {
      closeSync(descriptor);
    }
  } catch {
    return undefined;
  }
}

/** The holder of the lock with the data that it stored; undefined when nobody holds it. @param nowMs as the file system has it */
export function runningHolder<T extends object = object>(file: string, nowMs = Date.now()): (Holder & T) | undefined {
  const text = readText(file);
  return text === undefined ? undefined : runningIn<T>(text, file, nowMs);
}

function runningIn<T extends object = object>(text: string, file: string, nowMs: number): (Holder & T) | undefined {
  let holder: Holder & T;
  try {
    holder = JSON.parse(text) as Holder & T;
  } catch {
    return undefined; // it was cut short: nobody holds it
  }
  const { pid, ticks, machine } = holder;
  if (!Number.isInteger(pid) || pid < 1) return undefined;
  if (hostElsewhere(holder) !== undefined) {
    if (machine && machine === ownPlace().machine) return undefined; // this machine, before it was started anew
    const touchedMs = modifiedMs(file);
    return touchedMs !== undefined && nowMs - touchedMs < GONE_AFTER_MS ? holder : undefined;
  }
  if (!isAlive(pid)) return undefined;
  const now = startTicks(pid);
  return ticks === null || now === undefined || ticks === now ? holder : undefined;
}
