/** What all threads of a strategy have in common: the file that they run, and whether they live. */
import { existsSync } from 'node:fs';
import type { Worker } from 'node:worker_threads';

/**
 * Whether a thread has ended. A blocked main thread hears no event, and a thread that runs out of memory says nothing itself; but of one that
 * was once seen to live, with the event `online` come before, Node says that its loop has a negative idle time.
 */
export const isGone = (worker: Worker): boolean => worker.performance.eventLoopUtilization().idle < 0;

/**
 * Threads run JavaScript: when this file is run from its source (unit tests), the built neighbour is taken.
 * @param name of the file, from `src`
 */
export function threadEntry(name: string): URL {
  const beside = new URL(`../${name}`, import.meta.url);
  if (existsSync(beside)) return beside;
  const built = new URL(`../../dist/${name}`, import.meta.url);
  if (!existsSync(built)) throw new Error('libs/strategies is not built: run npm run build');
  return built;
}
