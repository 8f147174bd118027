/** Processor time of the threads of other processes, as Linux counts it. It means something on a busy machine too, where the clock does not. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';

/** @typedef {{ mainMs: number, othersMs: number, byThread: ReadonlyMap<string, number> }} ThreadTimes the last by the id of a thread, without the main one */

/** /proc counts what it does not count in nanoseconds in hundredths of a second. */
const TICK_MS = 10;
/** A thread that ends while its process is read spoils a reading. */
const MOST_READINGS = 5;

/**
 * Since the process began; undefined where the system does not say.
 * @param {number | undefined} pid
 * @returns {ThreadTimes | undefined}
 */
export function threadTimes(pid) {
  try {
    let mainMs = 0;
    const byThread = new Map();
    for (const thread of readdirSync(`/proc/${pid}/task`)) {
      const ms = Number(readFileSync(`/proc/${pid}/task/${thread}/schedstat`, 'utf8').split(' ', 1)[0]) / 1e6;
      if (thread === String(pid)) mainMs = ms;
      else byThread.set(thread, ms);
    }
    return { mainMs, othersMs: [...byThread.values()].reduce((sum, ms) => sum + ms, 0), byThread };
  } catch {
    return undefined; // not Linux, or a thread has ended just now
  }
}

/**
 * Processor time of a process and of all processes below it, with those that have ended and were waited for.
 * @param {number} pid
 * @returns {number} milliseconds since they began; not a number where the system does not say
 */
export function familyMs(pid) {
  for (let i = 0; i < MOST_READINGS; i++) {
    const own = threadTimes(pid);
    if (own) return own.mainMs + own.othersMs + ofEndedMs(pid) + childrenOf(pid).reduce((sum, child) => sum + childMs(child), 0);
    if (isGone(pid)) break;
  }
  return Number.NaN;
}

/** @param {number} pid */
const isGone = (pid) => !existsSync(`/proc/${pid}`);

/**
 * Processor time of a child; 0 for one that has ended meanwhile, since its parent counts it.
 * @param {number} pid
 */
function childMs(pid) {
  try {
    const ms = familyMs(pid);
    return Number.isNaN(ms) && isGone(pid) ? 0 : ms;
  } catch (error) {
    if (isGone(pid)) return 0;
    throw error;
  }
}

/** @param {number} pid */
function ofEndedMs(pid) {
  const text = readFileSync(`/proc/${pid}/stat`, 'latin1');
  const fields = text.slice(text.lastIndexOf(') ') + 2).split(' ');
  return (Number(fields[13]) + Number(fields[14])) * TICK_MS;
}

/** @param {number} pid */
function childrenOf(pid) {
  return readFileSync(`/proc/${pid}/task/${pid}/children`, 'latin1').split(' ').filter(Boolean).map(Number);
}
