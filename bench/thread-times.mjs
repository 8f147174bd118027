/** Processor time of the threads of other processes, as Linux counts it. It means something on a busy machine too, where the clock does not. */
import { readdirSync, readFileSync } from 'node:fs';

/** @typedef {{ mainMs: number, othersMs: number }} ThreadTimes */

/**
 * Since the process began; undefined where the system does not say.
 * @param {number | undefined} pid
 * @returns {ThreadTimes | undefined}
 */
export function threadTimes(pid) {
  try {
    let [mainMs, othersMs] = [0, 0];
    for (const thread of readdirSync(`/proc/${pid}/task`)) {
      const ms = Number(readFileSync(`/proc/${pid}/task/${thread}/schedstat`, 'utf8').split(' ', 1)[0]) / 1e6;
      if (thread === String(pid)) mainMs += ms;
      else othersMs += ms;
    }
    return { mainMs, othersMs };
  } catch {
    return undefined; // not Linux, or a thread has ended just now
  }
}
