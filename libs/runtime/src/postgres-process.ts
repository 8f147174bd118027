/** Whether the process that `postmaster.pid` of a cluster names is the server of that cluster: after a crash the pid may be another process's. */
import { readFileSync, statSync } from 'node:fs';

/** What is asked of the system. */
export interface SystemView {
  stat(path: string): { readonly dev: number; readonly ino: number; readonly uid: number };
  read(path: string): string;
}

const SYSTEM: SystemView = { stat: (path) => statSync(path), read: (path) => readFileSync(path, 'utf8') };

/**
 * A server works inside of its cluster. The folder in which another user's process works is closed even to root in a container (that
 * takes CAP_SYS_PTRACE, which Docker gives to nobody); its user and its command line are open to all.
 * @returns undefined where that cannot be told, and without /proc: PostgreSQL's own check of postmaster.pid decides
 */
export function isPostgresOf(cluster: string, pid: number, system: SystemView = SYSTEM): boolean | undefined {
  try {
    const [command, ...flags] = system.read(`/proc/${pid}/cmdline`).split('\0');
    if (!command!.endsWith('postgres')) return false;
    const works = folderOf(pid, system);
    if (works !== undefined) return isSame(works, system.stat(cluster));
    const named = flags[flags.indexOf('-D') + 1] ?? '';
    const isOfUser = system.stat(`/proc/${pid}`).uid === system.stat(cluster).uid;
    // /proc/self/cwd, as a server knows a cluster that it has no way to, says nothing here.
    const isNamed = named.startsWith('/') && !named.startsWith('/proc/') && isSame(system.stat(named), system.stat(cluster));
    return (isOfUser && isNamed) || undefined;
  } catch {
    return undefined; // it has ended meanwhile, or not even its command line is open
  }
}

/** Undefined where it is closed. */
function folderOf(pid: number, system: SystemView): ReturnType<SystemView['stat']> | undefined {
  try {
    return system.stat(`/proc/${pid}/cwd`);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'EACCES' || code === 'EPERM') return undefined;
    throw error;
  }
}

type Identity = Pick<ReturnType<SystemView['stat']>, 'dev' | 'ino'>;

const isSame = (one: Identity, other: Identity): boolean => one.dev === other.dev && one.ino === other.ino;
