/** What all threads and processes of the library have in common: the file that they run; and whether a thread lives. */
import { existsSync } from 'node:fs';
import { basename } from 'node:path';
import type { Worker } from 'node:worker_threads';

/**
 * Whether a thread has ended. A blocked main thread hears no event, and a thread that runs out of memory says nothing itself; but of one that
 * was once seen to live, with the event `online` come before, Node says that its loop has a negative idle time.
 */
export const isGone = (worker: Worker): boolean => worker.performance.eventLoopUtilization().idle < 0;

/**
 * Threads and processes run JavaScript, from the bundle of the build (tools/bundle.mjs): most of a start is otherwise to read the files that a thread loads. Where there is
 * none, they run the files of the compiler.
 * @param name of the file, from `src`
 */
export function threadEntry(name: string): URL {
  const bundled = `bundle/${basename(name)}`;
  // When this file is run from its source (unit tests), the built ones are taken.
  for (const path of [bundled, name].flatMap((file) => [`../${file}`, `../../dist/${file}`])) {
    const entry = new URL(path, import.meta.url);
    if (existsSync(entry)) return entry;
  }
  throw new Error('libs/strategies is not built: run npm run build');
}
