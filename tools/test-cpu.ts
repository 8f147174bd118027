/**
 * How much processor time a test file takes, with the processes that it starts and waits for: a setup file of vitest, which leaves it in the `meta` of the file
 * for tools/test-journal.mjs. Only where /proc is.
 */
import { existsSync, readFileSync } from 'node:fs';
import { afterAll } from 'vitest';

declare module 'vitest' {
  interface TaskMeta {
    cpuMs?: number;
  }
}

/** A clock tick in /proc/PID/stat, on every Linux that Node runs on. */
const TICK_MS = 10;

/** Processor time of this process and of its children that have ended, ms. */
function usedMs(): number {
  const text = readFileSync('/proc/self/stat', 'latin1');
  const fields = text.slice(text.lastIndexOf(') ') + 2).split(' ');
  return fields.slice(11, 15).reduce((sum, ticks) => sum + Number(ticks), 0) * TICK_MS;
}

if (existsSync('/proc/self/stat')) {
  const beganMs = usedMs();
  // vitest asks for a pattern there; a file shares nothing with it.
  afterAll(({}, file) => {
    Object.assign(file.meta, { cpuMs: usedMs() - beganMs });
  });
}
