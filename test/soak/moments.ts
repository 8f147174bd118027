/**
 * Moments of a run that are over in milliseconds, on real processes: what a process is at work on is read from its open files, and
 * everybody is stopped (SIGSTOP) while a test makes sure that it is still so. What it then sends arrives in exactly that moment.
 */
import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import type { TestProcess } from '@paceline/testkit';

/** For `DataPlane.start`: reads and writes of checkpoints and weights take long enough to be met. */
export const SLOW_DISK = { NODE_OPTIONS: `--import=${new URL('slow-disk.mjs', import.meta.url).href}` };

const DEADLINE_MS = 60_000;
const LOOK_MS = 2;

/** Whether one of its open files has such a name. */
export function hasOpen({ child }: TestProcess, name: RegExp): boolean {
  const folder = `/proc/${child.pid}/fd`;
  return readdirSync(folder).some((fd) => {
    try {
      return name.test(readlinkSync(`${folder}/${fd}`));
    } catch {
      return false; // closed since the folder was read
    }
  });
}

export const WRITES_CHECKPOINT = /\/checkpoints\/.*\.partial$/;
export const READS_CHECKPOINT = /\/checkpoints\/.*\.safetensors$/;
export const WRITES_WEIGHTS = /\/weights-a\d+\.safetensors.*\.partial$/;

/** The letter of its state in /proc. */
function stateOf({ child }: TestProcess): string {
  const text = readFileSync(`/proc/${child.pid}/stat`, 'latin1');
  return text.slice(text.lastIndexOf(') ') + 2)[0]!;
}

/**
 * Waits for the moment and stops everybody in it. When it was over before they stood still, they go on and it is waited for again.
 * @returns lets them go on @throws Error when it never comes
 */
export async function stoppedAt(what: string, members: readonly TestProcess[], isThere: () => boolean): Promise<() => void> {
  const signal = (name: NodeJS.Signals): void => members.forEach(({ child }) => void child.kill(name));
  const deadline = Date.now() + DEADLINE_MS;
  for (;;) {
    if (isThere()) {
      signal('SIGSTOP');
      while (!members.every((member) => stateOf(member) === 'T')) await sleep(LOOK_MS);
      if (isThere()) return () => signal('SIGCONT');
      signal('SIGCONT');
    }
    if (Date.now() > deadline) throw new Error(`waited ${DEADLINE_MS} ms to meet the processes ${what}`);
    await sleep(LOOK_MS);
  }
}
