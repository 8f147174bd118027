/** Ending processes by their id: a polite signal, a deadline, then SIGKILL. Never by name. */
import { spawnSync, type ChildProcess } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';

export function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
  return !isZombie(pid);
}

/** A child that has ended but was not waited for yet still answers to kill(0); nothing of it runs any more. */
function isZombie(pid: number): boolean {
  return procStat(pid)?.[0] === 'Z';
}

/** Start time of a process in clock ticks since boot: with the pid it names a process for good. Undefined outside Linux. */
export function startTicks(pid: number): string | undefined {
  return procStat(pid)?.[19];
}

/** Fields of /proc/PID/stat after the command name, which may itself hold blanks and brackets. */
function procStat(pid: number): string[] | undefined {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'latin1');
    return text.slice(text.lastIndexOf(') ') + 2).split(' ');
  } catch {
    return undefined; // no /proc (macOS), or the process is gone
  }
}

export interface EndOptions {
  readonly signal?: NodeJS.Signals;
  /** How long the polite signal may take. */
  readonly deadlineMs?: number;
  readonly killSignal?: NodeJS.Signals;
}

/** @returns true when the process ended by the polite signal, false when it had to be killed */
export async function endProcess(target: number | ChildProcess, options: EndOptions = {}): Promise<boolean> {
  const { signal = 'SIGTERM', deadlineMs = 10_000, killSignal = 'SIGKILL' } = options;
  const pid = typeof target === 'number' ? target : target.pid;
  if (pid === undefined || hasEnded(target, pid)) return true;
  send(pid, signal);
  if (await gone(target, pid, deadlineMs)) return true;
  send(pid, killSignal);
  if (!(await gone(target, pid, 5_000)) && killSignal !== 'SIGKILL') {
    send(pid, 'SIGKILL');
    await gone(target, pid, 5_000);
  }
  return false;
}

/**
 * SIGKILL to a process and its children, for data that are no longer theirs to write. It stands still first, so that none of its children is missed.
 * Settles when they are gone.
 */
export async function killWithChildren(target: ChildProcess): Promise<void> {
  const { pid } = target;
  if (pid === undefined || hasEnded(target, pid)) return;
  send(pid, 'SIGSTOP');
  const children = childrenOf(pid);
  for (const child of [...children, pid]) send(child, 'SIGKILL');
  await Promise.all([gone(target, pid, 5_000), ...children.map((child) => gone(child, child, 5_000))]);
}

/** Empty where the system does not tell; the children of a database then see that it is gone when they are done with what they do. */
function childrenOf(pid: number): number[] {
  let text: string | null;
  try {
    text = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8');
  } catch {
    text = spawnSync('pgrep', ['-P', String(pid)], { encoding: 'utf8', timeout: 2_000 }).stdout; // no /proc (macOS)
  }
  return (text ?? '')
    .split(/\s+/)
    .map(Number)
    .filter((child) => child > 0);
}

function hasEnded(target: number | ChildProcess, pid: number): boolean {
  return typeof target === 'number' ? !isAlive(pid) : target.exitCode !== null || target.signalCode !== null;
}

function send(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}

async function gone(target: number | ChildProcess, pid: number, deadlineMs: number): Promise<boolean> {
  const until = performance.now() + deadlineMs;
  while (!hasEnded(target, pid)) {
    if (performance.now() >= until) return false;
    await sleep(10);
  }
  return true;
}
